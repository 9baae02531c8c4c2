package serviceaccounttoken

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// The lifetime of tokens in seconds: the default, and the limits of Kubernetes.
const (
	defaultSeconds = 60 * 60
	minSeconds     = 10 * 60
	maxSeconds     = 1 << 32
)

// Endpoint is serviceaccounts/NAME/token.
type Endpoint struct {
	key     *Key
	getters Getters
}

var (
	_ rest.NamedCreater             = (*Endpoint)(nil)
	_ rest.GroupVersionKindProvider = (*Endpoint)(nil)
)

// NewEndpoint returns an endpoint for the service accounts of getters. It binds tokens to the other objects
// of getters.
func NewEndpoint(key *Key, getters Getters) *Endpoint { return &Endpoint{key, getters} }

// New implements rest.Storage.
func (e *Endpoint) New() runtime.Object { return &authenticationv1.TokenRequest{} }

// Destroy implements rest.Storage.
func (e *Endpoint) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider.
func (e *Endpoint) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return authenticationv1.SchemeGroupVersion.WithKind("TokenRequest")
}

// Create implements rest.NamedCreater. The answer is the request with a token.
func (e *Endpoint) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	request, ok := obj.(*authenticationv1.TokenRequest)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a TokenRequest: %T", obj))
	}
	account, err := e.get(ctx, "serviceaccounts", name)
	if err != nil {
		return nil, err
	}
	if request.UID != "" && request.UID != account.GetUID() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "serviceaccounts/token"}, name,
			fmt.Errorf("the UID in the token request (%s) does not match the UID of the service account (%s)", request.UID, account.GetUID()))
	}
	if request.Name != "" && request.Name != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the name of the token request (%s) does not match the name of the service account (%s)", request.Name, name))
	}
	e.setDefaults(&request.Spec)
	if errs := validateSpec(request.Spec); len(errs) > 0 {
		return nil, validate.NewInvalid(authenticationv1.SchemeGroupVersion.WithKind("TokenRequest").GroupKind(), name, errs)
	}
	if admit != nil {
		if err := admit(ctx, request.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	claims, err := e.claims(ctx, account, request.Spec)
	if err != nil {
		return nil, err
	}
	token, err := e.key.sign(claims)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("sign the token: %w", err))
	}
	audit.AddAuditAnnotation(ctx, serviceaccount.IssuedCredentialIDAuditAnnotationKey, credentialID(claims))
	request.Name, request.Namespace, request.CreationTimestamp = name, account.GetNamespace(), metav1.NewTime(claims.IssuedAt.Time)
	request.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(claims.ExpiresAt.Time)}
	return request, nil
}

func (e *Endpoint) get(ctx context.Context, resource, name string) (metav1.Object, error) {
	obj, err := e.getters[resource].Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return meta.Accessor(obj)
}

func (e *Endpoint) setDefaults(spec *authenticationv1.TokenRequestSpec) {
	if len(spec.Audiences) == 0 {
		spec.Audiences = slices.Clone(e.key.Audiences())
	}
	if spec.ExpirationSeconds == nil {
		spec.ExpirationSeconds = new(int64(defaultSeconds))
	}
}

func validateSpec(spec authenticationv1.TokenRequestSpec) field.ErrorList {
	var errs field.ErrorList
	path := field.NewPath("spec")
	if seconds := *spec.ExpirationSeconds; seconds < minSeconds {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), seconds, "may not specify a duration less than 10 minutes"))
	} else if seconds > maxSeconds {
		errs = append(errs, field.Invalid(path.Child("expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"))
	}
	if len(spec.Attestations) > 0 {
		errs = append(errs, field.Forbidden(path.Child("attestations"), "attestations are not supported"))
	}
	ref := spec.BoundObjectRef
	if ref == nil {
		return errs
	}
	if ref.APIVersion != corev1.SchemeGroupVersion.String() || boundResource(ref.Kind) == "" {
		errs = append(errs, field.Invalid(path.Child("boundObjectRef"), ref.APIVersion+", "+ref.Kind, "cannot bind token to object of this kind: supported are Pod, Secret and Node of v1"))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(path.Child("boundObjectRef", "name"), ""))
	}
	return errs
}

func boundResource(kind string) string {
	return map[string]string{"Pod": "pods", "Secret": "secrets", "Node": "nodes"}[kind]
}

func (e *Endpoint) claims(ctx context.Context, account metav1.Object, spec authenticationv1.TokenRequestSpec) (Claims, error) {
	now := e.key.now()
	c := Claims{
		RegisteredClaims: jwt.RegisteredClaims{
			Issuer: e.key.Issuer(), Subject: serviceaccount.MakeUsername(account.GetNamespace(), account.GetName()),
			Audience: spec.Audiences, ID: string(uuid.NewUUID()),
			IssuedAt: jwt.NewNumericDate(now), NotBefore: jwt.NewNumericDate(now.Add(-clockSkew)),
			ExpiresAt: jwt.NewNumericDate(now.Add(time.Duration(*spec.ExpirationSeconds) * time.Second)),
		},
		Kubernetes: Bound{Namespace: account.GetNamespace(), ServiceAccount: objectOf(account)},
	}
	ref := spec.BoundObjectRef
	if ref == nil {
		return c, nil
	}
	resource := boundResource(ref.Kind)
	if resource == "nodes" {
		ctx = genericrequest.WithNamespace(ctx, "")
	}
	bound, err := e.get(ctx, resource, ref.Name)
	if err != nil {
		return Claims{}, err
	}
	if ref.UID != "" && ref.UID != bound.GetUID() {
		return Claims{}, apierrors.NewConflict(schema.GroupResource{Resource: resource}, ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record (%s)", ref.UID, bound.GetUID()))
	}
	return e.bind(ctx, c, bound)
}

// bind returns the claims of a token that is bound to an object.
func (e *Endpoint) bind(ctx context.Context, c Claims, bound metav1.Object) (Claims, error) {
	object := objectOf(bound)
	switch bound := bound.(type) {
	case *corev1.Pod:
		if account := c.Kubernetes.ServiceAccount.Name; cmp.Or(bound.Spec.ServiceAccountName, "default") != account {
			return Claims{}, apierrors.NewBadRequest(fmt.Sprintf("cannot bind token for serviceaccount %q to pod running with different serviceaccount name.", account))
		}
		if name := bound.Spec.NodeName; name != "" {
			node, err := e.node(ctx, name)
			if err != nil {
				return Claims{}, err
			}
			c.Kubernetes.Node = &node
		}
		c.Kubernetes.Pod = &object
	case *corev1.Secret:
		c.Kubernetes.Secret = &object
	case *corev1.Node:
		c.Kubernetes.Node = &object
	}
	return c, nil
}

// node identifies the node of a pod, without a UID if the Node does not exist.
func (e *Endpoint) node(ctx context.Context, name string) (Object, error) {
	node, err := e.get(genericrequest.WithNamespace(ctx, ""), "nodes", name)
	switch {
	case apierrors.IsNotFound(err):
		return Object{Name: name}, nil
	case err != nil:
		return Object{}, err
	}
	return objectOf(node), nil
}

func objectOf(m metav1.Object) Object { return Object{Name: m.GetName(), UID: string(m.GetUID())} }
