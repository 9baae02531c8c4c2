package controller

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// Refusals counts, for each owner, how often deletions of its present pods were refused. It is safe for concurrent use.
type Refusals struct {
	mu      sync.Mutex
	byOwner map[cache.ObjectName]map[types.UID]int // guarded by mu
}

// NewRefusals returns Refusals that are empty.
func NewRefusals() *Refusals {
	return &Refusals{byOwner: map[cache.ObjectName]map[types.UID]int{}}
}

// IsRefusal reports whether an error is the server's decision about the object, so that the request may be refused again.
func IsRefusal(err error) bool {
	return err != nil && !isUnanswered(err) && !isStaleCache(err) && !isPanic(err)
}

// IsNotFound reports whether the API server found no object. A webhook that denies a request may choose the same code: the
// object is there.
func IsNotFound(err error) bool { return refusal.ServerAnswers(err, apierrors.IsNotFound) }

// IsConflict reports whether the API server found another version of an object. A webhook that denies a request may choose
// the same code.
func IsConflict(err error) bool { return refusal.ServerAnswers(err, apierrors.IsConflict) }

// IsAlreadyExists reports whether the API server found an object of that name. A webhook that denies a request may choose the
// same reason.
func IsAlreadyExists(err error) bool { return refusal.ServerAnswers(err, apierrors.IsAlreadyExists) }

// IsNamespaceTerminating reports whether the API server creates nothing in a namespace because it is being deleted. A webhook
// that denies a request may choose the same cause, and may allow the next request.
func IsNamespaceTerminating(err error) bool {
	return refusal.ServerAnswers(err, func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) })
}

// Add counts a refusal.
func (r *Refusals) Add(owner cache.ObjectName, pod types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byOwner[owner] == nil {
		r.byOwner[owner] = map[types.UID]int{}
	}
	r.byOwner[owner][pod]++
}

// Forget drops the refusals of an owner that is gone.
func (r *Refusals) Forget(owner cache.ObjectName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byOwner, owner)
}

// Present returns the number of refusals for each of the given pods, which are all those of an owner. It forgets other pods.
func (r *Refusals) Present(owner cache.ObjectName, pods map[types.UID]bool) map[types.UID]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byOwner[owner], func(pod types.UID, _ int) bool {
		_, exists := pods[pod]
		return !exists
	})
	if len(r.byOwner[owner]) == 0 {
		delete(r.byOwner, owner)
	}
	return maps.Clone(r.byOwner[owner])
}
