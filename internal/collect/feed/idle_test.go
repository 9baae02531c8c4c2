package feed_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// A feed that ends at rest, and is run again, resumes its watches: later deletions arrive as events, and nothing is
// listed.
func TestR3_RunAgainContinuesTheWatches(t *testing.T) {
	s := newServer(kind{version: "v1", resource: "pods", kind: "Pod"}, kind{version: "v1", resource: "secrets", kind: "Secret"})
	s.put("pods", metav1.ObjectMeta{Name: "a", Namespace: "default", UID: "a"})
	synctest.Test(t, func(t *testing.T) {
		f, r := s.feed(t, feed.Config{}), &recorder{}
		run := func(during func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				f.Run(ctx, r)
			}()
			if err := f.WaitForInitialSync(ctx); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			during()
			cancel()
			<-ended
		}
		if why := f.Obstacle(); why == "" {
			t.Error("there is no obstacle to the end of a feed that was never run")
		}
		run(func() {
			got := r.take("Pod", "Secret")
			slices.Sort(got)
			check(t, "first", got, "replace Pod [a]", "replace Secret []", "scope Pod 1", "scope Secret 1")
		})
		if why := f.Obstacle(); why != "" {
			t.Errorf("an obstacle: %s", why)
		}
		revision, err := f.Probe(t.Context())
		if shared, err := f.RevisionsAreShared(t.Context(), revision); !shared || err != nil {
			t.Errorf("the revisions are shared: %v, %v", shared, err)
		}
		if err != nil || revision != 101 {
			t.Errorf("Probe = %d, %v", revision, err)
		}
		time.Sleep(time.Minute)
		run(func() {
			check(t, "resumed", r.take("Pod", "Secret", "a", "epoch"))
			s.remove("pods", "a")
			synctest.Wait()
			check(t, "deleted", r.take("Pod", "Secret", "a", "epoch"), "forget a 102")
		})
		f.Distrust()
		if why := f.Obstacle(); !strings.Contains(why, "history") {
			t.Errorf("the obstacle is %q", why)
		}
		run(func() {
			check(t, "another history", r.take("epoch", "Pod"), "epoch", "replace Pod []")
		})
	})
}
