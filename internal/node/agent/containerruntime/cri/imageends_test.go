package cri

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

// TestPullEndsOnceIfItsRecordFails checks that a pull whose end cannot be recorded, as on a full disk, ends nevertheless, and
// ends no other one: the next pull counts as under way, and the record of the image's pulls goes when all are over.
func TestPullEndsOnceIfItsRecordFails(t *testing.T) {
	for end, failure := range map[string]error{
		"good": nil, "failed": status.Error(codes.NotFound, "no such image"), "cut off": status.Error(codes.Canceled, "cut off"),
	} {
		for before, begin := range map[string]func(t *testing.T, n *shared, s *imageStore) (end func(error)){
			"no other": func(*testing.T, *shared, *imageStore) func(error) { return func(error) {} },
			"another one is under way": func(t *testing.T, n *shared, s *imageStore) func(error) {
				return hung(t, n, s, private, func() {})
			},
			"an earlier one was cut off": func(t *testing.T, n *shared, s *imageStore) func(error) {
				s.pulling = func(string) error { return status.Error(codes.Canceled, "cut off") }
				wantFailure(t, n, private)
				return func(error) {}
			},
		} {
			t.Run(end+"/"+before, func(t *testing.T) {
				n, s := withStore(t, nil)
				endOther := begin(t, n, s)
				pullWithoutRecord(t, n, s, failure)
				endOther(status.Error(codes.NotFound, "no such image"))
				if got := n.runtime.records.intents[private].running; got != 0 {
					t.Errorf("%d pulls are under way after the end of all", got)
				}

				endNext := hung(t, n, s, private, func() {})
				n.clock.Step(oldestPull)
				n.runtime.pruneImages(t.Context())
				s.save(private, "id-late")
				n.want("the next pull is under way", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
				s.images = nil
				endNext(status.Error(codes.NotFound, "no such image"))
				n.endPulls()
				s.save(private, "id-loaded")
				n.want("loaded when all are over", "bob", private, corev1.PullNever, 0, "")
			})
		}
	}
}

// pullWithoutRecord makes a pull of ann's private image with this end. A directory replaces the record of the image's pulls
// meanwhile, so that nobody can write or remove the record.
func pullWithoutRecord(t *testing.T, n *shared, s *imageStore, failure error) {
	t.Helper()
	record := recordPath(n.runtime.records.pulls(), private)
	s.pulling = func(image string) error {
		if err := os.Remove(record); err != nil {
			t.Error(err)
		}
		if err := os.MkdirAll(filepath.Join(record, "x"), 0o700); err != nil {
			t.Error(err)
		}
		if failure == nil {
			s.pull(image)
		}
		return failure
	}
	if err := <-n.pullOf(t.Context(), private); (err == nil) != (failure == nil) {
		t.Errorf("the pull ends with %v", err)
	}
	s.pulling = nil
	left, err := os.ReadDir(n.runtime.records.pulls())
	if err != nil || len(left) != 1 || strings.HasSuffix(left[0].Name(), ".new") {
		t.Errorf("files %v, %v", left, err)
	}
	if err := os.RemoveAll(record); err != nil {
		t.Fatal(err)
	}
}
