package auth

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
)

// authenticatorOf returns the authenticator of a server with this authority, and with authenticators of tokens.
func authenticatorOf(t *testing.T, a *Authority, tokens ...authenticator.Token) authenticator.Request {
	t.Helper()
	verify := func(pem []byte) x509request.VerifyOptionFunc {
		content, err := dynamiccertificates.NewStaticCAContent("test", pem)
		if err != nil {
			t.Fatal(err)
		}
		return content.VerifyOptions
	}
	return Authenticator(verify(a.Certificate()), Tokens(tokens...), FrontProxies(verify(a.FrontProxy().Authority())))
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

// TestOneValidCredentialIsEnough checks that an invalid credential beside a valid one does no harm: a client with a token may
// present the certificate of another control plane. The token of a WebSocket is removed.
func TestOneValidCredentialIsEnough(t *testing.T) {
	a, components := currentAuthority(t), NewComponents("robot")
	token, err := components.Token("robot")
	if err != nil {
		t.Fatal(err)
	}
	refuse := authenticator.TokenFunc(func(context.Context, string) (*authenticator.Response, bool, error) {
		return nil, false, errors.New("a token of this issuer with another signature")
	})
	authenticate := authenticatorOf(t, a, refuse, components)
	protocols := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)) + ", binary.k8s.io"
	}
	own, foreign := admin(t, a), admin(t, currentAuthority(t))
	for name, test := range map[string]struct {
		cert             *x509.Certificate
		bearer, protocol string
		want             string
	}{
		"a token":                                 {nil, token, "", "robot"},
		"a token, a foreign certificate":          {foreign, token, "", "robot"},
		"a bad token, a certificate":              {own, "x", "", AdminUser},
		"a bad token, a foreign certificate":      {foreign, "x", "", ""},
		"a bad token":                             {nil, "x", "", ""},
		"a WebSocket":                             {nil, "", protocols(token), "robot"},
		"a WebSocket, a foreign certificate":      {foreign, "", protocols(token), "robot"},
		"a WebSocket, a bad token":                {nil, "", protocols("x"), ""},
		"a WebSocket without another subprotocol": {nil, "", strings.TrimSuffix(protocols(token), ", binary.k8s.io"), ""},
	} {
		r := request(t, "/api", test.cert)
		if test.bearer != "" {
			r.Header.Set("Authorization", "Bearer "+test.bearer)
		}
		if test.protocol != "" {
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", "websocket")
			r.Header.Set("Sec-Websocket-Protocol", test.protocol)
		}
		response, ok, err := authenticate.AuthenticateRequest(r)
		if ok != (test.want != "") || ok && response.User.GetName() != test.want || !ok && err == nil {
			t.Errorf("%s: %v %t %v", name, response, ok, err)
		}
		if left := r.Header.Get("Sec-Websocket-Protocol"); ok && test.protocol != "" && left != "binary.k8s.io" {
			t.Errorf("%s: the protocols that are left are %s", name, left)
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
