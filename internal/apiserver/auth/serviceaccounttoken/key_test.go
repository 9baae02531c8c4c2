package serviceaccounttoken

import (
	"crypto/elliptic"
	"crypto/rsa"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/keyutil"
)

// clock is a clock that a test moves.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func loaded(t *testing.T, dir string, c *clock) *Key {
	t.Helper()
	key, err := LoadKey(dir, c.now)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func noon() *clock { return &clock{time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)} }

func hour(c *clock) Claims {
	return Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: Issuer, NotBefore: jwt.NewNumericDate(c.Time), ExpiresAt: jwt.NewNumericDate(c.Add(time.Hour)),
		},
		Kubernetes: Bound{Namespace: "ns", ServiceAccount: Object{"robot", "u"}},
	}
}

func TestKeyIsPrivateAndKept(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "pki"), noon()
	token, err := loaded(t, dir, c).sign(hour(c))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, keyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	claims, err := loaded(t, dir, c).verify(token)
	if err != nil || claims.Kubernetes.ServiceAccount.Name != "robot" || claims.Kubernetes.Pod != nil {
		t.Errorf("after a restart: %+v %v", claims, err)
	}
	if _, err := loaded(t, t.TempDir(), c).verify(token); !errors.Is(err, jwt.ErrTokenSignatureInvalid) {
		t.Errorf("by another's key: %v", err)
	}
}

func TestTokenHasItsTime(t *testing.T) {
	c := noon()
	key := loaded(t, t.TempDir(), c)
	token, err := key.sign(hour(c))
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]error{
		-time.Second: jwt.ErrTokenNotValidYet, 0: nil, time.Hour - time.Second: nil, time.Hour: jwt.ErrTokenExpired, 99 * time.Hour: jwt.ErrTokenExpired,
	} {
		moved := clock{c.Add(after)}
		key.now = moved.now
		if _, err := key.verify(token); !errors.Is(err, want) {
			t.Errorf("after %s: %v, want %v", after, err, want)
		}
	}
	key.now = c.now
	for name, change := range map[string]func(*Claims){
		"no end":       func(c *Claims) { c.ExpiresAt = nil },
		"no beginning": func(c *Claims) { c.NotBefore = nil },
	} {
		claims := hour(c)
		change(&claims)
		token, err := key.sign(claims)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := key.verify(token); err == nil {
			t.Errorf("%s: it is good", name)
		}
	}
}

// A token of another issuer is left to other authenticators; a forged token of ours is refused.
func TestTokensOfOthers(t *testing.T) {
	c := noon()
	key := loaded(t, t.TempDir(), c)
	foreign := hour(c)
	foreign.Issuer = "https://issuer.example.com"
	token, err := key.sign(foreign)
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{token, "opaque", "", "a.b.c"} {
		if _, err := key.verify(token); !errors.Is(err, errForeignToken) {
			t.Errorf("%q: %v", token, err)
		}
	}
	for name, method := range map[string]jwt.SigningMethod{"none": jwt.SigningMethodNone, "a shared secret": jwt.SigningMethodHS256} {
		var secret any = []byte("secret")
		if method == jwt.SigningMethodNone {
			secret = jwt.UnsafeAllowNoneSignatureType
		}
		token, err := jwt.NewWithClaims(method, hour(c)).SignedString(secret)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := key.verify(token); !errors.Is(err, jwt.ErrTokenSignatureInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKeyThatIsNone(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.NewChaCha8([32]byte{}), 2048)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(rsaKey)
	if err != nil {
		t.Fatal(err)
	}
	for words, content := range map[string][]byte{"parse": []byte("nonsense"), elliptic.P256().Params().Name: encoded} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, keyFile), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadKey(dir, noon().now); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, want %s", err, words)
		}
	}
}

func TestCheckBound(t *testing.T) {
	c := noon()
	ended := metav1.NewTime(c.Time)
	for name, test := range map[string]struct {
		meta  metav1.ObjectMeta
		after time.Duration
		want  bool
	}{
		"there":                   {metav1.ObjectMeta{UID: "u"}, 0, true},
		"another":                 {metav1.ObjectMeta{UID: "v"}, 0, false},
		"being deleted":           {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &ended}, 0, true},
		"deleted a minute ago":    {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &ended}, leeway, true},
		"deleted longer ago":      {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &ended}, leeway + time.Second, false},
		"a grace that is not yet": {metav1.ObjectMeta{UID: "u", DeletionTimestamp: &ended}, -time.Hour, true},
	} {
		if err := checkBound(&corev1.Pod{ObjectMeta: test.meta}, Object{"p", "u"}, "pods", c.Add(test.after)); (err == nil) != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
