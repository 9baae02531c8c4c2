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
	// SigningKey is the file of the private key that signs tokens, RSA or elliptic curve, in PEM.
	SigningKey string
	// VerifyingKeys are files of public keys or certificates in PEM, whose tokens are accepted.
	VerifyingKeys []string
	// Issuers are the accepted issuers. The first one issues.
	Issuers []string
	// Audiences are the audiences of this server: a token must name at least one. Default: Issuers.
	Audiences []string
}

// Key returns own with the configuration of the files applied.
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

// readPublic reads public keys of supported types. A file without any is an error.
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

// methodOf returns the signing method for tokens of a key.
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
