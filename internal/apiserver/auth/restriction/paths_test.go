package restriction

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// Restricted users are refused at paths that are not resources, whatever their roles allow, and by the authorizer
// of handlers that show objects: a role for a group may allow more than a node may read.
func TestRestrictedIdentitiesReadFewPaths(t *testing.T) {
	restrictions := New(nil, nil)
	reached := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	filter := WithRestrictions(reached, restrictions, serializer.NewCodecFactory(runtime.NewScheme()))
	everything := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionAllow, "", nil
	})
	node := &user.DefaultInfo{Name: bootstrappolicy.NodeUserPrefix + "na", Groups: []string{user.NodesGroup}}
	collector := &user.DefaultInfo{Name: bootstrappolicy.Collector}
	for _, test := range []struct {
		who     *user.DefaultInfo
		path    string
		reaches bool
	}{
		{node, "/coppice/v1/deleted", false},
		{node, "/coppice/v1/component", false},
		{node, "/metrics", false},
		{node, "/debug/pprof/heap", false},
		{node, "/healthz", true},
		{node, "/openapi/v3/api/v1", true},
		{node, bootstrappolicy.NewestPath, false},
		{collector, "/coppice/v1/deleted", false},
		{collector, bootstrappolicy.NewestPath, true},
		{&user.DefaultInfo{Name: bootstrappolicy.Scheduler}, "/coppice/v1/deleted", false},
		{&user.DefaultInfo{Name: "ann"}, "/coppice/v1/deleted", true},
	} {
		ctx := genericrequest.WithUser(genericrequest.WithRequestInfo(t.Context(), &genericrequest.RequestInfo{Path: test.path, Verb: "get"}), test.who)
		answer := httptest.NewRecorder()
		filter.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, http.MethodGet, test.path, http.NoBody))
		if reaches := answer.Code == http.StatusTeapot; reaches != test.reaches || !reaches && answer.Code != http.StatusForbidden {
			t.Errorf("%s asks for %s: %d, want it to be answered: %t", test.who.Name, test.path, answer.Code, test.reaches)
		}
		_, restricted := restrictions.of(test.who)
		decision, _, err := restrictions.Unrestricted(everything).Authorize(ctx, authorizer.AttributesRecord{User: test.who, Path: test.path})
		if allowed := decision == authorizer.DecisionAllow; err != nil || allowed == restricted {
			t.Errorf("%s is allowed to read %s: %t, %v", test.who.Name, test.path, allowed, err)
		}
	}
}
