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
	// MaxBacklog is the number of objects of a namespace that may wait for the collector before
	// new references to absent owners are refused.
	MaxBacklog = 1000
	// backlogRetry is the Retry-After of a refusal, in seconds.
	backlogRetry = 1
)

// BacklogLimit is an admission plug-in that keeps a namespace from creating references to absent owners
// faster than the collector can verify them. While more than MaxBacklog objects of the namespace wait, it
// reads the owners of new references, and refuses a write that names an absent one with 429. It never
// refuses references to existing owners: a large deletion in a namespace does not stop other work there. It
// is safe for concurrent use.
type BacklogLimit struct {
	*admission.Handler
	backlog func(namespace string) int
	exists  Exists
}

// Exists reports whether the owner that a reference names exists with the reference's UID. namespace is the
// dependent's, "" for none. Exists reads the owner live.
type Exists func(ctx context.Context, kind schema.GroupKind, namespace string, ref metav1.OwnerReference) (bool, error)

var _ admission.ValidationInterface = (*BacklogLimit)(nil)

// NewBacklogLimit returns a BacklogLimit. backlog returns how many objects of a namespace wait
// for the collector.
func NewBacklogLimit(backlog func(namespace string) int, exists Exists) (*BacklogLimit, error) {
	if backlog == nil || exists == nil {
		return nil, errors.New("ownerreferences: backlog and exists are required")
	}
	return &BacklogLimit{admission.NewHandler(admission.Create, admission.Update), backlog, exists}, nil
}

// Validate implements admission.ValidationInterface.
func (p *BacklogLimit) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	w, ok := writeOf(a)
	if !ok || len(w.Wants) == 0 {
		return nil
	}
	backlog := -1
	// OwnerReferencesPermissionEnforcement refuses more references, if it is not disabled.
	for _, ref := range w.Wants[:min(len(w.Wants), MaxReferences)] {
		if _, had := find(w.Old, ref.UID); had {
			continue
		}
		if backlog < 0 {
			backlog = p.backlog(w.Namespace)
		}
		if backlog <= MaxBacklog {
			return nil
		}
		kind, _, err := kindOf(ref)
		if err != nil {
			continue // the registry validates the form of references
		}
		exists, err := p.exists(ctx, kind, w.Namespace, ref)
		if err != nil {
			return fmt.Errorf("look up owner %s %s: %w", kind, ref.Name, err)
		}
		if !exists {
			return apierrors.NewTooManyRequests(fmt.Sprintf("%d objects in namespace %q are waiting for the garbage collector, and the owner %s %s (uid %s) of this object does not exist: try again later",
				backlog, w.Namespace, kind, ref.Name, ref.UID), backlogRetry)
		}
	}
	return nil
}
