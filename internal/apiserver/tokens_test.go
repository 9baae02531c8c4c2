package apiserver_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/serviceaccounttoken"
)

// bearer returns a client over the network with a token.
func (s *server) bearer(token string) *rest.Config {
	return &rest.Config{Host: s.url, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: s.authority.Certificate()}}
}

// whoami creates a SelfSubjectReview; the code is 401 for an invalid token.
func (s *server) whoami(t *testing.T, token string) (authenticationv1.UserInfo, int) {
	t.Helper()
	r, err := typed(t, s.bearer(token)).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	var status apierrors.APIStatus
	switch {
	case err == nil:
		return r.Status.UserInfo, http.StatusCreated
	case apierrors.IsUnauthorized(err):
		return authenticationv1.UserInfo{}, http.StatusUnauthorized
	default:
		t.Fatal(err, status)
		return authenticationv1.UserInfo{}, 0
	}
}

func (s *server) account(t *testing.T, namespace, name string) *corev1.ServiceAccount {
	t.Helper()
	sa, err := typed(t, s.config).CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return sa
}

func (s *server) token(t *testing.T, namespace, name string, spec authenticationv1.TokenRequestSpec) authenticationv1.TokenRequestStatus {
	t.Helper()
	r, err := typed(t, s.config).CoreV1().ServiceAccounts(namespace).CreateToken(t.Context(), name, &authenticationv1.TokenRequest{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status
}

// A token authenticates its service account for an hour, and is invalid once the account is
// deleted, even if another one has its name.
func TestTokenIsItsAccount(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	accounts := typed(t, s.config).CoreV1().ServiceAccounts(namespace)
	account := s.account(t, namespace, "robot")
	status := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{})
	if left := time.Until(status.ExpirationTimestamp.Time); left < 59*time.Minute || left > time.Hour {
		t.Errorf("it expires in %s", left)
	}
	info, code := s.whoami(t, status.Token)
	if code != http.StatusCreated || info.Username != "system:serviceaccount:"+namespace+":robot" || info.UID != string(account.UID) {
		t.Errorf("%d %+v", code, info)
	}
	for _, group := range []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"} {
		if !slices.Contains(info.Groups, group) {
			t.Errorf("groups %q without %s", info.Groups, group)
		}
	}
	if err := accounts.Delete(t.Context(), "robot", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, code := s.whoami(t, status.Token); code != http.StatusUnauthorized {
		t.Errorf("without its account: %d", code)
	}
	s.account(t, namespace, "robot")
	if _, code := s.whoami(t, status.Token); code != http.StatusUnauthorized {
		t.Errorf("with a namesake of its account: %d", code)
	}
}

// A token that is bound to an object is invalid once the object is deleted.
func TestTokenIsBound(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	_, secret := s.secret(t, namespace, "bound")
	nodes := s.collection(t, gvk("", "v1", "Node"), "nodes", "", nil)
	node := nodes.create(unique("node"))
	pods := s.pods(t, namespace)
	pods.content["spec"].(map[string]any)["serviceAccountName"] = "robot"
	delete(pods.content["spec"].(map[string]any), "nodeName") // otherwise its deletion has a grace period
	pod := pods.create("bound")
	for _, o := range []struct {
		object *object
		remove func()
		extra  string
	}{
		{secret, func() { s.collection(t, gvk("", "v1", "Secret"), "secrets", namespace, nil).mustRemove("bound", nil) }, ""},
		{pod, func() { pods.mustRemove("bound", nil) }, "authentication.kubernetes.io/pod-name"},
		{node, func() { nodes.mustRemove(node.GetName(), nil) }, "authentication.kubernetes.io/node-name"},
	} {
		token := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: o.object.GetKind(), Name: o.object.GetName(), UID: o.object.GetUID(),
		}}).Token
		info, code := s.whoami(t, token)
		if code != http.StatusCreated || o.extra != "" && !slices.Equal(info.Extra[o.extra], []string{o.object.GetName()}) {
			t.Errorf("%s: %d %v", o.object.GetKind(), code, info.Extra)
		}
		o.remove()
		if _, code := s.whoami(t, token); code != http.StatusUnauthorized {
			t.Errorf("%s: %d after its end", o.object.GetKind(), code)
		}
	}
}

// TestTokenOfAPodNamesItsNode checks that the token of a pod names the pod's node, on which it does not depend.
func TestTokenOfAPodNamesItsNode(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	nodes := s.collection(t, gvk("", "v1", "Node"), "nodes", "", nil)
	node := nodes.create(unique("node"))
	tokenOn := func(pod, node string) string {
		pods := s.pods(t, namespace)
		spec := pods.content["spec"].(map[string]any)
		spec["serviceAccountName"], spec["nodeName"] = "robot", node
		pods.create(pod)
		return s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod,
		}}).Token
	}
	names := func(what, token, name string, uid []string) {
		t.Helper()
		info, code := s.whoami(t, token)
		if code != http.StatusCreated || !slices.Equal(info.Extra["authentication.kubernetes.io/node-name"], []string{name}) ||
			!slices.Equal(info.Extra["authentication.kubernetes.io/node-uid"], uid) {
			t.Errorf("%s: %d %v", what, code, info.Extra)
		}
	}
	bound := tokenOn("bound", node.GetName())
	names("on a node", bound, node.GetName(), []string{string(node.GetUID())})
	nodes.mustRemove(node.GetName(), nil)
	names("after the end of the node", bound, node.GetName(), []string{string(node.GetUID())})
	names("without a node", tokenOn("lost", "nowhere"), "nowhere", nil)
}

