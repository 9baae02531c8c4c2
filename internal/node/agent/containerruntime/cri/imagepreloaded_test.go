package cri

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	proxy = "registry.k8s.io/kube-proxy:v1"
	// evilProxy is an image of a repository for which ann has credentials.
	evilProxy = "quay.io/ann/kube-proxy:v1"
	// forAll is an image of the same registry that needs no credentials.
	forAll = "quay.io/a/open:1"
)

// TestLoadedImageStaysOpen checks that no pull closes an image that somebody loads onto the node while it is under way or
// after it, whatever its end is: neither an anonymous pull, also of the same name, nor one with credentials of another
// repository or tag.
func TestLoadedImageStaysOpen(t *testing.T) {
	for end, failure := range map[string]error{
		"not found": status.Error(codes.NotFound, "no such image"), "cut off": status.Error(codes.Canceled, "pod deleted"), "killed": nil,
	} {
		for name, test := range map[string]struct{ pulled, loaded string }{
			"anonymous, the same name":        {proxy, proxy},
			"anonymous, the same last name":   {"evil.io/kube-proxy:v1", proxy},
			"credentials, the same last name": {evilProxy, proxy},
			"credentials, another tag":        {"quay.io/a/private:2", private},
			"credentials, another name":       {evilProxy, private},
			"credentials, a digest":           {"quay.io/a/private@sha256:12", private},
			"anonymous, short":                {"kube-proxy:v1", proxy},
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				n, s := withStore(t, nil)
				check := func(when string) {
					t.Helper()
					for _, image := range []string{test.loaded, repositoryName(test.loaded) + "@id-loaded"} {
						n.want(when, "bob", image, corev1.PullNever, 0, "")
					}
				}
				ended := hung(t, n, s, test.pulled, func() {})
				s.save(test.loaded, "id-loaded")
				check("under way")
				if failure != nil {
					ended(failure)
				} else {
					n.restart()
					t.Cleanup(func() { ended(context.Canceled) })
				}
				check("loaded while the pull was under way")
				s.images = nil
				n.runtime.pruneImages(t.Context())
				s.save(test.loaded, "id-loaded")
				check("loaded after the pull")
				n.endPulls()
				check("later")
				n.restart()
				check("restarted later")
			})
		}
	}
}

// TestImageOfAnonymousPullStaysOpen checks that everybody may use what an anonymous pull brings, also if the pull is cut off,
// and if one with credentials ends meanwhile or later with the same image.
func TestImageOfAnonymousPullStaysOpen(t *testing.T) {
	n, s := withStore(t, nil)
	s.pulling = func(string) error { return status.Error(codes.Canceled, "cut off") }
	wantFailure(t, n, coredns)
	s.pulling = nil
	s.pull(coredns)
	n.want("stored late", "bob", coredns, corev1.PullNever, 0, "")
	s.registry["quay.io/a/dns:1"] = "id-dns"
	n.want("with credentials", "ann", "quay.io/a/dns:1", corev1.PullAlways, 1, "")
	n.want("after it", "bob", coredns, corev1.PullNever, 0, "")

	s.registry[forAll] = "id-all"
	end := hung(t, n, s, forAll, func() { s.pull(forAll) })
	n.want("anonymous meanwhile", "bob", forAll, corev1.PullAlways, 1, "")
	end(nil)
	n.want("after both", "bob", forAll, corev1.PullNever, 0, "")
}

// TestAnonymousPullEndsNoOther checks that an anonymous pull of an image does not end a pull with credentials of it.
func TestAnonymousPullEndsNoOther(t *testing.T) {
	for name, test := range map[string]struct {
		failure  error
		statuses int // how many are answered
	}{
		"good": {nil, 10}, "failed": {status.Error(codes.NotFound, "no such image"), 10}, "cut off": {status.Error(codes.Canceled, "cut off"), 10},
		"good, and the status fails": {nil, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n, s := withStore(t, nil)
			s.registry[forAll] = "id-all"
			end := hung(t, n, s, forAll, func() {})
			s.fails["ImageStatus"], s.pulling = test.statuses, func(image string) error {
				s.pull(image)
				return test.failure
			}
			if _, err := n.start("bob", forAll, corev1.PullAlways); (err == nil) != (test.failure == nil && test.statuses > 1) {
				t.Errorf("%v", err)
			}
			delete(s.fails, "ImageStatus")
			end(status.Error(codes.Canceled, "cut off"))
			s.save(forAll, "id-late")
			n.want("late", "bob", forAll, corev1.PullNever, 0, "ErrImageNeverPull")
			n.endPulls()
			n.restart()
			n.want("restarted later", "bob", forAll, corev1.PullNever, 0, "ErrImageNeverPull")
		})
	}
}

