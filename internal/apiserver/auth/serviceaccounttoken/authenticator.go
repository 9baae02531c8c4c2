package tokens

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// leeway is how long a token outlives the end of the grace period of what it is bound to:
// what is being deleted may still have to say that it is done.
const leeway = time.Minute

// Objects are where what tokens are bound to is read, by resource.
type Objects map[string]rest.Getter

// Authenticator knows whose a token is.
type Authenticator struct {
	key *Key
	// objects is set before the first request; until then no token is good.
	objects atomic.Pointer[Objects]
}

var _ authenticator.Token = (*Authenticator)(nil)

// NewAuthenticator knows the tokens that key has signed.
func NewAuthenticator(key *Key) *Authenticator { return &Authenticator{key: key} }

// Look sets where objects are read: "serviceaccounts", "pods", "secrets" and "nodes".
func (a *Authenticator) Look(objects Objects) { a.objects.Store(&objects) }

// AuthenticateToken implements authenticator.Token. A token of another issuer is left to
// others; one that is ours and is not good any more is refused, with the reason.
func (a *Authenticator) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	claims, err := a.key.verify(token)
	if errors.Is(err, errForeign) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	asked, ok := authenticator.AudiencesFrom(ctx)
	if !ok {
		asked = authenticator.Audiences{Issuer}
	}
	audiences := authenticator.Audiences(claims.Audience).Intersect(asked)
	if len(audiences) == 0 {
		return nil, false, fmt.Errorf("token audiences %q is invalid for the target audiences %q", claims.Audience, asked)
	}
	if err := a.exists(ctx, claims.Kubernetes); err != nil {
		return nil, false, err
	}
	return &authenticator.Response{User: userOf(claims), Audiences: audiences}, true, nil
}

// exists looks for the account and for what the token is bound to.
func (a *Authenticator) exists(ctx context.Context, b Bound) error {
	objects := a.objects.Load()
	if objects == nil {
		return errors.New("service accounts cannot be read yet")
	}
	for _, need := range []struct {
		resource, namespace string
		object              *Object
	}{
		{"serviceaccounts", b.Namespace, &b.ServiceAccount},
		{"pods", b.Namespace, b.Pod},
		{"secrets", b.Namespace, b.Secret},
		{"nodes", "", b.Node},
	} {
		if need.object == nil {
			continue
		}
		obj, err := (*objects)[need.resource].Get(genericrequest.WithNamespace(ctx, need.namespace), need.object.Name, &metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("the token is bound to %s %q, which does not exist any more", need.resource, need.object.Name)
		}
		if err != nil {
			return fmt.Errorf("read what the token is bound to: %w", err)
		}
		if err := stillIs(obj, *need.object, need.resource, a.key.now()); err != nil {
			return err
		}
	}
	return nil
}

// stillIs tells whether an object is the one that is meant, and is to stay.
func stillIs(obj any, meant Object, resource string, now time.Time) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if string(m.GetUID()) != meant.UID {
		return fmt.Errorf("the token is bound to %s %q with the uid %s, and this one has %s", resource, meant.Name, meant.UID, m.GetUID())
	}
	if ends := m.GetDeletionTimestamp(); ends != nil && now.After(ends.Add(leeway)) {
		return fmt.Errorf("the token is bound to %s %q, which has been deleted", resource, meant.Name)
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
