package restriction

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// mayRead reports whether the user may read a path that is not a resource. All restricted users may read discovery and
// health. The handlers of other paths check the user's roles only, not restrictions.
func (allowed Restriction) mayRead(path string) bool {
	return isDiscovery(path) || slices.Contains(allowed.Paths, path)
}

// isDiscovery reports whether a path describes the resources of the server, its health, or the issuer of its tokens.
func isDiscovery(path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"api", "apis", "openapi", "version", "healthz", "livez", "readyz"}, first) ||
		slices.Contains([]string{"/.well-known/openid-configuration", "/openid/v1/jwks"}, path)
}

// Unrestricted returns an authorizer that decides like next, but refuses all requests of restricted users.
// It is for handlers that show objects in other ways than the API does.
func (r *Restrictions) Unrestricted(next authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if u := a.GetUser(); u != nil {
			if _, restricted := r.of(u); restricted {
				return authorizer.DecisionDeny, "user is restricted to requests for resources", nil
			}
		}
		return next.Authorize(ctx, a)
	})
}
