package protected

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// mostPermitted is the number of UIDs that a Confirming remembers itself.
const mostPermitted = 1 << 12

// Deleting is a deletion that may need a confirmation (R32).
type Deleting struct {
	Resource schema.GroupResource
	// Object is the object that is deleted; nil for a collection.
	Object metav1.Object
	// All are the objects of a collection; nil for all of the resource in the namespace.
	All []types.UID
	// Namespace has the collection; empty for all namespaces.
	Namespace string
	// Orphans is set if the dependents of the object stay.
	Orphans bool
	// DryRun is set if nothing will be deleted.
	DryRun bool
}

// Permits remember for a day, for all servers, which objects were deleted although that needed a confirmation: their
// dependents go with them. A name beside UIDs is that of a kind all of whose objects go (permitOfKind). Permits must be safe
// for concurrent use.
type Permits interface {
	Permit(ctx context.Context, uid types.UID) error
	IsPermitted(ctx context.Context, uid types.UID) (bool, error)
}

// Confirming decides which deletions need a confirmation (R32). It is safe for concurrent use.
//
// A request is decided by its closure. A collector is not asked for reasons: an object that it deletes has owners that are
// absent or are being deleted, and everything that these take with them is counted as one deletion. It passes if that is
// within the limits, or if the deletion of one of these owners was permitted although it was not. So owner references that
// are changed before or after a deletion do not get round the limits.
type Confirming struct {
	Limits   protection.Limits
	Closures *Closures
	// CatchUp waits until Closures have the objects that were written before the call.
	CatchUp func(context.Context) error
	Permits Permits
	Now     func() time.Time
	// Collector is the user name of a collector, besides the known ones; empty for none.
	Collector string

	permitted *lru.Cache // of UIDs that Permits have
}

// NewConfirming returns a Confirming that remembers permits itself, too. All fields but Collector are required.
func NewConfirming(c Confirming) *Confirming {
	c.permitted = lru.New(mostPermitted)
	return &c
}

// Check returns the refusal of a deletion by a user; by the server itself, if the name is empty.
func (c *Confirming) Check(ctx context.Context, user string, d Deleting) error {
	switch {
	case user == "" || c.Limits.Exempts(user):
		return c.permit(ctx, d, c.rootsOf(ctx, d)) // the server itself deletes the instances of a CustomResourceDefinition
	case protection.IsCascade(user) || user == c.Collector:
		return c.cascade(ctx, d)
	default:
		return c.request(ctx, d)
	}
}

// request returns the refusal of a deletion that a user requests.
func (c *Confirming) request(ctx context.Context, d Deleting) error {
	roots := c.rootsOf(ctx, d)
	if err := c.CatchUp(ctx); err != nil {
		return err
	}
	closure := c.Closures.Of(roots, c.Limits)
	if !c.Limits.Exceeded(closure) {
		return nil
	}
	if d.Object == nil {
		return c.Limits.Refuse(closure, d.Resource, d.Namespace, "")
	}
	if !protection.Confirms(d.Object, closure, c.Now()) {
		return c.Limits.Refuse(closure, d.Resource, d.Object.GetNamespace(), d.Object.GetName())
	}
	return c.permit(ctx, d, roots)
}

// cascade returns the refusal of a deletion by a collector.
func (c *Confirming) cascade(ctx context.Context, d Deleting) error {
	roots := c.rootsOf(ctx, d)
	if d.Object == nil || c.Closures.IsTerminating(d.Object.GetNamespace()) {
		return nil
	}
	gone, names := c.Closures.Gone(ownersOf(d.Object)), kindsOfOwners(d.Object)
	together := roots
	together.UIDs = append(gone, roots.UIDs...)
	if !c.Closures.Exceeds(together, c.Limits) {
		return nil
	}
	for _, owner := range gone {
		names = append(names, types.UID(owner))
	}
	for _, name := range names {
		wasPermitted, err := c.wasPermitted(ctx, name)
		if err != nil {
			return fmt.Errorf("whether the deletion of its owner was confirmed: %w", err)
		}
		if wasPermitted {
			return c.permit(ctx, d, roots)
		}
	}
	return c.Limits.RefuseCascade(c.Closures.Of(together, c.Limits), d.Resource, d.Object.GetNamespace(), d.Object.GetName())
}

// rootsOf returns what a deletion begins with.
func (c *Confirming) rootsOf(ctx context.Context, d Deleting) ownership.Roots {
	if d.Object == nil && d.All == nil {
		kind, isServed := c.Closures.KindOf(ctx, d.Resource)
		if !isServed {
			return ownership.Roots{}
		}
		return ownership.Roots{Kind: kind, Namespace: d.Namespace}
	}
	if d.Object == nil {
		roots := ownership.Roots{UIDs: make([]ownership.UID, len(d.All))}
		for i, uid := range d.All {
			roots.UIDs[i] = ownership.UID(uid)
		}
		return roots
	}
	roots := ownership.Roots{UIDs: []ownership.UID{ownership.UID(d.Object.GetUID())}, Orphans: d.Orphans}
	switch d.Resource {
	case schema.GroupResource{Resource: "namespaces"}:
		roots.Namespace = d.Object.GetName()
	case schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:
		roots.Kind, _ = c.Closures.KindOf(ctx, schema.ParseGroupResource(d.Object.GetName()))
	}
	return roots
}

// kindsOfOwners returns the names of the permits for the kinds of an object's owners. kube-apiserver asks nobody when it
// deletes the instances of a CustomResourceDefinition whose deletion was permitted.
func kindsOfOwners(m metav1.Object) (names []types.UID) {
	for _, r := range m.GetOwnerReferences() {
		group, _, _ := strings.Cut(r.APIVersion, "/")
		if group != r.APIVersion { // else it is built in
			names = append(names, permitOfKind(ownership.Kind{Group: group, Kind: r.Kind}))
		}
	}
	return names
}

// permitOfKind returns the name of the permit to delete all objects of a kind.
func permitOfKind(kind ownership.Kind) types.UID { return types.UID("kind." + kind.String()) }

func ownersOf(m metav1.Object) []ownership.UID {
	var owners []ownership.UID
	for _, r := range m.GetOwnerReferences() {
		owners = append(owners, ownership.UID(r.UID))
	}
	return owners
}

// permit remembers the deletion of an object that needed a confirmation, before it happens: it may have gone when the
// collector deletes its dependents.
func (c *Confirming) permit(ctx context.Context, d Deleting, roots ownership.Roots) error {
	if d.Object == nil || d.DryRun || !c.Closures.Exceeds(roots, c.Limits) {
		return nil
	}
	names := []types.UID{d.Object.GetUID()}
	if roots.Kind != (ownership.Kind{}) {
		names = append(names, permitOfKind(roots.Kind))
	}
	for _, name := range names {
		if err := c.Permits.Permit(ctx, name); err != nil {
			return fmt.Errorf("remember that the deletion was confirmed: %w", err)
		}
		c.permitted.Add(name, nil)
	}
	return nil
}

// wasPermitted reports whether the deletion of an object that needed a confirmation was permitted.
func (c *Confirming) wasPermitted(ctx context.Context, uid types.UID) (bool, error) {
	if _, isKnown := c.permitted.Get(uid); isKnown {
		return true, nil
	}
	isPermitted, err := c.Permits.IsPermitted(ctx, uid)
	if isPermitted {
		c.permitted.Add(uid, nil)
	}
	return isPermitted, err
}
