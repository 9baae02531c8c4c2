package apiserver_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// TestTokenBesidesAForeignCertificate checks that a token authenticates a client that also presents the certificate of another
// cluster, which alone does not.
func TestTokenBesidesAForeignCertificate(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	token := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token
	elsewhere, err := auth.LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := elsewhere.Admin()
	if err != nil {
		t.Fatal(err)
	}
	client := s.outside(t, func(c *tls.Config) { always(c, foreign) })
	for authorization, want := range map[string]int{
		"Bearer " + token: http.StatusOK, "": http.StatusUnauthorized, "Bearer " + token[:len(token)/2]: http.StatusUnauthorized,
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/version", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("with %q: %d, want %d", authorization, response.StatusCode, want)
		}
	}
}

// TestWebhookAcceptsATokenOfTheOwnIssuer checks that a webhook may authenticate the tokens of another cluster with the same
// issuer, which this cluster cannot verify.
func TestWebhookAcceptsATokenOfTheOwnIssuer(t *testing.T) {
	other := sharedServer(t)
	namespace := other.namespace(t)
	other.account(t, namespace, "robot")
	known := other.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token
	unknown := other.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authenticationv1.TokenReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		if review.Spec.Token == known {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "robot elsewhere"}}
		}
		if err := json.NewEncoder(w).Encode(review); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(webhook.Close)
	kubeconfig := filepath.Join(t.TempDir(), "webhook")
	content := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"a","context":{"cluster":"a"}}],`+
		`"clusters":[{"name":"a","cluster":{"server":%q}}]}`, webhook.URL)
	if err := os.WriteFile(kubeconfig, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, func(c *apiserver.Config) {
		c.External.TokenWebhook = accesscontrol.Webhook{Kubeconfig: kubeconfig, Version: "v1"}
	})
	if info, code := s.whoami(t, known); code != http.StatusCreated || info.Username != "robot elsewhere" {
		t.Errorf("a token that the webhook knows: %d %+v", code, info)
	}
	if info, code := s.whoami(t, unknown); code != http.StatusUnauthorized {
		t.Errorf("another token: %d %+v", code, info)
	}
}

// TestTokenOfAWebSocket checks that a browser can send a token with a WebSocket, as a subprotocol, which is neither returned nor
// in the audit log.
func TestTokenOfAWebSocket(t *testing.T) {
	log := &transcript.Transcript{}
	s := startServer(t, func(c *apiserver.Config) { c.Audit = log })
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	robot := "system:serviceaccount:" + namespace + ":robot"
	s.bind(t, namespace, "view", robot)
	token := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.authority.Certificate())
	open := func(token string) (string, error) {
		config, err := websocket.NewConfig("wss"+strings.TrimPrefix(s.url, "https")+"/api/v1/namespaces/"+namespace+"/pods?watch=true", "https://example.com")
		if err != nil {
			t.Fatal(err)
		}
		config.TlsConfig = &tls.Config{RootCAs: roots}
		config.Protocol = []string{"base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token)), "binary.k8s.io"}
		client, err := config.DialContext(t.Context())
		if err != nil {
			return "", err
		}
		return strings.Join(client.Config().Protocol, ","), client.Close()
	}
	if protocol, err := open(token); err != nil || protocol != "binary.k8s.io" {
		t.Errorf("a watch: %v, with the protocol %s", err, protocol)
	}
	if _, err := open(token[:len(token)/2]); err == nil {
		t.Error("a token that is not valid is accepted")
	}
	eventually.Agrees(t, func() string {
		if logged := log.String(); !strings.Contains(logged, `"username":"`+robot+`"`) || !strings.Contains(logged, `"code":401`) {
			return "the watches are not in the audit log: " + logged
		}
		return ""
	})
	if logged := log.String(); strings.Contains(logged, "base64url.bearer") || strings.Contains(logged, token) {
		t.Error("the audit log has the token")
	}
}
