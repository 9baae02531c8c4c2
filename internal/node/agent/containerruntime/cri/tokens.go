package cri

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	// tokenLife is the lifetime of a token whose volume specifies none, as in the API.
	tokenLife = time.Hour
	// oldestToken is the maximum age of a token, whatever its lifetime.
	oldestToken = 24 * time.Hour
)

// tokenKey identifies the use of a token.
type tokenKey struct {
	pod      types.UID
	audience string
	life     time.Duration
}

// token is a service account token.
type token struct {
	text    string
	expires time.Time
}

// tokens are the service account tokens in the volumes of pods. They are kept in memory, so that an
// update of a volume does not request a token each time; a new agent requests new ones.
type tokens struct {
	objects Objects
	clock   clock.PassiveClock

	mu   sync.Mutex
	kept map[tokenKey]token // guarded by mu
}

func newTokens(objects Objects, c clock.PassiveClock) *tokens {
	return &tokens{objects: objects, clock: c, kept: map[tokenKey]token{}}
}

// get returns a token for a volume of a pod. If a new token is due but cannot be requested, it
// returns the old one while that is valid.
func (t *tokens) get(ctx context.Context, of *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (string, error) {
	key := tokenKey{of.UID, p.Audience, tokenLife}
	if p.ExpirationSeconds != nil {
		key.life = pods.Seconds(*p.ExpirationSeconds)
	}
	t.mu.Lock()
	kept, known := t.kept[key]
	t.mu.Unlock()
	if known && !isDue(kept.expires, key.life, t.clock.Now()) {
		return kept.text, nil
	}
	fresh, err := t.request(ctx, of, key)
	switch {
	case err != nil && known && t.clock.Now().Before(kept.expires):
		return kept.text, nil
	case err != nil:
		return "", err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept[key] = fresh
	return fresh.text, nil
}

// isDue reports whether a token must be replaced: four fifths of its life are over, or it is old.
func isDue(expires time.Time, life time.Duration, now time.Time) bool {
	return !now.Before(expires.Add(-life/5)) || !now.Before(expires.Add(-life).Add(oldestToken))
}

func (t *tokens) request(ctx context.Context, of *corev1.Pod, key tokenKey) (token, error) {
	if t.objects == nil {
		return token{}, errNoObjects
	}
	account := of.Spec.ServiceAccountName
	if account == "" {
		account = "default"
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(key.life / time.Second)),
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: of.Name, UID: of.UID},
	}}
	if key.audience != "" {
		request.Spec.Audiences = []string{key.audience}
	}
	answer, err := t.objects.Token(ctx, of.Namespace, account, request)
	if err != nil {
		return token{}, fmt.Errorf("token of service account %s/%s: %w", of.Namespace, account, err)
	}
	return token{answer.Status.Token, answer.Status.ExpirationTimestamp.Time}, nil
}

// forget drops the tokens of a pod.
func (t *tokens) forget(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key := range t.kept {
		if key.pod == uid {
			delete(t.kept, key)
		}
	}
}
