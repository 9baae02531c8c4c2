package apiserver

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// outlived looks up the objects because of which protected objects stay.
type outlived struct {
	access *accesscontrol.AccessControl
	lookup protected.Lookup
}

// left is deleteflow.Config.Remaining. The server itself, without a user, reads all.
func (o outlived) left(ctx context.Context, resource schema.GroupResource, m metav1.Object, p protection.Protection) []protection.Remaining {
	var may protected.May
	if who, ok := genericrequest.UserFrom(ctx); ok {
		may = o.rightsOf(who)
	}
	of := inuse.Object{Namespace: m.GetNamespace(), Name: m.GetName()}
	if p.Mode == protection.Unused {
		kind, err := o.lookup.Mapper.KindFor(resource.WithVersion(""))
		if err != nil {
			return []protection.Remaining{{Outlived: protection.Outlived{Kind: resource.String()}, Unknown: err.Error()}}
		}
		of.Kind = kind.GroupKind()
	}
	return o.lookup.Remaining(ctx, may, of, p)
}

// check is admissionchain.Config.Outlived.
func (o outlived) check(ctx context.Context, who user.Info, namespace string, added []protection.Outlived) error {
	return o.lookup.Check(ctx, o.rightsOf(who), namespace, added)
}

// rightsOf returns a check of the user's read permissions. A restricted user, such as a node, may read nothing
// here, although its roles allow more. The collector and the namespace controller may read the metadata of
// everything.
func (o outlived) rightsOf(who user.Info) protected.May {
	authorize := unrestricted(o.access)
	if name := who.GetName(); name == bootstrappolicy.Collector || name == bootstrappolicy.NamespaceController {
		authorize = o.access.Authorizer
	}
	return func(ctx context.Context, right authorizationv1.ResourceAttributes) error {
		decision, reason, err := authorize.Authorize(ctx, authorizer.AttributesRecord{
			User: who, ResourceRequest: true, Verb: right.Verb, APIGroup: right.Group, APIVersion: right.Version,
			Resource: right.Resource, Namespace: right.Namespace, Name: right.Name,
		})
		switch {
		case decision == authorizer.DecisionAllow:
			return nil
		case err != nil:
			return fmt.Errorf("user %q may not: %w", who.GetName(), err)
		case reason != "":
			return fmt.Errorf("user %q may not: %s", who.GetName(), reason)
		}
		return fmt.Errorf("user %q may not", who.GetName())
	}
}
