// Package reviews answers questions about who a caller is and what somebody may do: the
// kinds of authentication.k8s.io and authorization.k8s.io. They are created and answered,
// and never stored. kubectl auth can-i and kubectl auth whoami ask them.
package reviews

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

// Config is what the answers come from. All fields are required.
type Config struct {
	Authorizer authorizer.UnconditionalAuthorizer
	Rules      authorizer.RuleResolver
	Tokens     authenticator.Token
	// Audiences are those that a token is good for when a review names none.
	Audiences authenticator.Audiences
}

// Groups are the API groups, as the server installs them.
func Groups(schemes registry.Schemes, c Config) []*genericapiserver.APIGroupInfo {
	group := func(name string, storages map[string]rest.Storage) *genericapiserver.APIGroupInfo {
		info := genericapiserver.NewDefaultAPIGroupInfo(name, schemes.Hub, schemes.ParameterCodec, schemes.Codecs)
		info.VersionedResourcesStorageMap["v1"] = storages
		return &info
	}
	return []*genericapiserver.APIGroupInfo{
		group(authenticationv1.GroupName, map[string]rest.Storage{
			"tokenreviews":       newReview("tokenreview", false, c.reviewToken),
			"selfsubjectreviews": newReview("selfsubjectreview", false, reviewSelf),
		}),
		group(authorizationv1.GroupName, map[string]rest.Storage{
			"subjectaccessreviews":      newReview("subjectaccessreview", false, c.reviewAccess),
			"selfsubjectaccessreviews":  newReview("selfsubjectaccessreview", false, c.reviewOwnAccess),
			"localsubjectaccessreviews": newReview("localsubjectaccessreview", true, c.reviewLocalAccess),
			"selfsubjectrulesreviews":   newReview("selfsubjectrulesreview", false, c.reviewOwnRules),
		}),
	}
}

// object is a pointer to T that is an API object.
type object[T any] interface {
	*T
	runtime.Object
}

// answer completes a question with its answer. The context is the request's.
type answer[P runtime.Object] func(ctx context.Context, question P) error

// review is the endpoint of one kind of question.
type review[T any, P object[T]] struct {
	singular   string
	namespaced bool
	answer     answer[P]
}

func newReview[T any, P object[T]](singular string, namespaced bool, answer answer[P]) *review[T, P] {
	return &review[T, P]{singular, namespaced, answer}
}

// New implements rest.Storage.
func (r *review[T, P]) New() runtime.Object { return P(new(T)) }

// Destroy implements rest.Storage.
func (r *review[T, P]) Destroy() {}

// NamespaceScoped implements rest.Scoper.
func (r *review[T, P]) NamespaceScoped() bool { return r.namespaced }

// GetSingularName implements rest.SingularNameProvider.
func (r *review[T, P]) GetSingularName() string { return r.singular }

// Create implements rest.Creater.
func (r *review[T, P]) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	question := obj.(P)
	if validate != nil {
		if err := validate(ctx, obj.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	if err := r.answer(ctx, question); err != nil {
		return nil, err
	}
	return question, nil
}

// noMetadata: a question has no name and no place; of a local one, only the namespace.
func noMetadata(meta metav1.ObjectMeta, namespace string) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{Namespace: namespace}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, "must be empty except for namespace")}
}
