package apiserver

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/storemetadata"
	"github.com/coppice-dev/coppice/internal/collect/protected"
)

// permitsGroup is the group of protected.Permits in the store.
const permitsGroup = "permits"

// confirmations decides which deletions need a confirmation (R32).
type confirmations struct {
	*protected.Confirming

	store *etcd.Store
}

// newConfirmations returns nil if the server has no limits.
func newConfirmations(c completedConfig, f *foundation, source *storemetadata.Source) *confirmations {
	if !c.Confirm.Any() {
		return nil
	}
	// The server reads its own store. No rules of RBAC are known yet when it begins.
	self := &user.DefaultInfo{Name: user.APIServerUser, Groups: []string{user.SystemPrivilegedGroup}}
	closures := protected.NewClosures(f.client.Discovery(), source.Client(self, f.objects), c.Log)
	return &confirmations{
		protected.NewConfirming(protected.Confirming{
			Limits: c.Confirm, Closures: closures, Permits: permits{c.Store.Kept(permitsGroup)}, Now: c.Now,
			CatchUp: func(ctx context.Context) error {
				newest, err := c.Store.Newest(ctx)
				if err != nil { // etcd is slow; clients repeat a 429
					return apierrors.NewTooManyRequests(fmt.Sprintf("whether the deletion needs a confirmation is not known: %s", err), 1)
				}
				return closures.CatchUp(ctx, newest.Writes)
			},
		}), c.Store,
	}
}

// run observes the objects until ctx ends, and returns when all that can be read were observed.
func (c *confirmations) run(ctx context.Context) error {
	if c == nil {
		return nil
	}
	_, _ = c.store.Newest(ctx) // from now on, it knows all writes: the observations begin later
	go c.Closures.Run(ctx)
	return c.Closures.WaitForInitialSync(ctx)
}

// check is deleteflow.Config.Confirmed.
func (c *confirmations) check(ctx context.Context, d protected.Deleting) error {
	name := ""
	if who, isUser := genericrequest.UserFrom(ctx); isUser {
		name = who.GetName()
	}
	return c.Check(ctx, name, d)
}

// permits are protected.Permits in the store.
type permits struct{ etcd.Kept }

// Put implements protected.Permits.
func (p permits) Put(ctx context.Context, name string, permit []byte) error {
	return p.Kept.Put(ctx, name, permit, protected.PermittedFor)
}
