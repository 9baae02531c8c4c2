package ownerreferences

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
)

const (
	// BacklogLimit is how many objects of one namespace may wait for the collector before
	// references to owners that are not there are refused.
	BacklogLimit = 1000
	// backlogRetry is when a writer is told to come again, in seconds.
	backlogRetry = 1
)

// Backlog keeps a namespace from handing the collector references to absent owners
// faster than it can verify them. While more than BacklogLimit objects of the namespace
// wait, the owners of new references are looked for, and a write that names one that is
// not there is put off (429). References to owners that are there are never refused: a
// large deletion in a namespace stops nobody who works there. It is safe for concurrent use.
type Backlog struct {
	*admission.Handler
	waiting func(namespace string) int
	exists  Exists
}

// Exists tells whether there is an owner with the UID of the reference, of a dependent in
// a namespace, "" for none. It reads the owner as it is now.
type Exists func(ctx context.Context, kind schema.GroupKind, namespace string, ref metav1.OwnerReference) (bool, error)

var _ admission.ValidationInterface = (*Backlog)(nil)

// NewBacklog limits the backlog that waiting tells of.
func NewBacklog(waiting func(namespace string) int, exists Exists) (*Backlog, error) {
	if waiting == nil || exists == nil {
		return nil, errors.New("the limit of the backlog needs to know the backlog and the owners")
	}
	return &Backlog{admission.NewHandler(admission.Create, admission.Update), waiting, exists}, nil
}

// Validate implements admission.ValidationInterface.
func (p *Backlog) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	w, ok := writeOf(a)
	if !ok || len(w.Wants) == 0 {
		return nil
	}
	backlog := -1
	for _, ref := range w.Wants {
		if _, had := find(w.Old, ref.UID); had {
			continue
		}
		if backlog < 0 {
			backlog = p.waiting(w.Namespace)
		}
		if backlog <= BacklogLimit {
			return nil
		}
		kind, _, err := kindOf(ref)
		if err != nil {
			continue // the form of references is the registry's to check
		}
		there, err := p.exists(ctx, kind, w.Namespace, ref)
		if err != nil {
			return fmt.Errorf("look for the owner %s %s: %w", kind, ref.Name, err)
		}
		if !there {
			return apierrors.NewTooManyRequests(fmt.Sprintf("%d objects of namespace %q wait for the garbage collector, and the owner %s %s (uid %s) of this one is not there: try again later",
				backlog, w.Namespace, kind, ref.Name, ref.UID), backlogRetry)
		}
	}
	return nil
}
