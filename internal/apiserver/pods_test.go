package apiserver_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func grace(seconds int64) *metav1.DeleteOptions {
	return &metav1.DeleteOptions{GracePeriodSeconds: &seconds}
}

// endsIn checks that the grace period of a pod ends that many seconds from now.
func endsIn(t *testing.T, pod *object, seconds int64) {
	t.Helper()
	if got := pod.GetDeletionGracePeriodSeconds(); got == nil || *got != seconds {
		t.Errorf("the grace period is %v, want %d", got, seconds)
	}
	end := pod.GetDeletionTimestamp()
	if end == nil {
		t.Fatal("it has no deletionTimestamp")
	}
	if off := time.Until(end.Time) - time.Duration(seconds)*time.Second; off > time.Second || off < -eventually.Patience {
		t.Errorf("the grace period of %d s ends in %s", seconds, time.Until(end.Time))
	}
}

// AS-04: a pod on a node is removed by the node agent, with a DELETE with grace period 0.
func TestR18_GracefulPod(t *testing.T) {
	s := sharedServer(t)
	c := s.pods(t, s.namespace(t))
	created := c.create("a")
	marked := c.mustRemove("a", nil)
	endsIn(t, marked, 30)
	if marked.GetGeneration() != created.GetGeneration()+1 {
		t.Errorf("generation %d after %d", marked.GetGeneration(), created.GetGeneration())
	}
	again := c.mustRemove("a", nil)
	if again.GetResourceVersion() != marked.GetResourceVersion() {
		t.Errorf("the second DELETE has changed %v to %v", marked, again)
	}
	last := c.mustRemove("a", grace(0))
	if isStatus(last) || last.GetUID() != created.GetUID() {
		t.Errorf("the answer is %v, want the pod as it was last", last.Object)
	}
	if left := c.get("a"); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

// A pod that is not bound to a node is removed at once.
func TestR18_UnboundPod(t *testing.T) {
	s := sharedServer(t)
	c := s.pods(t, s.namespace(t))
	c.content = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}}}
	c.create("a")
	c.mustRemove("a", grace(60))
	if left := c.get("a"); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

// AS-15: the grace period can only be shortened; a negative one is 1 s.
func TestR17_GraceShrinks(t *testing.T) {
	s := sharedServer(t)
	c := s.pods(t, s.namespace(t))
	c.create("a")
	for _, step := range []struct{ asked, want int64 }{{60, 60}, {40, 40}, {50, 40}, {10, 10}, {-5, 1}, {30, 1}} {
		before := c.get("a").GetDeletionTimestamp()
		answer := c.mustRemove("a", grace(step.asked))
		endsIn(t, answer, step.want)
		if before != nil && before.Before(answer.GetDeletionTimestamp()) {
			t.Errorf("asked for %d s: the end moves from %s to %s", step.asked, before, answer.GetDeletionTimestamp())
		}
	}
	c.create("negative")
	endsIn(t, c.mustRemove("negative", grace(-1)), 1)
}

// AS-02: the precondition applies to the DELETE as a whole, not to each of its steps.
func TestR17_GraceAndPreconditions(t *testing.T) {
	s := sharedServer(t)
	c := s.pods(t, s.namespace(t))
	o := c.create("a")
	for _, seconds := range []int64{30, 0} {
		options := grace(seconds)
		options.Preconditions = &metav1.Preconditions{UID: new(o.GetUID()), ResourceVersion: new(o.GetResourceVersion())}
		o = c.mustRemove("a", options)
	}
	if left := c.get("a"); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

// AS-04: finalizers and the grace period each hold a pod, in whichever order they end.
func TestR18_GraceAndFinalizers(t *testing.T) {
	s := sharedServer(t)
	c := s.pods(t, s.namespace(t))
	release := func(t *testing.T) {
		t.Helper()
		if _, err := c.patch("a", types.MergePatchType, mergeFinalizers()); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("finalizers first", func(t *testing.T) {
		c.create("a", foreign)
		c.mustRemove("a", nil)
		release(t)
		left := c.get("a")
		if left == nil {
			t.Fatal("gone before its grace period is over")
		}
		endsIn(t, left, 30)
		c.mustRemove("a", grace(0))
		if left := c.get("a"); left != nil {
			t.Errorf("it still exists: %v", left)
		}
	})
	t.Run("grace first", func(t *testing.T) {
		c.create("a", foreign)
		c.mustRemove("a", policy(metav1.DeletePropagationForeground))
		ended := c.mustRemove("a", grace(0))
		if got := ended.GetFinalizers(); !slices.Equal(got, []string{foreign, foreground}) {
			t.Fatalf("finalizers %v", got)
		}
		endsIn(t, ended, 0)
		release(t)
		if left := c.get("a"); left != nil {
			t.Errorf("it still exists: %v", left)
		}
	})
}

// A repeated DELETE removes the collector's finalizer also during the grace period.
func TestR19_PolicyWhileGraceLasts(t *testing.T) {
	s := sharedServer(t)
	c := s.pods(t, s.namespace(t))
	c.create("a")
	c.mustRemove("a", policy(metav1.DeletePropagationForeground))
	answer := c.mustRemove("a", policy(metav1.DeletePropagationBackground))
	if got := answer.GetFinalizers(); len(got) > 0 {
		t.Errorf("finalizers %v", got)
	}
	endsIn(t, answer, 30)
}
