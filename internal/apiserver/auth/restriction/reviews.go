package restriction

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Reviews returns an authorizer for access reviews. It denies what the restriction of the user refuses, whatever
// the roles of the user are, and decides like next otherwise. It knows attributes only: whether a component asks for
// metadata, and how a write changes an object, are questions for the request itself.
func (r *Restrictions) Reviews(next authorizer.UnconditionalAuthorizer) authorizer.UnconditionalAuthorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if u := a.GetUser(); u != nil {
			if restriction, restricted := r.of(u); restricted {
				if err := restriction.mayRequest(ctx, a); err != nil {
					return authorizer.DecisionDeny, refusal(u, err).Error(), nil
				}
			}
		}
		return next.Authorize(ctx, a)
	})
}

// mayRequest returns an error if the user may not send a request with these attributes, whatever else is in it.
func (allowed Restriction) mayRequest(ctx context.Context, a authorizer.Attributes) error {
	switch {
	case !a.IsResourceRequest() && allowed.mayRead(a.GetPath()):
		return nil
	case !a.IsResourceRequest():
		return fmt.Errorf("it cannot access the path %q", a.GetPath())
	case allowed.authorize != nil:
		return allowed.authorize(ctx, a)
	case a.GetSubresource() != "" && !slices.Contains(allowed.Subresources, pathOf(a)):
		return fmt.Errorf("it cannot access %s", pathOf(a))
	case a.GetVerb() == "patch" && !allowed.Patches && !slices.Contains(allowed.AnyPatch, pathOf(a)):
		return errors.New("it cannot patch")
	case allowed.readsWhole(schema.GroupResource{Group: a.GetAPIGroup(), Resource: a.GetResource()}):
		return nil
	case !slices.Contains([]string{"create", "get", "list", "watch", "delete", "deletecollection", "patch"}, a.GetVerb()):
		return fmt.Errorf("it cannot %s %s", a.GetVerb(), a.GetResource())
	}
	return nil
}

// pathOf returns the resource and subresource of a request, as "pods/status".
func pathOf(a authorizer.Attributes) string {
	return strings.TrimSuffix(a.GetResource()+"/"+a.GetSubresource(), "/")
}

// attributesOf returns the attributes of a request for a resource that mayRequest reads. More than one field selector
// counts as none: the server would use one of them.
func attributesOf(r *http.Request, info *genericrequest.RequestInfo) authorizer.Attributes {
	a := authorizer.AttributesRecord{
		ResourceRequest: true, Verb: info.Verb, Namespace: info.Namespace, APIGroup: info.APIGroup, APIVersion: info.APIVersion,
		Resource: info.Resource, Subresource: info.Subresource, Name: info.Name,
	}
	if selectors := r.URL.Query()["fieldSelector"]; len(selectors) == 1 {
		selector, err := fields.ParseSelector(selectors[0])
		if err != nil {
			a.FieldSelectorParsingErr = err
			return a
		}
		a.FieldSelectorRequirements = selector.Requirements()
	}
	return a
}
