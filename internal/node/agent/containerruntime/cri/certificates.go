package cri

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
)

// abandonAfter is the age at which a request that cannot be found counts as deleted.
const abandonAfter = 10 * time.Minute

// certificateKey identifies a source of a volume that has a certificate.
type certificateKey struct {
	pod    types.UID
	volume string
	source int
}

// podCredential is a private key with its certificates, all in PEM.
type podCredential struct {
	key, chain []byte
	refreshAt  time.Time
}

// certificateState is how far the certificate of a volume is.
type certificateState struct {
	have  *podCredential
	asked *askedCertificate
	// refused is why the signer does not sign, for good.
	refused error
}

// askedCertificate is a request that was made, and its private key in PEM.
type askedCertificate struct {
	name    string
	key     []byte
	created time.Time
}

// certificates are the certificates of pods in their volumes. They are kept in memory only; a new agent requests new
// ones.
type certificates struct {
	objects Objects
	clock   clock.PassiveClock

	mu   sync.Mutex
	kept map[certificateKey]certificateState // guarded by mu
}

func newCertificates(objects Objects, c clock.PassiveClock) *certificates {
	return &certificates{objects: objects, clock: c, kept: map[certificateKey]certificateState{}}
}

var errNotIssued = errors.New("credential bundle is not issued yet")

// get returns the certificate of a source of a volume. It requests one if there is none, or if that has to be
// refreshed; until a signer has signed it, it returns the old one, or an error.
func (c *certificates) get(ctx context.Context, of *corev1.Pod, volume string, source int, p *corev1.PodCertificateProjection) (podCredential, error) {
	key := certificateKey{of.UID, volume, source}
	c.mu.Lock()
	state := c.kept[key]
	c.mu.Unlock()
	state, err := c.next(ctx, of, p, state)
	c.mu.Lock()
	c.kept[key] = state
	c.mu.Unlock()
	switch {
	case state.refused != nil:
		return podCredential{}, state.refused
	case state.have != nil:
		return *state.have, nil
	case err != nil:
		return podCredential{}, err
	}
	return podCredential{}, errNotIssued
}

// isRefused reports whether the signer has refused.
func (s certificateState) isRefused() bool { return s.refused != nil }

// next makes the request that is due, or looks for the answer to the one that was made.
func (c *certificates) next(ctx context.Context, of *corev1.Pod, p *corev1.PodCertificateProjection, s certificateState) (certificateState, error) {
	switch {
	case c.objects == nil:
		return s, errNoObjects
	case s.isRefused():
		return s, nil
	case s.asked != nil:
		return c.answer(ctx, of, s)
	case s.have != nil && c.clock.Now().Before(s.have.refreshAt):
		return s, nil
	}
	asked, err := c.ask(ctx, of, p)
	if err == nil {
		s.asked = asked
	}
	return s, err
}

// answer looks for the answer of the signer.
func (c *certificates) answer(ctx context.Context, of *corev1.Pod, s certificateState) (certificateState, error) {
	name := s.asked.name
	request, err := c.objects.CertificateRequest(ctx, of.Spec.NodeName, of.Namespace, name)
	if apierrors.IsNotFound(err) && c.clock.Since(s.asked.created) > abandonAfter {
		s.asked = nil
		return s, fmt.Errorf("PodCertificateRequest %s/%s has been deleted", of.Namespace, name)
	}
	if err != nil {
		return s, fmt.Errorf("PodCertificateRequest %s/%s: %w", of.Namespace, name, err)
	}
	for _, outcome := range request.Status.Conditions {
		switch {
		case outcome.Type == certificatesv1.PodCertificateRequestConditionTypeDenied:
			s.refused = refusedCertificate("denied", outcome)
		case outcome.Type == certificatesv1.PodCertificateRequestConditionTypeFailed:
			s.refused = refusedCertificate("failed", outcome)
		case outcome.Type == certificatesv1.PodCertificateRequestConditionTypeIssued && request.Status.BeginRefreshAt != nil:
			s.have = &podCredential{s.asked.key, onlyCertificates([]byte(request.Status.CertificateChain)), request.Status.BeginRefreshAt.Time}
			s.asked = nil
			return s, nil
		}
	}
	return s, nil
}

