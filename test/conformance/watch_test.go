package conformance

import (
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// removals records at which revisions objects of a namespace were removed.
type removals struct {
	t testing.TB

	mu   sync.Mutex
	at   map[types.UID]int64 // guarded by mu
	fail error               // guarded by mu; why the account is not complete
}

// watch records the removals of objects of some kinds from now on, in the test's namespace, or of
// cluster-scoped ones anywhere. The revisions of one server are shared by all its kinds.
func (w *cluster) watch(kinds ...kind) *removals {
	w.t.Helper()
	r := &removals{t: w.t, at: map[types.UID]int64{}}
	for _, k := range kinds {
		objects := w.objects(object{kind: k, space: w.spaceOf(k)})
		list, err := objects.List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		events, err := objects.Watch(w.t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			w.t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for event := range events.ResultChan() {
				r.note(event)
			}
		}()
		w.t.Cleanup(func() {
			events.Stop()
			<-ended
		})
	}
	return r
}

func (r *removals) note(event watch.Event) {
	o, ok := event.Object.(*metav1.PartialObjectMetadata)
	if event.Type != watch.Deleted || !ok {
		return
	}
	revision, err := strconv.ParseInt(o.ResourceVersion, 10, 64)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.at[o.UID], r.fail = revision, err
}

// of waits until the removal of an object is recorded, and returns the revision.
func (r *removals) of(o object) int64 {
	r.t.Helper()
	var at int64
	eventually.Agrees(r.t, func() string {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.fail != nil {
			r.t.Fatal(r.fail)
		}
		if at = r.at[o.uid]; at == 0 {
			return o.String() + ": no DELETED event"
		}
		return ""
	})
	return at
}

// goneBefore asserts that an owner was removed after its dependents.
func (r *removals) goneBefore(owner object, dependents ...object) {
	r.t.Helper()
	last := r.of(owner)
	for _, d := range dependents {
		if at := r.of(d); at > last {
			r.t.Errorf("%s was removed at revision %d, after %s at %d", d, at, owner, last)
		}
	}
}
