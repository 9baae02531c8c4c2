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

// ErrUnauthenticated is the error for a caller without a known identity.
var ErrUnauthenticated = errors.New("not authenticated: send a bearer token that the API server accepts")

// ErrComponent is the error for a caller that is a node or a component of a control plane.
var ErrComponent = errors.New("nodes and components of the control plane have no access here: use a user, or a service account of your own")

// CheckUser returns ErrComponent for a user that is a node or a component of a control plane. These do not need this
// API. The rights of a node depend on the pods that are bound to it, and some components may read only metadata; a
// right to list shows neither. Service accounts get answers, including controllers' and the collector's own: they see
// no object that they may not list themselves.
func CheckUser(name string, groups []string) error {
	isNode := slices.Contains(groups, "system:nodes") || strings.HasPrefix(name, "system:node:")
	if isNode || strings.HasPrefix(name, "system:coppice:") || slices.Contains(components(), name) {
		return ErrComponent
	}
	return nil
}

// components returns the users of Kubernetes' components that are not service accounts.
func components() []string {
	return []string{"system:kube-controller-manager", "system:kube-proxy", "system:kube-scheduler"}
}

// MayList reports whether a caller may list a resource in a namespace, or in all if it is empty. The
// resource and the group "*" stand for all resources of all groups.
type MayList func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error)

// Caller is the user of a request.
type Caller struct {
	// User is the name of the user. It groups the requests that share the limits of one user.
	User string
	// MayList checks the caller's rights to list.
	MayList MayList
	// Config reaches the API server as the caller: reads beyond the collector's graph use the caller's rights.
	Config *rest.Config
}

// Access authenticates a request. Its error wraps ErrUnauthenticated if the caller has no known identity.
type Access func(r *http.Request) (Caller, error)

// Delegated delegates authentication and authorization to an API server. It sends the caller's own bearer token
// in reviews of the caller (SelfSubjectReview, SelfSubjectAccessReview), which every authenticated user may
// create. So the collector needs no rights for it, and cannot learn anything about users who do not call.
// Nothing is cached: a revoked token is refused at once.
func Delegated(config *rest.Config) Access {
	config = rest.AnonymousClientConfig(config)
	config.QPS = -1 // the server limits the caller
	config.UserAgent = "coppice"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON // which every server supports
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
		case apierrors.IsUnauthorized(err), apierrors.IsForbidden(err): // anonymous users may not create it
			return Caller{}, ErrUnauthenticated
		case err != nil:
			return Caller{}, fmt.Errorf("ask the API server for the user of the token: %w", err)
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
