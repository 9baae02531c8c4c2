package protected

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

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

// PermittedFor is how long Permits are kept: a cascade may wait for finalizers.
const PermittedFor = 24 * time.Hour

// Permits are shared by all servers, and each is kept for PermittedFor. They must be safe for concurrent use.
type Permits interface {
	// Put keeps a permit under a name, which consists of letters, digits and hyphens.
	Put(ctx context.Context, name string, permit []byte) error
	// Names returns the names of all permits.
	Names(ctx context.Context) ([]string, error)
	// Get returns a permit; nil if it is kept no longer.
	Get(ctx context.Context, name string) ([]byte, error)
}

// Confirming decides which deletions need a confirmation (R32). It is safe for concurrent use.
//
// A request is decided by its closure. A collector is not asked for reasons: an object that it deletes has owners that are
// absent or are being deleted, and everything that these take with them is counted as one deletion. It passes if that is
// within the limits, or if the object was in the closure of a larger deletion that was permitted. So owner references that
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

	permitted *permitted
}

// NewConfirming returns a Confirming that remembers permits itself, too. All fields but Collector are required.
func NewConfirming(c Confirming) *Confirming {
	c.permitted = newPermitted(c.Permits, c.Now)
	return &c
}

// Check returns the refusal of a deletion by a user; by the server itself, if the name is empty.
func (c *Confirming) Check(ctx context.Context, user string, d Deleting) error {
	switch {
	case user == "":
		return nil // the instances of a CustomResourceDefinition whose deletion was permitted
	case c.Limits.Exempts(user):
		return c.exempt(ctx, d)
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
	uids := c.Closures.UIDs(roots) // what is permitted is what was confirmed, and not what has come since
	if !protection.Confirms(d.Object, closure, c.Now()) || protection.DigestOf(uids) != closure.Digest {
		return c.Limits.Refuse(closure, d.Resource, d.Object.GetNamespace(), d.Object.GetName())
	}
	return c.permit(ctx, d, uids)
}

// cascade returns the refusal of a deletion by a collector.
func (c *Confirming) cascade(ctx context.Context, d Deleting) error {
	if d.Object == nil {
		return c.contents(ctx, d)
	}
	if c.Closures.IsTerminating(d.Object.GetNamespace()) {
		return nil
	}
	roots := c.rootsOf(ctx, d)
	together := roots
	together.UIDs, together.Beside = append(c.Closures.Gone(ownersOf(d.Object)), roots.UIDs...), ownership.UID(d.Object.GetUID())
	if !c.Closures.Exceeds(together, c.Limits) {
		return nil
	}
	isPermitted, err := c.permitted.has(ctx, string(d.Object.GetUID()))
	if err != nil {
		return fmt.Errorf("whether the deletion was confirmed: %w", err)
	}
	if isPermitted {
		return nil
	}
	return c.Limits.RefuseCascade(c.Closures.Of(together, c.Limits), d.Resource, d.Object.GetNamespace(), d.Object.GetName())
}

// contents returns the refusal of a collection that a collector deletes: the contents of a namespace whose deletion was
// permitted, or a request like that of any other user.
func (c *Confirming) contents(ctx context.Context, d Deleting) error {
	if c.Closures.IsTerminating(d.Namespace) {
		return nil
	}
	if err := c.CatchUp(ctx); err != nil {
		return err
	}
	if c.Closures.IsTerminating(d.Namespace) {
		return nil
	}
	return c.request(ctx, d)
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

func ownersOf(m metav1.Object) []ownership.UID {
	var owners []ownership.UID
	for _, r := range m.GetOwnerReferences() {
		owners = append(owners, ownership.UID(r.UID))
	}
	return owners
}

// exempt permits a deletion by a controller, if it would need a confirmation and takes other objects with it: a permit is for
// their collector.
func (c *Confirming) exempt(ctx context.Context, d Deleting) error {
	if d.Object == nil {
		return nil
	}
	roots := c.rootsOf(ctx, d)
	if err := c.CatchUp(ctx); err != nil { // a dependent that is not observed yet would have no permit, and stay
		return err
	}
	if !c.Closures.Exceeds(roots, c.Limits) {
		return nil
	}
	uids := c.Closures.UIDs(roots)
	if len(uids) <= 1 {
		return nil
	}
	return c.permit(ctx, d, uids)
}

// permit remembers the objects of a deletion before it happens: its root may have gone when the collector deletes the
// others.
func (c *Confirming) permit(ctx context.Context, d Deleting, uids []string) error {
	if d.DryRun {
		return nil
	}
	if err := c.permitted.add(ctx, string(d.Object.GetUID()), uids); err != nil {
		return fmt.Errorf("remember that the deletion was confirmed: %w", err)
	}
	return nil
}
