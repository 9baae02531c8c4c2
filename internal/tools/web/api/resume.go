package api

import (
	"context"
	"fmt"
	"net/http"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// resume resumes the deletions of a kind that the breaker has paused. The caller needs the right to make these
// deletions: to delete collections of the kind in all namespaces.
func (h *handler) resume(w http.ResponseWriter, r *http.Request, s *Sight) error {
	kind := r.URL.Query().Get("kind")
	resource, served := s.resources[kind]
	if !served {
		return &refusal{http.StatusBadRequest, fmt.Sprintf("kind=%q is not a kind that is collected: name one as KIND.GROUP, such as ReplicaSet.apps", kind)}
	}
	allowed, err := mayDeleteAll(r.Context(), s.caller.Config, resource)
	switch {
	case err != nil:
		return err
	case !allowed:
		return &refusal{http.StatusForbidden, fmt.Sprintf("to resume their deletion, you need the right to delete collections of %s in all namespaces", resource)}
	case !h.source.Resume(kind):
		return &refusal{http.StatusNotFound, "deletions of " + kind + " are not paused"}
	}
	return h.writeJSON(w, map[string]string{"resumed": kind})
}

// mayDeleteAll asks the API server, as the caller, whether the caller may delete all objects of a resource.
func mayDeleteAll(ctx context.Context, caller *rest.Config, resource schema.GroupResource) (bool, error) {
	client, err := kubernetes.NewForConfig(caller)
	if err != nil {
		return false, fmt.Errorf("make a client: %w", err)
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "deletecollection", Group: resource.Group, Resource: resource.Resource, Version: "*",
		},
	}}
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the API server what the caller may delete: %w", err)
	}
	return answer.Status.Allowed, nil
}
