package serviceaccounttoken

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
)

// The paths at which clients discover how to verify tokens. Upstream's role
// system:service-account-issuer-discovery also names them with a slash at the end.
const (
	DiscoveryPath = "/.well-known/openid-configuration"
	KeysPath      = "/openid/v1/jwks"
)

// maxAge is how long clients may cache the answers: as long as with upstream.
const maxAge = "public, max-age=3600"

// discovery is the metadata of an OpenID Provider.
type discovery struct {
	Issuer        string   `json:"issuer"`
	KeysURI       string   `json:"jwks_uri"`
	ResponseTypes []string `json:"response_types_supported"`
	SubjectTypes  []string `json:"subject_types_supported"`
	Algorithms    []string `json:"id_token_signing_alg_values_supported"`
}

// webKey is a public key as a JSON Web Key.
type webKey struct {
	Use       string `json:"use"`
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Curve     string `json:"crv,omitempty"`
	Algorithm string `json:"alg"`
	X         string `json:"x,omitempty"`
	Y         string `json:"y,omitempty"`
	N         string `json:"n,omitempty"`
	E         string `json:"e,omitempty"`
}

// Discovery returns the handlers of both paths, by path; host serves the keys. It fails for an issuer that
// OpenID Connect does not allow.
func (k *Key) Discovery(host string) (map[string]http.Handler, error) {
	issuer, err := url.Parse(k.Issuer())
	if err != nil {
		return nil, fmt.Errorf("the issuer of service account tokens: %w", err)
	}
	if issuer.Scheme != "https" || issuer.RawQuery != "" || issuer.Fragment != "" {
		return nil, fmt.Errorf("the issuer of service account tokens, %q, is no https URL without query and fragment", k.Issuer())
	}
	about := discovery{
		Issuer: k.Issuer(), KeysURI: (&url.URL{Scheme: "https", Host: host, Path: KeysPath}).String(),
		ResponseTypes: []string{"id_token"}, SubjectTypes: []string{"public"},
	}
	var set struct {
		Keys []webKey `json:"keys"`
	}
	for _, public := range k.verifying {
		key, err := webKeyOf(public)
		if err != nil {
			return nil, err
		}
		if slices.Contains(set.Keys, key) {
			continue
		}
		set.Keys = append(set.Keys, key)
		about.Algorithms = append(about.Algorithms, key.Algorithm)
	}
	slices.Sort(about.Algorithms)
	about.Algorithms = slices.Compact(about.Algorithms)
	handlers := map[string]http.Handler{}
	for path, answer := range map[string]document{DiscoveryPath: {"application/json", about}, KeysPath: {"application/jwk-set+json", set}} {
		handler, err := answer.handler()
		if err != nil {
			return nil, err
		}
		handlers[path], handlers[path+"/"] = handler, handler
	}
	return handlers, nil
}

// document is a response that never changes.
type document struct {
	media   string
	content any
}

func (d document) handler() (http.Handler, error) {
	text, err := json.Marshal(d.content)
	if err != nil {
		return nil, fmt.Errorf("encode the metadata of service account tokens: %w", err)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "the method is not allowed: use GET", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", d.media)
		w.Header().Set("Cache-Control", maxAge)
		_, _ = w.Write(text)
	}), nil
}

func webKeyOf(public crypto.PublicKey) (webKey, error) {
	method, err := methodOf(public)
	if err != nil {
		return webKey{}, err
	}
	id, err := keyID(public)
	if err != nil {
		return webKey{}, err
	}
	encode := base64.RawURLEncoding.EncodeToString
	key := webKey{Use: "sig", ID: id, Algorithm: method.Alg()}
	switch p := public.(type) {
	case *rsa.PublicKey:
		key.Type, key.N, key.E = "RSA", encode(p.N.Bytes()), encode(big.NewInt(int64(p.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := p.Bytes() // 0x04, X, Y
		if err != nil {
			return webKey{}, fmt.Errorf("encode a public key of service account tokens: %w", err)
		}
		half := (len(point) - 1) / 2
		key.Type, key.Curve, key.X, key.Y = "EC", p.Curve.Params().Name, encode(point[1:1+half]), encode(point[1+half:])
	default:
		return webKey{}, errors.New("a public key of service account tokens is neither RSA nor on a curve")
	}
	return key, nil
}
