package probe

import (
	"fmt"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

// Removals records the revisions at which objects of a namespace were removed. It is safe for
// concurrent use.
type Removals struct {
	space *Space
	log   *removalLog
}

type removalLog struct {
	mu   sync.Mutex
	at   map[types.UID]int64 // guarded
	fail error               // guarded; the reason why the record is incomplete
}

// In returns the same record, which reports its failures to w: the steps of Differs have another T.
func (r *Removals) In(w *Space) *Removals { return &Removals{w, r.log} }

// Watch records the removals of objects of some kinds from now on, in the check's namespace or, for
// cluster-scoped kinds, in the cluster. All kinds of a server share one sequence of revisions.
func (w *Space) Watch(kinds ...Kind) *Removals {
	w.T.Helper()
	log := &removalLog{at: map[types.UID]int64{}}
	for _, k := range kinds {
		objects := w.Objects(Object{Kind: k, Namespace: w.namespaceOf(k)})
		list, err := objects.List(w.T.Context(), metav1.ListOptions{})
		if err != nil {
			w.T.Fatal(err)
		}
		// The server ends the watch of a client that falls behind; the RetryWatcher resumes it.
		events, err := watchtools.NewRetryWatcherWithContext(w.T.Context(), list.ResourceVersion, &cache.ListWatch{WatchFuncWithContext: objects.Watch})
		if err != nil {
			w.T.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for event := range events.ResultChan() {
				log.note(event)
			}
		}()
		w.T.Cleanup(func() {
			events.Stop()
			<-ended
		})
	}
	return &Removals{w, log}
}

func (r *removalLog) note(event watch.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if event.Type == watch.Error {
		r.fail = apierrors.FromObject(event.Object)
		return
	}
	o, ok := event.Object.(*metav1.PartialObjectMetadata)
	if event.Type != watch.Deleted || !ok {
		return
	}
	revision, err := strconv.ParseInt(o.ResourceVersion, 10, 64)
	if err != nil {
		r.fail = fmt.Errorf("revisions of %s have no order: %w", o.Name, err)
	}
	r.at[o.UID] = revision
}

// Of waits until the removal of an object is recorded, and returns its revision.
func (r *Removals) Of(o Object) int64 {
	w := r.space
	w.T.Helper()
	var at int64
	w.Until(fmt.Sprintf("a DELETED event of %s", o), func() string {
		r.log.mu.Lock()
		defer r.log.mu.Unlock()
		if r.log.fail != nil {
			w.T.Fatal(r.log.fail)
		}
		if at = r.log.at[o.UID]; at == 0 {
			return "there is none"
		}
		return ""
	})
	return at
}

// GoneBefore asserts that an owner was removed after its dependents.
func (r *Removals) GoneBefore(owner Object, dependents ...Object) {
	t := r.space.T
	t.Helper()
	last := r.Of(owner)
	for _, d := range dependents {
		if at := r.Of(d); at > last {
			t.Errorf("want %s to be removed before %s; it was at revision %d, after %d", d, owner, at, last)
		}
	}
}
