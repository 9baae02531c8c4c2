// Package serviceaccounttoken issues and verifies service account tokens: JSON Web Tokens,
// signed by a key of the control plane.
//
// A token names a service account, and possibly an object that it is bound to, each with its UID; its
// audiences; and when it expires. It is valid as long as its signature is valid and all of these objects
// exist: Authenticator reads them for every request. So a token ends with its service account, and stays
// invalid when another one is created under that name. Endpoint serves token requests at
// serviceaccounts/NAME/token.
package serviceaccounttoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/util/keyutil"

	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
)

// Issuer is the issuer of tokens, and the audience of tokens for this server, unless Files configure
// others.
const Issuer = "https://kubernetes.default.svc.cluster.local"

// keyFile is the name of the key's file in the directory of the certificates.
const keyFile = "service-accounts.key"

// clockSkew is how far a clock may be set back after a token was signed.
const clockSkew = time.Minute

// Key signs and verifies tokens.
type Key struct {
	private   crypto.Signer
	method    jwt.SigningMethod
	id        string
	verifying []crypto.PublicKey
	issuers   []string // the first one issues
	audiences []string // a token must name at least one
	now       func() time.Time
}

// Issuer returns the issuer of the tokens that the key signs.
func (k *Key) Issuer() string { return k.issuers[0] }

// Audiences returns the audiences of this server: a token must name at least one of them. A token gets all
// of them unless the request names others.
func (k *Key) Audiences() []string { return k.audiences }

// LoadKey reads the key from dir, or creates it if it does not exist. The directory is created
// with mode 0700, the key with 0600.
func LoadKey(dir string, now func() time.Time) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	encoded, err := keyfile.Load(path)
	if keyfile.IsMissing(err) {
		encoded, err = createKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("load the key of service account tokens: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(encoded)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("parse %s: a %T is no key on the curve P-256", path, parsed)
	}
	k, err := newKey(private, now)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	return k, nil
}

// newKey returns a Key that signs with private and verifies with its public key.
func newKey(private crypto.Signer, now func() time.Time) (*Key, error) {
	method, err := methodOf(private.Public())
	if err != nil {
		return nil, err
	}
	id, err := keyID(private.Public())
	if err != nil {
		return nil, err
	}
	return &Key{
		private: private, method: method, id: id, now: now,
		verifying: []crypto.PublicKey{private.Public()}, issuers: []string{Issuer}, audiences: []string{Issuer},
	}, nil
}

// keyID returns the ID of a public key in the header of tokens.
func keyID(public crypto.PublicKey) (string, error) {
	encoded, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("encode the public key: %w", err)
	}
	hash := sha256.Sum256(encoded)
	return base64.RawURLEncoding.EncodeToString(hash[:]), nil
}

func createKey(path string) ([]byte, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return nil, err
	}
	return encoded, keyfile.Store(path, encoded)
}

// Claims are the claims of a token, in JSON as in Kubernetes.
type Claims struct {
	jwt.RegisteredClaims

	Kubernetes Bound `json:"kubernetes.io"`
}

// Bound are the objects that must exist for the token to be valid.
type Bound struct {
	Namespace      string  `json:"namespace"`
	ServiceAccount Object  `json:"serviceaccount"`
	Pod            *Object `json:"pod,omitempty"`
	Secret         *Object `json:"secret,omitempty"`
	// Node is only the place of the Pod, if there is one: then it need not exist.
	Node *Object `json:"node,omitempty"`
}

// Object identifies an object. The UID is empty for a node that does not exist.
type Object struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

func (k *Key) sign(c Claims) (string, error) {
	token := jwt.NewWithClaims(k.method, c)
	token.Header["kid"] = k.id
	return token.SignedString(k.private)
}

var (
	// errForeignToken is the error for a token that does not name this issuer.
	errForeignToken = errors.New("the token is of another issuer")
	// errTokenOfSecret is the error for a token of a Secret, which verifyLegacy verifies.
	errTokenOfSecret = errors.New("the token is of a secret")
)

// verify checks the signature, the issuer and the times of a token.
func (k *Key) verify(token string) (Claims, error) {
	var unverified jwt.RegisteredClaims
	_, _, err := jwt.NewParser().ParseUnverified(token, &unverified)
	switch {
	case err == nil && unverified.Issuer == legacyIssuer:
		return Claims{}, errTokenOfSecret
	case err != nil || !slices.Contains(k.issuers, unverified.Issuer):
		return Claims{}, errForeignToken
	}
	var c Claims
	err = k.parse(token, func() jwt.Claims { c = Claims{}; return &c },
		jwt.WithIssuer(unverified.Issuer), jwt.WithExpirationRequired(), jwt.WithNotBeforeRequired())
	if err != nil {
		return Claims{}, err
	}
	return c, nil
}

// parse checks the signature and the times of a token, and the claims that options require. into returns new,
// empty claims.
func (k *Key) parse(token string, into func() jwt.Claims, options ...jwt.ParserOption) error {
	var refused error
	for _, public := range k.verifying {
		method, err := methodOf(public)
		if err != nil {
			return err
		}
		_, err = jwt.ParseWithClaims(token, into(), func(*jwt.Token) (any, error) { return public, nil },
			append([]jwt.ParserOption{jwt.WithValidMethods([]string{method.Alg()}), jwt.WithTimeFunc(k.now), jwt.WithStrictDecoding()}, options...)...)
		if err == nil {
			return nil
		}
		refused = errors.Join(refused, err)
	}
	return fmt.Errorf("verify the service account token: %w", refused)
}
