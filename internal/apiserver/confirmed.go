package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/storemetadata"
	"github.com/coppice-dev/coppice/internal/collect/protected"
)

const (
	// permittedGroup is the group of presences in the store whose names are the UIDs of protected.Permits.
	permittedGroup = "confirmed"
	// permittedFor is how long that is remembered: a cascade may wait for finalizers.
	permittedFor = 24 * time.Hour
)

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
			Limits: c.Confirm, Closures: closures, Permits: permits{c.Store}, Now: c.Now,
			CatchUp: func(ctx context.Context) error {
				newest, err := c.Store.Newest(ctx)
				if err != nil {
					return fmt.Errorf("whether the deletion needs a confirmation: %w", err)
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
type permits struct{ store *etcd.Store }

// Permit implements protected.Permits.
func (p permits) Permit(ctx context.Context, uid types.UID) error {
	return p.store.Presence(permittedGroup, string(uid), permittedFor).Renew(ctx)
}

// IsPermitted implements protected.Permits.
func (p permits) IsPermitted(ctx context.Context, uid types.UID) (bool, error) {
	return p.store.Presence(permittedGroup, string(uid), permittedFor).Exists(ctx)
}
