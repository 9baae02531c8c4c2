package preview

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/histories"
)

// TestRacesAreNamed: an object that ends differently in one of many additional schedules is called a race.
func TestRacesAreNamed(t *testing.T) {
	const others = 100
	racing, told := 0, 0
	histories.CheckSame(t, 1, 200, 1, func(t *rapid.T) {
		c := newRandomCluster(t)
		requests := c.requestsWith("", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
		w, options := New(c.Inventory), randomOptions()
		named := map[ownership.UID]bool{}
		for _, o := range w.Predict(requests, options).Outcomes {
			named[o.Object.UID] = o.Race
			if told++; o.Race {
				racing++
			}
		}
		first, races := w.play(requests, options, schedule{}), map[ownership.UID]bool{}
		for n := range uint64(others) {
			first.compare(w.play(requests, options, randomSchedule(1000+n)), races)
		}
		for uid := range races {
			if !named[uid] {
				t.Fatalf("what becomes of %s depends on the schedule of %v, and is not called a race, in\n%s", uid, requests, c)
			}
		}
	})
	if racing == 0 || racing > told/4 {
		t.Errorf("%d of %d outcomes are called a race", racing, told)
	}
	t.Logf("%d of %d outcomes are called a race", racing, told)
}
