// Package tokens makes and checks the tokens of service accounts: JSON Web Tokens, signed
// by a key of the control plane's own.
//
// A token says for whom it is (service account, and possibly an object that it is bound
// to, each with its UID), for what audiences, and until when. It is good as long as its
// signature is, and as all of these exist: Authenticator looks, at every request. So a
// token ends with its account, and an account that is made anew under the name does not
// bring it back. Endpoint is where tokens are asked for: serviceaccounts/NAME/token.
package tokens

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"k8s.io/client-go/util/keyutil"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/keyfile"
)

// Issuer is who tokens say that they are of, and the audience of those for this server.
const Issuer = "https://kubernetes.default.svc.cluster.local"

// keyFile is the file of the key, in the directory of the certificates.
const keyFile = "service-accounts.key"

// clockSkew is how far the clock may have gone back since a token was signed.
const clockSkew = time.Minute

// Key signs tokens, and knows them again.
type Key struct {
	private *ecdsa.PrivateKey
	id      string
	now     func() time.Time
}

// LoadKey reads the key kept in dir, or makes one there when dir has none. The directory
// is created with mode 0700, the key with 0600.
func LoadKey(dir string, now func() time.Time) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	encoded, err := keyfile.Load(path)
	if keyfile.IsMissing(err) {
		encoded, err = createKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("the key of service account tokens: %w", err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(encoded)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, fmt.Errorf("parse %s: a %T is no key on the curve P-256", path, parsed)
	}
	public, err := x509.MarshalPKIXPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("encode the public key of %s: %w", path, err)
	}
	hash := sha256.Sum256(public)
	return &Key{private: private, id: base64.RawURLEncoding.EncodeToString(hash[:]), now: now}, nil
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

// Claims are what a token says. The names in JSON are those of the field.
type Claims struct {
	jwt.RegisteredClaims

	Kubernetes Bound `json:"kubernetes.io"`
}

// Bound is what must exist as long as the token is used.
type Bound struct {
	Namespace      string  `json:"namespace"`
	ServiceAccount Object  `json:"serviceaccount"`
	Pod            *Object `json:"pod,omitempty"`
	Secret         *Object `json:"secret,omitempty"`
	Node           *Object `json:"node,omitempty"`
}

// Object is an object, by its name and its identity.
type Object struct {
	Name string `json:"name"`
	UID  string `json:"uid"`
}

// sign makes a token of claims.
func (k *Key) sign(c Claims) (string, error) {
	token := jwt.NewWithClaims(jwt.SigningMethodES256, c)
	token.Header["kid"] = k.id
	return token.SignedString(k.private)
}

// errForeign: a token that this key has not made, and that does not say so.
var errForeign = errors.New("the token is of another issuer")

// verify checks what can be checked by the token alone: signature, issuer, times.
func (k *Key) verify(token string) (Claims, error) {
	var unverified jwt.RegisteredClaims
	if _, _, err := jwt.NewParser().ParseUnverified(token, &unverified); err != nil || unverified.Issuer != Issuer {
		return Claims{}, errForeign
	}
	var c Claims
	_, err := jwt.ParseWithClaims(token, &c, func(*jwt.Token) (any, error) { return k.private.Public(), nil },
		jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithIssuer(Issuer),
		jwt.WithExpirationRequired(), jwt.WithNotBeforeRequired(), jwt.WithTimeFunc(k.now), jwt.WithStrictDecoding())
	if err != nil {
		return Claims{}, fmt.Errorf("the service account token: %w", err)
	}
	return c, nil
}
