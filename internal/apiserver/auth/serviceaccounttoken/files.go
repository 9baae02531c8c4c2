package serviceaccounttoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"fmt"
	"os"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/util/keyutil"
)

// Files configure the tokens of service accounts as the flags of kube-apiserver do. The zero value
// configures nothing.
type Files struct {
	// SigningKey contains the private key that signs tokens, RSA or on a curve, in PEM.
	SigningKey string
	// VerifyingKeys contain public keys of tokens that are accepted, in PEM: keys or certificates.
	VerifyingKeys []string
	// Issuers are the issuers that are accepted. The first one issues.
	Issuers []string
	// Audiences are those of which a token must name one. Default: Issuers.
	Audiences []string
}

// Key returns own, with what the files configure in place of what it has.
func (f Files) Key(own *Key, now func() time.Time) (*Key, error) {
	k := *own
	if f.SigningKey != "" {
		private, err := readSigner(f.SigningKey)
		if err != nil {
			return nil, err
		}
		signing, err := newKey(private, now)
		if err != nil {
			return nil, fmt.Errorf("the key of service account tokens in %s: %w", f.SigningKey, err)
		}
		k = *signing
	}
	for _, path := range f.VerifyingKeys {
		keys, err := readPublic(path)
		if err != nil {
			return nil, err
		}
		k.verifying = append(k.verifying, keys...)
	}
	if len(f.Issuers) > 0 {
		k.issuers, k.audiences = f.Issuers, f.Issuers
	}
	if len(f.Audiences) > 0 {
		k.audiences = f.Audiences
	}
	return &k, nil
}

func readSigner(path string) (crypto.Signer, error) {
	parsed, err := keyutil.PrivateKeyFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of service account tokens: %w", err)
	}
	signer, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key of service account tokens in %s: a %T cannot sign", path, parsed)
	}
	return signer, nil
}

// readPublic reads public keys that can be used. A file that has none is an error.
func readPublic(path string) ([]crypto.PublicKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the public key of service account tokens: %w", err)
	}
	parsed, err := keyutil.ParsePublicKeysPEM(data)
	if err != nil {
		return nil, fmt.Errorf("the public key of service account tokens in %s: %w", path, err)
	}
	keys := make([]crypto.PublicKey, len(parsed))
	for i, key := range parsed {
		if _, err := methodOf(key); err != nil {
			return nil, fmt.Errorf("the public key of service account tokens in %s: %w", path, err)
		}
		keys[i] = key
	}
	return keys, nil
}

// methodOf returns how tokens of a key are signed.
func methodOf(public crypto.PublicKey) (jwt.SigningMethod, error) {
	switch key := public.(type) {
	case *rsa.PublicKey:
		return jwt.SigningMethodRS256, nil
	case *ecdsa.PublicKey:
		switch key.Curve {
		case elliptic.P256():
			return jwt.SigningMethodES256, nil
		case elliptic.P384():
			return jwt.SigningMethodES384, nil
		case elliptic.P521():
			return jwt.SigningMethodES512, nil
		}
	}
	return nil, fmt.Errorf("a %T signs no tokens", public)
}
