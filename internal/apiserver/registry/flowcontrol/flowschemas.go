package flowcontrol

import (
	"slices"
	"strconv"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func flowSchemas() registry.Resource {
	return registry.Define[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList](registry.Resource{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		Kind:         "FlowSchema",
		Plural:       "flowschemas",
		ValidateName: apivalidation.NameIsDNSSubdomain,

		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("PriorityLevel", "Priority level of its requests.", func(f *flowcontrolv1.FlowSchema) string { return f.Spec.PriorityLevelConfiguration.Name }),
		table.Number("MatchingPrecedence", "Of the flow schemas that match a request, the one with the lowest precedence applies.", func(f *flowcontrolv1.FlowSchema) int { return int(f.Spec.MatchingPrecedence) }),
		table.Text("DistinguisherMethod", "How requests are grouped into flows.", func(f *flowcontrolv1.FlowSchema) string {
			if f.Spec.DistinguisherMethod == nil {
				return table.None
			}
			return string(f.Spec.DistinguisherMethod.Type)
		}),
		table.Age(),
		table.Text("MissingPL", "Whether its priority level is missing.", missingLevel),
	}, registry.Strategy[*flowcontrolv1.FlowSchema]{
		Default:  func(f *flowcontrolv1.FlowSchema) { registry.SetDefault(&f.Spec.MatchingPrecedence, defaultPrecedence) },
		Validate: validateFlowSchema,
		ValidateStatusUpdate: func(f, _ *flowcontrolv1.FlowSchema) field.ErrorList {
			kind := func(c flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) }
			return validateConditions(f.Status.Conditions, kind)
		},
		Desired:    func(f *flowcontrolv1.FlowSchema) any { return f.Spec },
		CopyStatus: registry.CopyField(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaStatus { return &f.Status }),
		// The server creates the default flow schemas after their priority levels, and says in
		// the status that they exist.
		KeepStatusOnCreate: true,
	})
}

func missingLevel(f *flowcontrolv1.FlowSchema) string {
	for _, c := range f.Status.Conditions {
		if c.Type == flowcontrolv1.FlowSchemaConditionDangling {
			return string(c.Status)
		}
	}
	return "?"
}

func validateFlowSchema(f *flowcontrolv1.FlowSchema) field.ErrorList {
	spec := field.NewPath("spec")
	level := spec.Child("priorityLevelConfiguration", "name")
	errs := slices.Concat(
		validatePrecedence(f.Spec.MatchingPrecedence, f.Name, spec.Child("matchingPrecedence")),
		validate.OptionalSubdomain(f.Spec.PriorityLevelConfiguration.Name, level),
		validate.Each(f.Spec.Rules, spec.Child("rules"), validateFlowRule),
	)
	if f.Spec.PriorityLevelConfiguration.Name == "" {
		errs = append(errs, field.Required(level, "must reference a priority level"))
	}
	methods := []flowcontrolv1.FlowDistinguisherMethodType{
		flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType,
	}
	if m := f.Spec.DistinguisherMethod; m != nil && !slices.Contains(methods, m.Type) {
		// As upstream, the error is about the type and shows the whole method.
		errs = append(errs, field.NotSupported(spec.Child("distinguisherMethod", "type"), m, methods))
	}
	return append(errs, validateMandatorySchema(f, spec)...)
}

func validatePrecedence(precedence int32, name string, at *field.Path) field.ErrorList {
	switch {
	case precedence <= 0:
		return field.ErrorList{field.Invalid(at, precedence, "must be a positive value")}
	case precedence > maxPrecedence:
		return field.ErrorList{field.Invalid(at, precedence, "must not be greater than "+strconv.Itoa(maxPrecedence))}
	case precedence == 1 && name != flowcontrolv1.FlowSchemaNameExempt:
		return field.ErrorList{field.Invalid(at, precedence, "only the schema named 'exempt' may have matchingPrecedence 1")}
	}
	return nil
}

func validateFlowRule(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) field.ErrorList {
	errs := atLeastOne(r.Subjects, at.Child("subjects"), "subjects must contain at least one value")
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	return slices.Concat(errs,
		validate.Each(r.Subjects, at.Child("subjects"), validateFlowSubject),
		validate.Each(r.ResourceRules, at.Child("resourceRules"), validateResourceRule),
		validate.Each(r.NonResourceRules, at.Child("nonResourceRules"), validateNonResourceRule))
}

func validateResourceRule(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
	groups, resources := at.Child("apiGroups"), at.Child("resources")
	errs := slices.Concat(
		validateVerbs(r.Verbs, at.Child("verbs")),
		atLeastOne(r.APIGroups, groups, "resource rules must supply at least one api group"),
		allOrSome(r.APIGroups, groups, "api groups"),
		atLeastOne(r.Resources, resources, "resource rules must supply at least one resource"),
		allOrSome(r.Resources, resources, "resources"))
	if len(r.Namespaces) == 0 && !r.ClusterScope {
		errs = append(errs, field.Required(at.Child("namespaces"), "resource rules that are not cluster scoped must supply at least one namespace"))
	}
	return append(errs, validateFlowNamespaces(r.Namespaces, at.Child("namespaces"))...)
}

func validateNonResourceRule(r *flowcontrolv1.NonResourcePolicyRule, at *field.Path) field.ErrorList {
	paths := at.Child("nonResourceURLs")
	errs := append(
		validateVerbs(r.Verbs, at.Child("verbs")),
		atLeastOne(r.NonResourceURLs, paths, "nonResourceURLs must contain at least one value")...)
	if slices.Contains(r.NonResourceURLs, flowcontrolv1.NonResourceAll) {
		return append(errs, allOrSome(r.NonResourceURLs, paths, "non-resource URLs")...)
	}
	return append(errs, validate.Each(r.NonResourceURLs, paths, validateURLPath)...)
}