func refusedCertificate(how string, outcome metav1.Condition) error {
	return fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q", how, outcome.Reason, outcome.Message)
}

// ask makes a key, and a request for a certificate that the pod owns.
func (c *certificates) ask(ctx context.Context, of *corev1.Pod, p *corev1.PodCertificateProjection) (*askedCertificate, error) {
	private, err := generateKey(p.KeyType)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private)
	if err != nil {
		return nil, fmt.Errorf("sign a request: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("encode a key: %w", err)
	}
	account := of.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	request, err := c.objects.RequestCertificate(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: of.Name, UID: of.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: p.SignerName, PodName: of.Name, PodUID: of.UID, ServiceAccountName: account, NodeName: types.NodeName(of.Spec.NodeName),
			MaxExpirationSeconds: p.MaxExpirationSeconds, StubPKCS10Request: stub, UnverifiedUserAnnotations: p.UserAnnotations,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("request a certificate: %w", err)
	}
	return &askedCertificate{request.Name, pem.EncodeToMemory(&pem.Block{Type: keyutil.PrivateKeyBlockType, Bytes: der}), c.clock.Now()}, nil
}

func generateKey(kind string) (crypto.Signer, error) {
	switch kind {
	case "RSA3072":
		return rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		return rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		return ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		return ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	}
	return nil, fmt.Errorf("unknown key type %q", kind)
}

// onlyCertificates returns PEM without text between the blocks.
func onlyCertificates(chain []byte) []byte {
	var clean []byte
	for block, rest := pem.Decode(chain); block != nil; block, rest = pem.Decode(rest) {
		clean = append(clean, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: block.Bytes})...)
	}
	return clean
}

// forget drops the certificates of a pod.
func (c *certificates) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.kept {
		if key.pod == uid {
			delete(c.kept, key)
		}
	}
}

// trustAnchors returns the certificates of bundles in PEM, each once, in an order that does not depend on the order of
// the bundles.
func trustAnchors(bundles []certificatesv1.ClusterTrustBundle) []byte {
	var anchors []string
	for _, b := range bundles {
		for block, rest := pem.Decode([]byte(b.Spec.TrustBundle)); block != nil; block, rest = pem.Decode(rest) {
			anchors = append(anchors, string(block.Bytes))
		}
	}
	slices.Sort(anchors)
	all := []byte{}
	for _, anchor := range slices.Compact(anchors) {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: []byte(anchor)})...)
	}
	return all
}

// trusted returns the certificates that a source of a volume names: of one bundle, or of the bundles of a signer that
// its selector selects. Without a selector, it selects none.
func trusted(ctx context.Context, objects Objects, p *corev1.ClusterTrustBundleProjection) ([]byte, error) {
	var bundles []certificatesv1.ClusterTrustBundle
	switch {
	case objects == nil:
		return nil, errNoObjects
	case p.Name != nil:
		bundle, err := objects.TrustBundle(ctx, *p.Name)
		if apierrors.IsNotFound(err) && isOptional(p.Optional) {
			return []byte{}, nil
		}
		if err != nil {
			return nil, fmt.Errorf("ClusterTrustBundle %s: %w", *p.Name, err)
		}
		bundles = []certificatesv1.ClusterTrustBundle{*bundle}
	case p.SignerName != nil:
		selector, err := metav1.LabelSelectorAsSelector(p.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("select ClusterTrustBundles: %w", err)
		}
		if p.LabelSelector != nil { // as text, the selector of nothing is the one of everything
			bundles, err = objects.TrustBundles(ctx, *p.SignerName, selector)
		}
		if err != nil {
			return nil, fmt.Errorf("ClusterTrustBundles of signer %s: %w", *p.SignerName, err)
		}
		if len(bundles) == 0 && !isOptional(p.Optional) {
			return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
		}
	default:
		return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
	}
	return trustAnchors(bundles), nil
}