// TestUnnamedImage checks that nothing closes an image without a name, which somebody may be loading, that nobody uses it
// while a pull may name it, and that it does not count as preloaded: a failed pull may have left it.
func TestUnnamedImage(t *testing.T) {
	n, s := withStore(t, nil)
	end := hung(t, n, s, evilProxy, func() {})
	s.images = append(s.images, &runtimeapi.Image{Id: "id-loaded"}, &runtimeapi.Image{Id: "id-new"})
	n.want("by its ID", "bob", "id-loaded", corev1.PullNever, 0, "ErrImageNeverPull")
	end(status.Error(codes.Unknown, "disk full"))
	s.save(proxy, "id-loaded")
	n.want("loaded", "bob", proxy, corev1.PullNever, 0, "")
	n.want("the next pull", "ann", private, corev1.PullIfNotPresent, 1, "")
	n.want("the next pull", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
}

// TestCutOffPullsAreBounded checks that the pods of a namespace pull no further image with credentials when many such pulls
// are cut off, that this affects nobody else, and that a file of a pull does not grow with the images of the node.
func TestCutOffPullsAreBounded(t *testing.T) {
	n, s := withStore(t, nil)
	for i := range 100 {
		s.save(fmt.Sprintf("registry.test/app%d:1", i), fmt.Sprintf("sha256:%064d", i))
	}
	s.pulling = func(string) error { return status.Error(codes.Canceled, "cut off") }
	s.registry[forAll] = "id-all"
	before := n.images.pulls
	for i := range 3 * mostCutOff {
		wantFailure(t, n, fmt.Sprintf("quay.io/ann/x%d:1", i))
		wantFailure(t, n, fmt.Sprintf("evil.io/x%d:1", i)) // anonymous
		if i%mostCutOff == 0 {
			n.restart()
		}
	}
	files, err := os.ReadDir(n.runtime.records.pulls())
	if err != nil || len(files) != mostCutOff || len(n.runtime.records.intents) != mostCutOff {
		t.Errorf("%d files, %d pulls, %v", len(files), len(n.runtime.records.intents), err)
	}
	if got := n.images.pulls - before; got != 4*mostCutOff {
		t.Errorf("%d pulls", got)
	}
	if info, err := files[0].Info(); err != nil || info.Size() > 200 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	s.pulling = nil
	if _, err := n.start("ann", private, corev1.PullAlways); err == nil || !strings.Contains(err.Error(), `namespace "ann"`) {
		t.Errorf("%v", err)
	}
	n.want("one of them", "ann", "quay.io/ann/x1:1", corev1.PullAlways, 1, "")
	n.want("anonymous", "ann", coredns, corev1.PullAlways, 1, "")
	n.api.passwords[types.NamespacedName{Namespace: "cid", Name: "pull"}] = "of cid"
	n.want("another namespace", "cid", forAll, corev1.PullAlways, 1, "")
	s.save("quay.io/ann/x2:1", "id-late")
	n.want("late", "bob", "quay.io/ann/x2:1", corev1.PullNever, 0, "ErrImageNeverPull")
	n.endPulls()
	n.want("later", "ann", private, corev1.PullAlways, 1, "")
}

// TestRestartRenewsNoPull checks that the hour of a pull that was cut off does not begin again when the agent is restarted,
// unless the pull was under way again, or the clock was set back.
func TestRestartRenewsNoPull(t *testing.T) {
	for name, test := range map[string]struct {
		between func(t *testing.T, n *shared, s *imageStore)
		want    int
	}{
		"cut off": {func(*testing.T, *shared, *imageStore) {}, 0},
		"pulled again": {func(_ *testing.T, n *shared, _ *imageStore) {
			n.want("again", "ann", private, corev1.PullAlways, 1, "")
		}, 0},
		"under way again": {func(t *testing.T, n *shared, s *imageStore) {
			end := hung(t, n, s, private, func() {})
			t.Cleanup(func() { end(context.Canceled) })
		}, 1},
		"the clock was set back": {func(_ *testing.T, n *shared, _ *imageStore) { n.clock.SetTime(n.clock.Now().Add(-100 * time.Hour)) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			n, s := withStore(t, nil)
			s.pulling = func(string) error { return status.Error(codes.Canceled, "cut off") }
			wantFailure(t, n, private)
			s.pulling = nil
			n.clock.Step(oldestPull / 2)
			test.between(t, n, s)
			n.restart()
			n.clock.Step(oldestPull / 2)
			n.runtime.pruneImages(t.Context())
			if got := len(n.runtime.records.intents); got != test.want {
				t.Errorf("%d pulls are kept", got)
			}
			n.endPulls()
		})
	}
}

// TestPreloadedImages checks which images of a list count as preloaded, also if the list is older than other changes.
func TestPreloadedImages(t *testing.T) {
	tagged := func(ids ...string) (images []*runtimeapi.Image) {
		for _, id := range ids {
			images = append(images, &runtimeapi.Image{Id: id, RepoTags: []string{"quay.io/a/" + id + ":1"}})
		}
		return images
	}
	none := func(*testing.T, *imageRecords) {}
	found := func(ids ...string) func(*testing.T, *imageRecords) {
		return func(t *testing.T, r *imageRecords) {
			t.Helper()
			there, err := r.list(func() ([]*runtimeapi.Image, error) { return tagged(ids...), nil })
			if err := errors.Join(err, r.findPreloaded(there)); err != nil {
				t.Error(err)
			}
		}
	}
	pulled := func(id string) func(*testing.T, *imageRecords) {
		return func(t *testing.T, r *imageRecords) {
			t.Helper()
			if err := r.add(namedPull{image: id}, id, nil, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for name, test := range map[string]struct {
		before, during func(*testing.T, *imageRecords)
		listed         []*runtimeapi.Image
		want           []string
	}{
		"new":                     {none, none, tagged("a", "b"), []string{"a", "b"}},
		"known":                   {found("a"), none, tagged("a"), []string{"a"}},
		"gone":                    {found("a", "b"), none, tagged("b"), []string{"b"}},
		"found since":             {none, found("a"), tagged("b"), []string{"a", "b"}},
		"pulled":                  {pulled("a"), none, tagged("a", "b"), []string{"b"}},
		"found, and pulled since": {found("a"), pulled("a"), tagged("a"), nil},
		"found and pulled since": {none, func(t *testing.T, r *imageRecords) {
			found("a")(t, r)
			pulled("a")(t, r)
		}, tagged("a"), nil},
		"pulled, and pruned since": {pulled("a"), prunedTo(), tagged("a", "b"), nil},
		"pulled, and pruned before": {func(t *testing.T, r *imageRecords) {
			pulled("a")(t, r)
			prunedTo()(t, r)
		}, none, tagged("a"), []string{"a"}},
		"a pull may have brought it": {func(t *testing.T, r *imageRecords) {
			if _, err := r.begin("quay.io/a/a:1", "ann", imageList{}); err != nil {
				t.Error(err)
			}
		}, none, tagged("a", "b"), []string{"b"}},
		"unnamed":       {none, none, []*runtimeapi.Image{{Id: "a"}}, nil},
		"unnamed since": {found("a"), none, []*runtimeapi.Image{{Id: "a"}}, []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r, err := openImageRecords(dir)
			if err != nil {
				t.Fatal(err)
			}
			test.before(t, r)
			there, err := r.list(func() ([]*runtimeapi.Image, error) {
				test.during(t, r)
				return test.listed, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := r.findPreloaded(there); err != nil {
				t.Fatal(err)
			}
			next, err := openImageRecords(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := next.resume(time.Unix(0, 0)); err != nil {
				t.Fatal(err)
			}
			for when, records := range map[string]*imageRecords{"before": r, "after a restart": next} {
				if got := slices.Sorted(maps.Keys(records.preloaded)); !slices.Equal(got, test.want) {
					t.Errorf("%s: %q, want %q", when, got, test.want)
				}
			}
		})
	}
}

// prunedTo returns a function that removes the records of all images but these.
func prunedTo(images ...*runtimeapi.Image) func(*testing.T, *imageRecords) {
	return func(t *testing.T, r *imageRecords) {
		t.Helper()
		if err := r.prune(func() ([]*runtimeapi.Image, error) { return images, nil }, time.Unix(0, 0)); err != nil {
			t.Error(err)
		}
	}
}

// TestBrokenListOfPreloadedImages checks that an image that a pull may have brought is closed if the list of the preloaded
// images cannot be read, and that the list is written anew.
func TestBrokenListOfPreloadedImages(t *testing.T) {
	n, s := withStore(t, map[string]string{private: "id-new", coredns: "id-dns"})
	s.pulling = func(string) error { return status.Error(codes.Canceled, "cut off") }
	wantFailure(t, n, private)
	s.pulling = nil
	n.want("preloaded", "bob", private, corev1.PullNever, 0, "")
	if err := os.WriteFile(n.runtime.records.preloadedPath(), []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.want("broken", "bob", private, corev1.PullNever, 0, "ErrImageNeverPull")
	n.want("of no pull", "bob", coredns, corev1.PullNever, 0, "")
	n.runtime.pruneImages(t.Context())
	n.restart()
	if got := slices.Sorted(maps.Keys(n.runtime.records.preloaded)); !slices.Equal(got, []string{"id-dns"}) {
		t.Errorf("preloaded %q", got)
	}
}

// TestOpenImageThatIsPulledMeanwhile checks that each of two pulls of one image gets its name, if the image was open when the
// second began: with credentials, and anonymously.
func TestOpenImageThatIsPulledMeanwhile(t *testing.T) {
	n, s := withStore(t, nil)
	s.registry[private], s.registry[forAll] = "id-dns", "id-dns"
	first := hung(t, n, s, private, func() {})
	s.save(coredns, "id-dns")
	second := hung(t, n, s, forAll, func() {})
	s.save(private, "id-dns")
	first(nil)
	s.save(forAll, "id-dns")
	second(nil)
	n.want("the first", "ann", private, corev1.PullNever, 0, "")
	n.want("the second", "ann", forAll, corev1.PullNever, 0, "")

	n, s = withStore(t, nil)
	first = hung(t, n, s, alias, func() { s.pull(alias) })
	n.want("anonymous", "bob", coredns, corev1.PullIfNotPresent, 1, "")
	first(nil)
	n.want("the first", "bob", alias, corev1.PullNever, 0, "")
	n.want("the second", "bob", coredns, corev1.PullNever, 0, "")
}
