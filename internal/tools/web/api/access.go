package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// ErrUnauthenticated is the error for a caller whose identity is not known.
var ErrUnauthenticated = errors.New("not authenticated: send a bearer token that the API server accepts")

// ErrComponent is the error for a caller that is a node or a component of a control plane.
var ErrComponent = errors.New("nodes and components of the control plane may not ask here: ask as a user, or as a service account of your own")

// CheckUser returns ErrComponent for a user that is a node or a component of a control plane. These need nothing from here.
// What a node may read depends on the pods that are bound to it, and some components may read metadata alone; a right to
// list says neither. Service accounts are answered, those of controllers and the collector's own, too: they learn of no
// object that they may not list themselves.
func CheckUser(name string, groups []string) error {
	isNode := slices.Contains(groups, "system:nodes") || strings.HasPrefix(name, "system:node:")
	if isNode || strings.HasPrefix(name, "system:coppice:") || slices.Contains(components(), name) {
		return ErrComponent
	}
	return nil
}

// components are the users of Kubernetes' components that are no service accounts.
func components() []string {
	return []string{"system:kube-controller-manager", "system:kube-proxy", "system:kube-scheduler"}
}

// MayList reports whether a caller may list a resource in a namespace, or in all if that is empty. The
// resource and the group "*" are all resources of all groups.
type MayList func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error)

// Caller is who makes a request.
type Caller struct {
	// User is the name of the user. Requests of one user wait for each other.
	User string
	// MayList says what they may list.
	MayList MayList
	// Config reaches the API server as the caller: what the collector does not know is read with their rights.
	Config *rest.Config
}

// Access finds out who makes a request. Its error wraps ErrUnauthenticated if that is not known.
type Access func(r *http.Request) (Caller, error)

// Delegated leaves to an API server who a caller is and what they may list. It asks with the caller's own
// bearer token, about themselves (SelfSubjectReview, SelfSubjectAccessReview), which every authenticated user
// may: so the collector needs no rights for it, and cannot find out anything about those who do not call.
// Nothing is cached: a token that was revoked is refused at once.
func Delegated(config *rest.Config) Access {
	config = rest.AnonymousClientConfig(config)
	config.QPS = -1 // the server limits the caller
	config.UserAgent = "coppice"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // as every server does
	return func(r *http.Request) (Caller, error) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || token == "" {
			return Caller{}, ErrUnauthenticated
		}
		theirs := rest.CopyConfig(config)
		theirs.BearerToken = token
		client, err := kubernetes.NewForConfig(theirs)
		if err != nil {
			return Caller{}, fmt.Errorf("make a client: %w", err)
		}
		self := &authenticationv1.SelfSubjectReview{}
		answer, err := client.AuthenticationV1().SelfSubjectReviews().Create(r.Context(), self, metav1.CreateOptions{})
		switch {
		case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err): // anonymous users may not
			return Caller{}, ErrUnauthenticated
		case err != nil:
			return Caller{}, fmt.Errorf("ask the API server who calls: %w", err)
		}
		if err := CheckUser(answer.Status.UserInfo.Username, answer.Status.UserInfo.Groups); err != nil {
			return Caller{}, err
		}
		return Caller{User: answer.Status.UserInfo.Username, MayList: mayListOf(client), Config: theirs}, nil
	}
}

func mayListOf(client kubernetes.Interface) MayList {
	return func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "list", Group: resource.Group, Resource: resource.Resource, Namespace: namespace, Version: "*",
			},
		}}
		answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, fmt.Errorf("ask the API server what the caller may list: %w", err)
		}
		return answer.Status.Allowed, nil
	}
}