// A token for other audiences is not valid here.
func TestTokenHasAudiences(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	token := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{Audiences: []string{"vault"}}).Token
	if _, code := s.whoami(t, token); code != http.StatusUnauthorized {
		t.Errorf("a token for vault: %d", code)
	}
	for audience, want := range map[string]bool{"vault": true, "other": false, "": false} {
		spec := authenticationv1.TokenReviewSpec{Token: token}
		if audience != "" {
			spec.Audiences = []string{audience}
		}
		r, err := typed(t, s.config).AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || r.Status.Authenticated != want || want && !slices.Equal(r.Status.Audiences, []string{"vault"}) {
			t.Errorf("for %q: %+v %v", audience, r.Status, err)
		}
	}
}

func TestTokenRequestsThatAreRefused(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	accounts := typed(t, s.config).CoreV1().ServiceAccounts(namespace)
	bound := func(ref authenticationv1.BoundObjectReference) authenticationv1.TokenRequestSpec {
		return authenticationv1.TokenRequestSpec{BoundObjectRef: &ref}
	}
	s.pods(t, namespace).create("of-another")
	for name, test := range map[string]struct {
		account string
		spec    authenticationv1.TokenRequestSpec
		want    func(error) bool
	}{
		"no such account":           {"nobody", authenticationv1.TokenRequestSpec{}, apierrors.IsNotFound},
		"too short":                 {"robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(599))}, apierrors.IsInvalid},
		"too long":                  {"robot", authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(1<<32 + 1))}, apierrors.IsInvalid},
		"bound to what is no thing": {"robot", bound(authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "ConfigMap", Name: "a"}), apierrors.IsInvalid},
		"bound to what is not":      {"robot", bound(authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: "a"}), apierrors.IsNotFound},
		"bound to another's pod":    {"robot", bound(authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "of-another"}), apierrors.IsBadRequest},
	} {
		if _, err := accounts.CreateToken(t.Context(), test.account, &authenticationv1.TokenRequest{Spec: test.spec}, metav1.CreateOptions{}); !test.want(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A token that was tampered with is refused.
func TestForgedTokens(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	token := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token
	parts := strings.Split(token, ".")
	other := strings.Split(s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token, ".")
	for name, forged := range map[string]string{
		"another signature": strings.Join([]string{parts[0], parts[1], other[2]}, "."),
		"no signature":      parts[0] + "." + parts[1] + ".",
		"no algorithm":      "eyJhbGciOiJub25lIn0." + parts[1] + ".",
		"half of it":        token[:len(token)/2],
	} {
		if _, code := s.whoami(t, forged); code != http.StatusUnauthorized {
			t.Errorf("%s: %d", name, code)
		}
	}
}

// Other parties can verify a token with the discovery documents of its issuer, and a service account may
// read them.
func TestIssuerDiscovery(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.account(t, namespace, "robot")
	token := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{}).Token
	robot := s.bearer(token)
	var about struct {
		Issuer     string   `json:"issuer"`
		Keys       string   `json:"jwks_uri"`
		Algorithms []string `json:"id_token_signing_alg_values_supported"`
	}
	code, answer := forge(t, robot, forged{http.MethodGet, "/.well-known/openid-configuration", "", "", ""})
	if err := json.Unmarshal([]byte(answer), &about); err != nil || code != http.StatusOK || about.Issuer != serviceaccounttoken.Issuer || !slices.Equal(about.Algorithms, []string{"ES256"}) {
		t.Errorf("%d %s %v", code, answer, err)
	}
	if want := s.url + "/openid/v1/jwks"; about.Keys != want {
		t.Errorf("the keys are at %q, want %q", about.Keys, want)
	}
	for _, path := range []string{"/openid/v1/jwks", "/openid/v1/jwks/"} {
		code, answer = forge(t, robot, forged{http.MethodGet, path, "", "", ""})
		if _, err := jwt.Parse(token, keyOf(t, answer)); err != nil || code != http.StatusOK {
			t.Errorf("%s: %d %s: %v", path, code, answer, err)
		}
	}
	for name, config := range map[string]*rest.Config{"anybody": s.acting("anybody"), "nobody": {Host: s.url, TLSClientConfig: rest.TLSClientConfig{CAData: s.authority.Certificate()}}} {
		if code, answer := forge(t, config, forged{http.MethodGet, "/openid/v1/jwks", "", "", ""}); code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if code, _ := forge(t, s.config, forged{http.MethodPost, "/openid/v1/jwks", "", "", ""}); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", code)
	}
}

// keyOf returns the key of a token from a JSON Web Key Set, using only its text.
func keyOf(t *testing.T, set string) jwt.Keyfunc {
	return func(token *jwt.Token) (any, error) {
		var keys struct {
			Keys []struct{ Use, Kty, Kid, Crv, Alg, X, Y string }
		}
		if err := json.Unmarshal([]byte(set), &keys); err != nil {
			return nil, err
		}
		for _, key := range keys.Keys {
			x, err := base64.RawURLEncoding.DecodeString(key.X)
			if err != nil {
				return nil, err
			}
			y, err := base64.RawURLEncoding.DecodeString(key.Y)
			if err != nil {
				return nil, err
			}
			if key.Kid == token.Header["kid"] && key.Alg == token.Header["alg"] && key.Use == "sig" && key.Kty == "EC" && key.Crv == "P-256" {
				return ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
			}
		}
		t.Errorf("no key %v in %s", token.Header, set)
		return nil, jwt.ErrTokenUnverifiable
	}
}
