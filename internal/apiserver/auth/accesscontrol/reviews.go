package accesscontrol

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// reviews serve the review kinds of authentication.k8s.io and authorization.k8s.io: TokenReview, SelfSubjectReview, the
// SubjectAccessReviews and SelfSubjectRulesReview. A review is created, answered, and never stored. kubectl auth can-i
// and kubectl auth whoami create them. All fields are required.
type reviews struct {
	Authorizer authorizer.UnconditionalAuthorizer
	Rules      authorizer.RuleResolver
	Tokens     authenticator.Token
	// Audiences apply to a TokenReview that names none.
	Audiences authenticator.Audiences
}

// groups returns the API groups, for installation in the server.
func (c reviews) groups(schemes registry.Schemes) []*genericapiserver.APIGroupInfo {
	group := func(name string, storages map[string]rest.Storage) *genericapiserver.APIGroupInfo {
		info := genericapiserver.NewDefaultAPIGroupInfo(name, schemes.Hub, schemes.ParameterCodec, schemes.Codecs)
		info.VersionedResourcesStorageMap["v1"] = storages
		return &info
	}
	return []*genericapiserver.APIGroupInfo{
		group(authenticationv1.GroupName, map[string]rest.Storage{
			"tokenreviews":       newReviewEndpoint("tokenreview", false, c.reviewToken),
			"selfsubjectreviews": newReviewEndpoint("selfsubjectreview", false, reviewSelf),
		}),
		group(authorizationv1.GroupName, map[string]rest.Storage{
			"subjectaccessreviews":      newReviewEndpoint("subjectaccessreview", false, c.reviewAccess),
			"selfsubjectaccessreviews":  newReviewEndpoint("selfsubjectaccessreview", false, c.reviewOwnAccess),
			"localsubjectaccessreviews": newReviewEndpoint("localsubjectaccessreview", true, c.reviewLocalAccess),
			"selfsubjectrulesreviews":   newReviewEndpoint("selfsubjectrulesreview", false, c.reviewOwnRules),
		}),
	}
}

// reviewObject is a pointer to T that is an API object.
type reviewObject[T any] interface {
	*T
	runtime.Object
}

// answerReview sets the status of a review. The context is the request's.
type answerReview[P runtime.Object] func(ctx context.Context, review P) error

// reviewEndpoint serves one kind of review.
type reviewEndpoint[T any, P reviewObject[T]] struct {
	singular   string
	namespaced bool
	answer     answerReview[P]
}

func newReviewEndpoint[T any, P reviewObject[T]](singular string, namespaced bool, answer answerReview[P]) *reviewEndpoint[T, P] {
	return &reviewEndpoint[T, P]{singular, namespaced, answer}
}

// New implements rest.Storage.
func (r *reviewEndpoint[T, P]) New() runtime.Object { return P(new(T)) }

// Destroy implements rest.Storage.
func (r *reviewEndpoint[T, P]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *reviewEndpoint[T, P]) NamespaceScoped() bool { return r.namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (r *reviewEndpoint[T, P]) GetSingularName() string { return r.singular }

// Create implements rest.Creater.
func (r *reviewEndpoint[T, P]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review := obj.(P)
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.answer(ctx, review); err != nil {
		return nil, err
	}
	return review, nil
}

// validateMetadata requires that a review has no metadata, except the namespace of a local one.
func validateMetadata(meta metav1.ObjectMeta, namespace string) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{Namespace: namespace}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "must be empty except for namespace")}
}