// validateURLPath checks a path, or a prefix of paths, which ends with "/*".
func validateURLPath(path *string, at *field.Path) field.ErrorList {
	complaint := ""
	switch {
	case *path == "":
		complaint = "must not be empty"
	case !strings.HasPrefix(*path, "/"):
		complaint = "must start with slash"
	case strings.Contains(*path, " "):
		complaint = "must not contain white-space"
	case strings.Contains(*path, "//"):
		complaint = "must not contain double slash"
	case strings.Contains(strings.TrimSuffix(*path, "/*"), "*"):
		complaint = "wildcard can only do suffix matching"
	default:
		return nil
	}
	return field.ErrorList{field.Invalid(at, *path, complaint)}
}

// verbs returns the verbs that a rule may list. Rules for non-resource paths have the same ones as rules for resources.
func verbs() []string {
	return []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
}

// validateVerbs checks that a list has known verbs only, or "*".
func validateVerbs(listed []string, at *field.Path) field.ErrorList {
	known := verbs()
	switch {
	case len(listed) == 0 || slices.Contains(listed, flowcontrolv1.VerbAll):
		return append(atLeastOne(listed, at, "verbs must contain at least one value"), allOrSome(listed, at, "verbs")...)
	case slices.ContainsFunc(listed, func(verb string) bool { return !slices.Contains(known, verb) }):
		return field.ErrorList{field.NotSupported(at, listed, known)}
	}
	return nil
}

// atLeastOne checks that a list is not empty.
func atLeastOne[T any](values []T, at *field.Path, complaint string) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(at, complaint)}
	}
	return nil
}

// allOrSome checks that a list with "*" has no other element. things names the elements in the error.
func allOrSome(values []string, at *field.Path, things string) field.ErrorList {
	if len(values) > 1 && slices.Contains(values, "*") {
		return field.ErrorList{field.Invalid(at, values, "if '*' is present, must not specify other "+things)}
	}
	return nil
}

// validateFlowNamespaces checks the namespaces of a rule, or "*" for all of them.
func validateFlowNamespaces(namespaces []string, at *field.Path) field.ErrorList {
	if slices.Contains(namespaces, flowcontrolv1.NamespaceEvery) {
		return allOrSome(namespaces, at, "namespaces")
	}
	return validate.Each(namespaces, at, func(name *string, at *field.Path) field.ErrorList {
		var errs field.ErrorList
		for _, complaint := range apivalidation.ValidateNamespaceName(*name, false) {
			errs = append(errs, field.Invalid(at, *name, "each member of this list must be '*' or a DNS-1123 label; "+complaint))
		}
		return errs
	})
}

// validateFlowSubject checks that a subject has exactly the field that its kind names.
func validateFlowSubject(s *flowcontrolv1.Subject, at *field.Path) field.ErrorList {
	errs := validate.OneOfPtr(&s.Kind, at.Child("kind"),
		flowcontrolv1.SubjectKindUser, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount)
	if len(errs) > 0 {
		return errs
	}
	for _, of := range []struct {
		kind  flowcontrolv1.SubjectKind
		path  string
		given bool
	}{
		{flowcontrolv1.SubjectKindUser, "user", s.User != nil},
		{flowcontrolv1.SubjectKindGroup, "group", s.Group != nil},
		{flowcontrolv1.SubjectKindServiceAccount, "serviceAccount", s.ServiceAccount != nil},
	} {
		switch {
		case s.Kind == of.kind && !of.given:
			errs = append(errs, field.Required(at.Child(of.path), of.path+" is required when subject kind is '"+string(of.kind)+"'"))
		case s.Kind != of.kind && of.given:
			errs = append(errs, field.Forbidden(at.Child(of.path), of.path+" is forbidden when subject kind is not '"+string(of.kind)+"'"))
		}
	}
	switch {
	case s.Kind == flowcontrolv1.SubjectKindUser && s.User != nil:
		errs = append(errs, validate.Required(s.User.Name, at.Child("user", "name"))...)
	case s.Kind == flowcontrolv1.SubjectKindGroup && s.Group != nil:
		errs = append(errs, validate.Required(s.Group.Name, at.Child("group", "name"))...)
	case s.Kind == flowcontrolv1.SubjectKindServiceAccount && s.ServiceAccount != nil:
		errs = append(errs, validateFlowServiceAccount(s.ServiceAccount, at.Child("serviceAccount"))...)
	}
	return errs
}

// validateFlowServiceAccount checks a subject for one service account, or for all service accounts of a namespace.
func validateFlowServiceAccount(s *flowcontrolv1.ServiceAccountSubject, at *field.Path) field.ErrorList {
	errs := validate.Required(s.Name, at.Child("name"))
	if s.Name != "" && s.Name != flowcontrolv1.NameAll {
		errs = append(errs, validate.FromMessages(s.Name, at.Child("name"), apivalidation.ValidateServiceAccountName(s.Name, false))...)
	}
	if s.Namespace == "" {
		return append(errs, field.Required(at.Child("namespace"), "must specify namespace for service account"))
	}
	return append(errs, validate.FromMessages(s.Namespace, at.Child("namespace"), apivalidation.ValidateNamespaceName(s.Namespace, false))...)
}
