package apiserver

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/lru"

	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/storemetadata"
	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

const (
	// permittedGroup is the group of presences in the store whose names are the UIDs of objects that were deleted although
	// that needed a confirmation: their dependents go with them.
	permittedGroup = "confirmed"
	// permittedFor is how long that is remembered: a cascade may wait for finalizers.
	permittedFor = 24 * time.Hour
	// mostPermitted is the number of UIDs that the process remembers itself.
	mostPermitted = 1 << 12
)

// confirmations decides which deletions need a confirmation (R32).
//
// A request is decided by its closure. A collector is not asked for reasons: an object that it deletes has owners that are
// absent or are being deleted, and everything that these take with them is counted as one deletion. It passes if that is
// within the limits, or if the deletion of one of these owners was permitted although it was not. So owner references that
// are changed before or after a deletion do not get round the limits.
type confirmations struct {
	limits   protection.Limits
	closures *protected.Closures
	store    *etcd.Store
	now      func() time.Time
	// permitted are the UIDs of permittedGroup that this process has written or read.
	permitted *lru.Cache
}

// newConfirmations returns nil if the server has no limits.
func newConfirmations(c completedConfig, f *foundation, source *storemetadata.Source) *confirmations {
	if !c.Confirm.Any() {
		return nil
	}
	// The server reads its own store. No rules of RBAC are known yet when it begins.
	self := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	client := source.Client(self, f.objects)
	return &confirmations{
		limits: c.Confirm, store: c.Store, now: c.Now, permitted: lru.New(mostPermitted),
		closures: protected.NewClosures(f.client.Discovery(), client, c.Log),
	}
}

// run observes the objects until ctx ends, and returns when all that can be read were observed.
func (c *confirmations) run(ctx context.Context) error {
	if c == nil {
		return nil
	}
	_, _ = c.store.Newest(ctx) // from now on, it knows all writes: the observations begin later
	go c.closures.Run(ctx)
	return c.closures.WaitForInitialSync(ctx)
}

// check is deleteflow.Config.Confirmed.
func (c *confirmations) check(ctx context.Context, d deleteflow.Deleting) error {
	who, isUser := genericrequest.UserFrom(ctx)
	switch {
	case !isUser || c.limits.Exempts(who.GetName()):
		return c.permit(ctx, d, c.rootsOf(ctx, d)) // the server itself deletes the instances of a CustomResourceDefinition
	case protection.IsCascade(who.GetName()):
		return c.cascade(ctx, d)
	default:
		return c.request(ctx, d)
	}
}

// request returns the refusal of a deletion that a user requests.
func (c *confirmations) request(ctx context.Context, d deleteflow.Deleting) error {
	newest, err := c.store.Newest(ctx)
	if err != nil {
		return fmt.Errorf("whether the deletion needs a confirmation: %w", err)
	}
	roots := c.rootsOf(ctx, d)
	if err := c.closures.CatchUp(ctx, newest.Writes); err != nil {
		return err
	}
	closure := c.closures.Of(roots, c.limits)
	if !c.limits.Exceeded(closure) {
		return nil
	}
	if d.Object == nil {
		return c.limits.Refuse(closure, d.Resource, d.Namespace, "")
	}
	if !protection.Confirms(d.Object, closure, c.now()) {
		return c.limits.Refuse(closure, d.Resource, d.Object.GetNamespace(), d.Object.GetName())
	}
	return c.permit(ctx, d, roots)
}

// cascade returns the refusal of a deletion by a collector.
func (c *confirmations) cascade(ctx context.Context, d deleteflow.Deleting) error {
	roots := c.rootsOf(ctx, d)
	if d.Object == nil || c.closures.IsTerminating(d.Object.GetNamespace()) {
		return nil
	}
	gone := c.closures.Gone(ownersOf(d.Object))
	together := roots
	together.UIDs = append(gone, roots.UIDs...)
	if !c.closures.Exceeds(together, c.limits) {
		return nil
	}
	for _, owner := range gone {
		wasPermitted, err := c.wasPermitted(ctx, owner)
		if err != nil {
			return fmt.Errorf("whether the deletion of its owner was confirmed: %w", err)
		}
		if wasPermitted {
			return c.permit(ctx, d, roots)
		}
	}
	return c.limits.RefuseCascade(c.closures.Of(together, c.limits), d.Resource, d.Object.GetNamespace(), d.Object.GetName())
}

// rootsOf returns what a deletion begins with.
func (c *confirmations) rootsOf(ctx context.Context, d deleteflow.Deleting) ownership.Roots {
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
		roots.Kind, _ = c.closures.KindOf(ctx, schema.ParseGroupResource(d.Object.GetName()))
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

// permit remembers the deletion of an object that needed a confirmation, before it happens: it may have gone when the
// collector deletes its dependents.
func (c *confirmations) permit(ctx context.Context, d deleteflow.Deleting, roots ownership.Roots) error {
	if d.Object == nil || d.DryRun || !c.closures.Exceeds(roots, c.limits) {
		return nil
	}
	uid := d.Object.GetUID()
	if _, isKnown := c.permitted.Get(uid); isKnown {
		return nil
	}
	if err := c.store.Presence(permittedGroup, string(uid), permittedFor).Renew(ctx); err != nil {
		return fmt.Errorf("remember that the deletion was confirmed: %w", err)
	}
	c.permitted.Add(uid, nil)
	return nil
}

// wasPermitted reports whether the deletion of an object that needed a confirmation was permitted.
func (c *confirmations) wasPermitted(ctx context.Context, owner ownership.UID) (bool, error) {
	uid := types.UID(owner)
	if _, isKnown := c.permitted.Get(uid); isKnown {
		return true, nil
	}
	exists, err := c.store.Presence(permittedGroup, string(uid), permittedFor).Exists(ctx)
	if exists {
		c.permitted.Add(uid, nil)
	}
	return exists, err
}
