package serviceaccounttoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// written writes a key and its public half as PEM, and returns their paths.
func written(t *testing.T, key crypto.Signer) (private, public string) {
	t.Helper()
	dir := t.TempDir()
	private, public = filepath.Join(dir, "sa.key"), filepath.Join(dir, "sa.pub")
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	encodedPublic, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	for path, block := range map[string]*pem.Block{private: {Type: "PRIVATE KEY", Bytes: encoded}, public: {Type: "PUBLIC KEY", Bytes: encodedPublic}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return private, public
}

func onCurve(t *testing.T, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The suite's own keys, of any type, sign accepted tokens.
func TestOwnKeysSignAcceptedTokens(t *testing.T) {
	c := noon()
	own := loaded(t, t.TempDir(), c)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, signer := range map[string]crypto.Signer{"RSA": rsaKey, "P-256": onCurve(t, elliptic.P256()), "P-384": onCurve(t, elliptic.P384()), "P-521": onCurve(t, elliptic.P521())} {
		private, public := written(t, signer)
		signing, err := Files{SigningKey: private, Issuers: []string{"https://a", "https://b"}}.Key(own, c.now)
		if err != nil {
			t.Fatal(name, err)
		}
		claims := hour(c)
		claims.Issuer = signing.Issuer()
		token, err := signing.sign(claims)
		if err != nil {
			t.Fatal(name, err)
		}
		verifying, err := Files{VerifyingKeys: []string{public}, Issuers: []string{"https://b", "https://a"}, Audiences: []string{"c"}}.Key(own, c.now)
		if err != nil {
			t.Fatal(name, err)
		}
		for which, key := range map[string]*Key{"the key that signed": signing, "one that has its public half": verifying} {
			if got, err := key.verify(token); err != nil || got.Kubernetes.ServiceAccount.Name != "robot" {
				t.Errorf("%s, %s: %+v, %v", name, which, got, err)
			}
		}
		if _, err := own.verify(token); !errors.Is(err, errForeignToken) {
			t.Errorf("%s: the control plane's own key: %v", name, err)
		}
		if !slices.Equal(signing.Audiences(), []string{"https://a", "https://b"}) || !slices.Equal(verifying.Audiences(), []string{"c"}) {
			t.Errorf("%s: audiences %q and %q", name, signing.Audiences(), verifying.Audiences())
		}
	}
	unchanged, err := Files{}.Key(own, c.now)
	if err != nil || unchanged.Issuer() != Issuer || !slices.Equal(unchanged.Audiences(), []string{Issuer}) {
		t.Errorf("%+v, %v", unchanged, err)
	}
}

// Tokens of a key that is not configured are refused.
func TestFilesRefuse(t *testing.T) {
	c := noon()
	own := loaded(t, t.TempDir(), c)
	private, _ := written(t, onCurve(t, elliptic.P256()))
	stranger, err := Files{SigningKey: private}.Key(own, c.now)
	if err != nil {
		t.Fatal(err)
	}
	token, err := stranger.sign(hour(c))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := own.verify(token); err == nil || errors.Is(err, errForeignToken) {
		t.Errorf("a stranger's token: %v", err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	edwardsPrivate, edwardsPublic := written(t, edwards)
	for name, files := range map[string]Files{
		"no file": {SigningKey: "/no/such/file"}, "no public file": {VerifyingKeys: []string{"/no/such/file"}},
		"a key of another kind": {SigningKey: edwardsPrivate}, "a public key of another kind": {VerifyingKeys: []string{edwardsPublic}},
	} {
		if _, err := files.Key(own, c.now); err == nil {
			t.Errorf("%s: it is a key", name)
		}
	}
}
