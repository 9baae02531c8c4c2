package accesscontrol

import (
	"context"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func (c reviews) reviewAccess(ctx context.Context, r *authorizationv1.SubjectAccessReview) error {
	errs := append(validateMetadata(r.ObjectMeta, ""), validateSubject(r.Spec)...)
	errs = append(errs, validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)...)
	if len(errs) > 0 {
		return invalid("SubjectAccessReview", errs)
	}
	r.Status = c.decide(ctx, subjectOf(r.Spec), r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return nil
}

func (c reviews) reviewLocalAccess(ctx context.Context, r *authorizationv1.LocalSubjectAccessReview) error {
	namespace, ok := genericrequest.NamespaceFrom(ctx)
	if !ok {
		return apierrors.NewBadRequest("no namespace on request")
	}
	spec := field.NewPath("spec")
	errs := append(validateMetadata(r.ObjectMeta, namespace), validateSubject(r.Spec)...)
	errs = append(errs, validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)...)
	switch attributes := r.Spec.ResourceAttributes; {
	case r.Spec.NonResourceAttributes != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), r.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	case attributes != nil && attributes.Namespace != namespace:
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes", "namespace"), attributes.Namespace, "must match metadata.namespace"))
	}
	if len(errs) > 0 {
		return invalid("LocalSubjectAccessReview", errs)
	}
	r.Status = c.decide(ctx, subjectOf(r.Spec), r.Spec.ResourceAttributes, nil)
	return nil
}

func (c reviews) reviewOwnAccess(ctx context.Context, r *authorizationv1.SelfSubjectAccessReview) error {
	errs := append(validateMetadata(r.ObjectMeta, ""), validateAttributes(r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)...)
	if len(errs) > 0 {
		return invalid("SelfSubjectAccessReview", errs)
	}
	self, err := requestUser(ctx)
	if err != nil {
		return err
	}
	r.Status = c.decide(ctx, self, r.Spec.ResourceAttributes, r.Spec.NonResourceAttributes)
	return nil
}

func (c reviews) reviewOwnRules(ctx context.Context, r *authorizationv1.SelfSubjectRulesReview) error {
	self, err := requestUser(ctx)
	if err != nil {
		return err
	}
	if r.Spec.Namespace == "" {
		return apierrors.NewBadRequest("no namespace on request")
	}
	resources, paths, incomplete, err := c.Rules.RulesFor(ctx, self, r.Spec.Namespace)
	r.Status = authorizationv1.SubjectRulesReviewStatus{
		ResourceRules: []authorizationv1.ResourceRule{}, NonResourceRules: []authorizationv1.NonResourceRule{}, Incomplete: incomplete,
	}
	for _, rule := range resources {
		r.Status.ResourceRules = append(r.Status.ResourceRules, authorizationv1.ResourceRule{
			Verbs: rule.GetVerbs(), APIGroups: rule.GetAPIGroups(), Resources: rule.GetResources(), ResourceNames: rule.GetResourceNames(),
		})
	}
	for _, rule := range paths {
		r.Status.NonResourceRules = append(r.Status.NonResourceRules, authorizationv1.NonResourceRule{Verbs: rule.GetVerbs(), NonResourceURLs: rule.GetNonResourceURLs()})
	}
	if err != nil {
		r.Status.EvaluationError = err.Error()
	}
	return nil
}

func (c reviews) decide(ctx context.Context, u user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	attributes := attributesOf(u, resource, path)
	decision, reason, err := c.Authorizer.Authorize(ctx, attributes)
	status := authorizationv1.SubjectAccessReviewStatus{
		Allowed: decision == authorizer.DecisionAllow, Denied: decision == authorizer.DecisionDeny, Reason: reason,
	}
	status.EvaluationError = evaluationError(err, attributes)
	return status
}

func attributesOf(u user.Info, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizer.AttributesRecord {
	if resource == nil {
		return authorizer.AttributesRecord{User: u, Verb: path.Verb, Path: path.Path}
	}
	version := resource.Version
	if version == "" {
		version = "*"
	}
	a := authorizer.AttributesRecord{
		User: u, ResourceRequest: true, Verb: resource.Verb, Namespace: resource.Namespace, APIGroup: resource.Group, APIVersion: version,
		Resource: resource.Resource, Subresource: resource.Subresource, Name: resource.Name,
	}
	if resource.FieldSelector != nil {
		a.FieldSelectorRequirements, a.FieldSelectorParsingErr = fieldRequirements(*resource.FieldSelector)
	}
	if resource.LabelSelector != nil {
		a.LabelSelectorRequirements, a.LabelSelectorParsingErr = labelRequirements(*resource.LabelSelector)
	}
	return a
}

func subjectOf(spec authorizationv1.SubjectAccessReviewSpec) user.Info {
	extra := map[string][]string{}
	for key, values := range spec.Extra {
		extra[key] = values
	}
	return &user.DefaultInfo{Name: spec.User, UID: spec.UID, Groups: spec.Groups, Extra: extra}
}

func requestUser(ctx context.Context) (user.Info, error) {
	self, ok := genericrequest.UserFrom(ctx)
	if !ok {
		return nil, apierrors.NewBadRequest("no user present on request")
	}
	return self, nil
}

func validateSubject(spec authorizationv1.SubjectAccessReviewSpec) field.ErrorList {
	if spec.User == "" && len(spec.Groups) == 0 {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "user"), spec.User, "at least one of user or group must be specified")}
	}
	return nil
}

func validateAttributes(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	at := field.NewPath("spec").Child("resourceAttributes")
	switch {
	case resource != nil && path != nil:
		return field.ErrorList{field.Invalid(field.NewPath("spec", "nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes")}
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(at, resource, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	case resource != nil:
		return validateSelectors(*resource, at)
	default:
		return nil
	}
}

func invalid(kind string, errs field.ErrorList) error {
	return validate.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName, Kind: kind}, "", errs)
}
