package agent

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/node/scheduler/placement"
)

// TestRejectionsOfANodeAreSpread checks that a controller that replaces rejected pods at once does not create
// thousands: a node rejects some at once, and then ten in a second. Nodes do not wait for one another.
func TestRejectionsOfANodeAreSpread(t *testing.T) {
	a, now := newAdmissions(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	made := 0
	reject := func(node string) time.Duration {
		made++
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(made))}, Spec: corev1.PodSpec{NodeName: node}}
		if a.try(pod, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}) == nil {
			t.Fatal("a node without resources admits a pod")
		}
		return max(0, a.reject(pod, placement.Rejection{Reason: "r"}, now).At.Sub(now))
	}
	for range 2 {
		for i := range 30 {
			if got, want := reject("n"), time.Duration(max(0, i-19))*100*time.Millisecond; got != want {
				t.Errorf("rejection %d comes after %s, want %s", i+1, got, want)
			}
		}
		if got := reject("other"); got != 0 {
			t.Errorf("another node waits %s", got)
		}
		now = now.Add(time.Minute)
	}
	if got := len(a.verdicts); got != made {
		t.Errorf("%d pods are remembered, want %d", got, made)
	}
	for uid := range a.verdicts {
		a.forget(uid)
	}
	if len(a.verdicts) != 0 {
		t.Errorf("%d pods are remembered that are gone", len(a.verdicts))
	}
}
