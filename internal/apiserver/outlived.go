package apiserver

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/collect/protected/others"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// left returns the objects that a protected object outlives and that still exist, as far as the user of the
// request may read them. The server itself, without a user, reads all.
func (s *Server) left(ctx context.Context, namespace string, outlived []protection.Other) []protection.Left {
	var may others.May
	if who, ok := genericrequest.UserFrom(ctx); ok {
		may = s.rightsOf(who)
	}
	return s.others().Left(ctx, may, namespace, outlived)
}

// checkOutlived is admissionchain.Config.Outlived.
func (s *Server) checkOutlived(ctx context.Context, who user.Info, namespace string, added []protection.Other) error {
	return s.others().Check(ctx, s.rightsOf(who), namespace, added)
}

// others returns the lookup of the objects that protected objects outlive.
func (s *Server) others() others.Lookup {
	return others.Lookup{Mapper: s.mapper, Metadata: s.objects, Carried: s.companions.hasFinalizer}
}

// rightsOf returns a check of the user's read permissions. A restricted user, such as a node, may read nothing
// here, although its roles allow more. The collector and the namespace controller may read the metadata of
// everything.
func (s *Server) rightsOf(who user.Info) others.May {
	authorize := s.Authorizer()
	if name := who.GetName(); name == bootstrappolicy.Collector || name == bootstrappolicy.NamespaceController {
		authorize = s.access.Authorizer
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
