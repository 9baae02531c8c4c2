package apiserver_test

import (
	"net/http"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// A review returns the decision that the server would make about the request.
func TestAccessReviews(t *testing.T) {
	s := sharedServer(t)
	namespace, name := s.namespace(t), unique("viewer")
	s.bind(t, namespace, bootstrappolicy.View, name)
	admin, viewer := typed(t, s.config).AuthorizationV1(), typed(t, s.acting(name)).AuthorizationV1()
	for what, test := range map[string]struct {
		asked authorizationv1.ResourceAttributes
		want  bool
	}{
		"its role":          {authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: namespace}, true},
		"another namespace": {authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Namespace: "default"}, false},
		"another verb":      {authorizationv1.ResourceAttributes{Verb: "delete", Resource: "pods", Namespace: namespace}, false},
		"a subresource":     {authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Subresource: "exec", Namespace: namespace}, false},
	} {
		self, err := viewer.SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &test.asked},
		}, metav1.CreateOptions{})
		if err != nil || self.Status.Allowed != test.want || self.Status.Denied || (self.Status.Reason != "") != test.want {
			t.Errorf("%s, of oneself: %+v %v", what, self.Status, err)
		}
		spec := authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &test.asked}
		other, err := admin.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || other.Status.Allowed != test.want {
			t.Errorf("%s, of another: %+v %v", what, other.Status, err)
		}
		local, err := admin.LocalSubjectAccessReviews(test.asked.Namespace).Create(t.Context(), &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: test.asked.Namespace}, Spec: spec,
		}, metav1.CreateOptions{})
		if err != nil || local.Status.Allowed != test.want {
			t.Errorf("%s, locally: %+v %v", what, local.Status, err)
		}
	}
	path, err := viewer.SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/version"}},
	}, metav1.CreateOptions{})
	if err != nil || !path.Status.Allowed {
		t.Errorf("a path: %+v %v", path.Status, err)
	}
	// A user without permissions may review only its own access.
	if _, err := viewer.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{}, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a viewer asks about others: %v", err)
	}
}

func TestReviewsThatAskNothing(t *testing.T) {
	s := sharedServer(t)
	admin := typed(t, s.config).AuthorizationV1()
	pods := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "elsewhere"}
	path := &authorizationv1.NonResourceAttributes{Verb: "get", Path: "/"}
	both, neither := *pods, *pods
	both.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: "a=b", Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b"}}}}
	neither.LabelSelector = &authorizationv1.LabelSelectorAttributes{}
	for name, spec := range map[string]authorizationv1.SubjectAccessReviewSpec{
		"two selectors": {User: "ann", ResourceAttributes: &both},
		"no selector":   {User: "ann", ResourceAttributes: &neither},
		"about nobody":  {ResourceAttributes: pods},
		"about nothing": {User: "ann"},
		"about both":    {User: "ann", ResourceAttributes: pods, NonResourceAttributes: path},
	} {
		if _, err := admin.SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	local := &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Spec: authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: pods}}
	if _, err := admin.LocalSubjectAccessReviews("default").Create(t.Context(), local, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("of another namespace: %v", err)
	}
	if _, err := admin.SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{}, metav1.CreateOptions{}); !apierrors.IsBadRequest(err) {
		t.Errorf("rules of no namespace: %v", err)
	}
}

func TestRulesReview(t *testing.T) {
	s := sharedServer(t)
	namespace, name := s.namespace(t), unique("viewer")
	s.bind(t, namespace, bootstrappolicy.View, name)
	rules := func(namespace string) authorizationv1.SubjectRulesReviewStatus {
		r, err := typed(t, s.acting(name)).AuthorizationV1().SelfSubjectRulesReviews().Create(t.Context(), &authorizationv1.SelfSubjectRulesReview{
			Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace},
		}, metav1.CreateOptions{})
		if err != nil || r.Status.Incomplete || r.Status.EvaluationError != "" {
			t.Fatalf("%+v %v", r, err)
		}
		return r.Status
	}
	lists := func(r authorizationv1.ResourceRule) bool {
		return slices.Contains(r.Verbs, "list") && slices.Contains(r.Resources, "pods")
	}
	if here := rules(namespace); !slices.ContainsFunc(here.ResourceRules, lists) || len(here.NonResourceRules) == 0 {
		t.Errorf("%+v", here)
	}
	if there := rules("default"); slices.ContainsFunc(there.ResourceRules, lists) {
		t.Errorf("%+v", there)
	}
}

func TestWhoAmI(t *testing.T) {
	s := sharedServer(t)
	config := s.acting("ann", "team")
	config.Impersonate.Extra = map[string][]string{"scope": {"a", "b"}}
	r, err := typed(t, config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	info := r.Status.UserInfo
	if info.Username != "ann" || !slices.Contains(info.Groups, "team") || !slices.Contains(info.Groups, user.AllAuthenticated) || len(info.Extra["scope"]) != 2 {
		t.Errorf("%+v", info)
	}
}

func TestTokenReview(t *testing.T) {
	s := sharedServer(t)
	component, err := s.Collector()
	if err != nil {
		t.Fatal(err)
	}
	ask := func(spec authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
		r, err := typed(t, s.config).AuthenticationV1().TokenReviews().Create(t.Context(), &authenticationv1.TokenReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Status
	}
	if got := ask(authenticationv1.TokenReviewSpec{Token: component.BearerToken}); !got.Authenticated || got.User.Username != bootstrappolicy.Collector || !slices.Contains(got.User.Groups, user.AllAuthenticated) {
		t.Errorf("%+v", got)
	}
	for name, spec := range map[string]authenticationv1.TokenReviewSpec{
		"unknown":          {Token: "guess"},
		"another audience": {Token: component.BearerToken, Audiences: []string{"vault"}},
	} {
		if got := ask(spec); got.Authenticated || got.User.Username != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
	// Reviews are not stored, and cannot be read.
	if code, _, err := s.client(t).exchange(http.MethodGet, "/apis/authentication.k8s.io/v1/tokenreviews", "", nil); code != http.StatusMethodNotAllowed {
		t.Errorf("%d %v", code, err)
	}
}
