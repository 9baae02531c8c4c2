package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// authenticatorOf returns the authenticator of a server with this authority.
func authenticatorOf(t *testing.T, a *Authority) authenticator.Request {
	t.Helper()
	verify := func(pem []byte) x509request.VerifyOptionFunc {
		content, err := dynamiccertificates.NewStaticCAContent("test", pem)
		if err != nil {
			t.Fatal(err)
		}
		return content.VerifyOptions
	}
	return Authenticator(verify(a.Certificate()), Tokens(NewComponents()), FrontProxies(verify(a.FrontProxy().Authority())))
}

// currentAuthority issues certificates that are valid now: k8s.io/apiserver uses the real clock.
func currentAuthority(t *testing.T) *Authority {
	t.Helper()
	a, err := LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(t *testing.T, path string, cert *x509.Certificate) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	if cert != nil {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
	}
	return r
}

// The paths for anonymous users have the same content in every cluster: health, and the files of the web
// page.
func TestAnonymousMayAskForHealthAndThePage(t *testing.T) {
	auth := authenticatorOf(t, currentAuthority(t))
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/coppice/", "/coppice/page/app.js"} {
		response, ok, err := auth.AuthenticateRequest(request(t, path, nil))
		if err != nil || !ok || response.User.GetName() != user.Anonymous {
			t.Errorf("%s: %v %t %v", path, response, ok, err)
		}
	}
	for _, path := range []string{"/", "/api", "/api/v1/secrets", "/metrics", "/version", "/healthz/etcd", "/readyz/..", "/openapi/v2", "/coppice", "/coppice/v1/status", "/coppice/page/", "/coppice/metrics"} {
		if response, ok, err := auth.AuthenticateRequest(request(t, path, nil)); ok {
			t.Errorf("%s: %v %v", path, response.User, err)
		}
	}
}

func TestAdministratorIsKnown(t *testing.T) {
	a := currentAuthority(t)
	for _, path := range []string{"/api", "/healthz"} {
		response, ok, err := authenticatorOf(t, a).AuthenticateRequest(request(t, path, admin(t, a)))
		if err != nil || !ok {
			t.Fatalf("%s: %t %v", path, ok, err)
		}
		groups := response.User.GetGroups()
		if response.User.GetName() != AdminUser || !slices.Contains(groups, user.SystemPrivilegedGroup) || !slices.Contains(groups, user.AllAuthenticated) {
			t.Errorf("%s: %v", path, response.User)
		}
	}
}

// An invalid credential is refused, even on paths that need none.
func TestBadCertificateIsRefused(t *testing.T) {
	a := currentAuthority(t)
	past, err := LoadAuthority(t.TempDir(), func() time.Time { return time.Now().Add(-2 * certValidity) })
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		authority *Authority
		cert      *x509.Certificate
	}{
		"another authority's": {a, admin(t, currentAuthority(t))},
		"expired":             {past, admin(t, past)},
		"the server's own":    {a, serving(t, a, nil)},
	} {
		for _, path := range []string{"/api", "/healthz"} {
			response, ok, err := authenticatorOf(t, test.authority).AuthenticateRequest(request(t, path, test.cert))
			if ok || err == nil {
				t.Errorf("%s at %s: %v %t %v", name, path, response, ok, err)
			}
		}
	}
}

func TestAuthorizer(t *testing.T) {
	authorize, err := Authorizer(authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetUser().GetName() == "reader" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	administrator := &user.DefaultInfo{Name: "anybody", Groups: []string{user.SystemPrivilegedGroup}}
	somebody := &user.DefaultInfo{Name: AdminUser, Groups: []string{user.AllAuthenticated}} // the name alone grants nothing
	anonymous := &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}
	object := authorizer.AttributesRecord{Verb: "delete", Resource: "secrets", Namespace: "default", ResourceRequest: true}
	for name, test := range map[string]struct {
		user       user.Info
		attributes authorizer.AttributesRecord
		want       authorizer.Decision
	}{
		"administrator, object":   {administrator, object, authorizer.DecisionAllow},
		"administrator, path":     {administrator, authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}, authorizer.DecisionAllow},
		"somebody, object":        {somebody, object, authorizer.DecisionNoOpinion},
		"somebody, health":        {somebody, authorizer.AttributesRecord{Verb: "get", Path: "/readyz"}, authorizer.DecisionAllow},
		"roles, object":           {&user.DefaultInfo{Name: "reader"}, object, authorizer.DecisionAllow},
		"anonymous, health":       {anonymous, authorizer.AttributesRecord{Verb: "get", Path: "/livez"}, authorizer.DecisionAllow},
		"anonymous, object":       {anonymous, object, authorizer.DecisionNoOpinion},
		"anonymous, another path": {anonymous, authorizer.AttributesRecord{Verb: "get", Path: "/metrics"}, authorizer.DecisionNoOpinion},
	} {
		t.Run(name, func(t *testing.T) {
			test.attributes.User = test.user
			got, reason, err := authorize.Authorize(t.Context(), test.attributes)
			if got != test.want || err != nil {
				t.Errorf("%v (%s) %v, want %v", got, reason, err, test.want)
			}
		})
	}
}
