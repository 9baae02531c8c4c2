package serviceaccounttoken

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// leeway is how long a token stays valid after the end of the grace period of its bound object: a
// terminating pod may still have to report to the server.
const leeway = time.Minute

// Getters read the objects that tokens are bound to, by resource.
type Getters map[string]rest.Getter

// Authenticator authenticates service accounts by their tokens.
type Authenticator struct {
	key *Key
	// secrets labels Secrets whose tokens are used.
	secrets typedcorev1.SecretsGetter
	// getter returns what reads the objects of a resource that tokens are bound to; nil until the API is installed.
	getter func(resource string) rest.Getter
}

var _ authenticator.Token = (*Authenticator)(nil)

// NewAuthenticator returns an Authenticator of the tokens that key has signed. It uses secrets to label Secrets whose
// tokens are used. getter returns what reads serviceaccounts, pods, secrets or nodes. It returns nil until the API is
// installed: until then no token is valid.
func NewAuthenticator(key *Key, secrets typedcorev1.SecretsGetter, getter func(resource string) rest.Getter) *Authenticator {
	return &Authenticator{key: key, secrets: secrets, getter: getter}
}

// AuthenticateToken implements authenticator.Token. It leaves tokens of other issuers to other
// authenticators, and refuses an invalid token of this issuer with the reason.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	claims, err := a.key.verify(token)
	switch {
	case errors.Is(err, errTokenOfSecret):
		return a.authenticateLegacy(ctx, token)
	case errors.Is(err, errForeignToken):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	audiences, err := a.audiences(ctx, claims.Audience)
	if err != nil {
		return nil, false, err
	}
	if err := a.checkExist(ctx, claims.Kubernetes); err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: userOf(claims), Audiences: audiences}, true, nil
}

// audiences returns the audiences of a token that the request accepts. It fails if there are none.
func (a *Authenticator) audiences(ctx context.Context, all []string) (authenticator.Audiences, error) {
	requested, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		requested = authenticator.Audiences(a.key.Audiences())
	}
	audiences := authenticator.Audiences(all).Intersect(requested)
	if len(audiences) == 0 {
		return nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", all, requested)
	}
	return audiences, nil
}

// errUnreadable is the error before the API is installed.
var errUnreadable = errors.New("service accounts cannot be read yet")

// checkExist returns an error unless the service account and the bound objects exist. The node of a token that is bound to a
// pod only names the place of the pod.
func (a *Authenticator) checkExist(ctx context.Context, b Bound) error {
	node := b.Node
	if b.Pod != nil {
		node = nil
	}
	for _, bound := range []struct {
		resource, namespace string
		object              *Object
	}{
		{"serviceaccounts", b.Namespace, &b.ServiceAccount},
		{"pods", b.Namespace, b.Pod},
		{"secrets", b.Namespace, b.Secret},
		{"nodes", "", node},
	} {
		if bound.object == nil {
			continue
		}
		getter := a.getter(bound.resource)
		if getter == nil {
			return errUnreadable
		}
		obj, err := getter.Get(genericrequest.WithNamespace(ctx, bound.namespace), bound.object.Name, &metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the token is bound to %s %q, which no longer exists", bound.resource, bound.object.Name)
		}
		if err != nil {
			return fmt.Errorf("read an object that the token is bound to: %w", err)
		}
		if err := checkBound(obj, *bound.object, bound.resource, a.key.now()); err != nil {
			return err
		}
	}
	return nil
}

// checkBound returns an error if an object is not the one that the token is bound to, or has
// been deleted.
func checkBound(obj any, want Object, resource string, now time.Time) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if string(m.GetUID()) != want.UID {
		return fmt.Errorf("the token is bound to %s %q with uid %s, and there is another one now, with uid %s", resource, want.Name, want.UID, m.GetUID())
	}
	if ends := m.GetDeletionTimestamp(); ends != nil && now.After(ends.Add(leeway)) {
		return fmt.Errorf("the token is bound to %s %q, which has been deleted", resource, want.Name)
	}
	return nil
}

func userOf(c Claims) user.Info {
	b := c.Kubernetes
	info := serviceaccount.ServiceAccountInfo{
		Namespace: b.Namespace, Name: b.ServiceAccount.Name, UID: b.ServiceAccount.UID, CredentialID: credentialID(c),
	}
	if b.Pod != nil {
		info.PodName, info.PodUID = b.Pod.Name, b.Pod.UID
	}
	if b.Node != nil {
		info.NodeName, info.NodeUID = b.Node.Name, b.Node.UID
	}
	return info.UserInfo()
}

func credentialID(c Claims) string { return "JTI=" + c.ID }
