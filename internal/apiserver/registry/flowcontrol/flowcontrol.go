// Package flowcontrol is the API group flowcontrol.apiserver.k8s.io: the configuration of
// API Priority and Fairness.
package flowcontrol

import (
	"slices"
	"strconv"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Group returns the API group flowcontrol.apiserver.k8s.io/v1.
func Group() registry.Group {
	return registry.Group{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		AddToScheme:  flowcontrolv1.AddToScheme,
		Resources:    []registry.Resource{flowSchemas(), priorityLevels()},
	}
}

// The defaults and bounds of the API.
const (
	defaultPrecedence = 1000
	maxPrecedence     = 10000
	defaultShares     = 30
	defaultQueues     = 64
	defaultHandSize   = 8
	defaultQueueLimit = 50
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
			return validateConditions(f.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) string { return string(c.Type) })
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
	errs := slices.Concat(
		validate.InRange(f.Spec.MatchingPrecedence, spec.Child("matchingPrecedence"), 1, maxPrecedence),
		validate.Required(f.Spec.PriorityLevelConfiguration.Name, spec.Child("priorityLevelConfiguration", "name")),
		validate.OptionalSubdomain(f.Spec.PriorityLevelConfiguration.Name, spec.Child("priorityLevelConfiguration", "name")),
		validate.Each(f.Spec.Rules, spec.Child("rules"), validateFlowRule),
	)
	if f.Spec.MatchingPrecedence == 1 && f.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(spec.Child("matchingPrecedence"), f.Spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := f.Spec.DistinguisherMethod; m != nil {
		errs = append(errs, validate.OneOf(m.Type, spec.Child("distinguisherMethod", "type"),
			flowcontrolv1.FlowDistinguisherMethodByNamespaceType, flowcontrolv1.FlowDistinguisherMethodByUserType)...)
	}
	return errs
}

func validateFlowRule(r *flowcontrolv1.PolicyRulesWithSubjects, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(r.Subjects) == 0 {
		errs = append(errs, field.Required(at.Child("subjects"), "subjects must contain at least one value"))
	}
	if len(r.ResourceRules)+len(r.NonResourceRules) == 0 {
		errs = append(errs, field.Required(at, "at least one of resourceRules and nonResourceRules has to be non-empty"))
	}
	errs = append(errs, validate.Each(r.Subjects, at.Child("subjects"), validateFlowSubject)...)
	errs = append(errs, validate.Each(r.ResourceRules, at.Child("resourceRules"), func(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
		errs := slices.Concat(validateVerbs(r.Verbs, at.Child("verbs"), resourceVerbs()), notEmpty(r.APIGroups, at.Child("apiGroups")), notEmpty(r.Resources, at.Child("resources")))
		if len(r.Namespaces) == 0 && !r.ClusterScope {
			errs = append(errs, field.Required(at.Child("namespaces"), "resource rules that are not cluster scoped must supply at least one namespace"))
		}
		return append(errs, validateFlowNamespaces(r.Namespaces, at.Child("namespaces"))...)
	})...)
	return append(errs, validate.Each(r.NonResourceRules, at.Child("nonResourceRules"), func(r *flowcontrolv1.NonResourcePolicyRule, at *field.Path) field.ErrorList {
		errs := append(validateVerbs(r.Verbs, at.Child("verbs"), nonResourceVerbs()), notEmpty(r.NonResourceURLs, at.Child("nonResourceURLs"))...)
		return append(errs, validate.Each(r.NonResourceURLs, at.Child("nonResourceURLs"), func(path *string, at *field.Path) field.ErrorList {
			if *path != flowcontrolv1.NonResourceAll && !strings.HasPrefix(*path, "/") {
				return field.ErrorList{field.Invalid(at, *path, "must start with slash")}
			}
			return nil
		})...)
	})...)
}

func resourceVerbs() []string {
	return []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "proxy"}
}

func nonResourceVerbs() []string {
	return []string{"get", "head", "post", "put", "patch", "delete", "options"}
}

// validateVerbs checks that the verbs are known, or all.
func validateVerbs(verbs []string, at *field.Path, known []string) field.ErrorList {
	if len(verbs) == 0 || slices.Contains(verbs, flowcontrolv1.VerbAll) {
		if len(verbs) > 1 {
			return field.ErrorList{field.Invalid(at, verbs, "if '*' is present, must not specify other verbs")}
		}
		return notEmpty(verbs, at)
	}
	if slices.ContainsFunc(verbs, func(verb string) bool { return !slices.Contains(known, verb) }) {
		return field.ErrorList{field.NotSupported(at, verbs, slices.Sorted(slices.Values(known)))}
	}
	return nil
}

// validateFlowNamespaces checks the namespaces of a rule, or that it is for all.
func validateFlowNamespaces(namespaces []string, at *field.Path) field.ErrorList {
	if len(namespaces) > 1 && slices.Contains(namespaces, flowcontrolv1.NamespaceEvery) {
		return field.ErrorList{field.Invalid(at, namespaces, "if '*' is present, must not specify other namespaces")}
	}
	return validate.Each(namespaces, at, func(name *string, at *field.Path) field.ErrorList {
		if *name == flowcontrolv1.NamespaceEvery {
			return nil
		}
		var errs field.ErrorList
		for _, complaint := range apivalidation.ValidateNamespaceName(*name, false) {
			errs = append(errs, field.Invalid(at, *name, "each member of this list must be '*' or a DNS-1123 label; "+complaint))
		}
		return errs
	})
}

// validateFlowSubject checks that the one of the three fields that the kind names is set.
func validateFlowSubject(s *flowcontrolv1.Subject, at *field.Path) field.ErrorList {
	errs := validate.OneOf(s.Kind, at.Child("kind"), flowcontrolv1.SubjectKindUser, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount)
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
			errs = append(errs, field.Required(at.Child(of.path), "required when subject kind is '"+string(of.kind)+"'"))
		case s.Kind != of.kind && of.given:
			errs = append(errs, field.Forbidden(at.Child(of.path), "forbidden when subject kind is not '"+string(of.kind)+"'"))
		}
	}
	if s.User != nil && s.Kind == flowcontrolv1.SubjectKindUser {
		errs = append(errs, validate.Required(s.User.Name, at.Child("user", "name"))...)
	}
	if s.Group != nil && s.Kind == flowcontrolv1.SubjectKindGroup {
		errs = append(errs, validate.Required(s.Group.Name, at.Child("group", "name"))...)
	}
	return errs
}

// validateConditions checks that the conditions of a status have types, each of its own.
func validateConditions[C any](conditions []C, kind func(C) string) field.ErrorList {
	path := field.NewPath("status", "conditions")
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range conditions {
		at := path.Index(i).Child("type")
		if seen[kind(c)] {
			errs = append(errs, field.Duplicate(at, kind(c)))
		}
		seen[kind(c)] = true
		errs = append(errs, validate.Required(kind(c), at)...)
	}
	return errs
}

func notEmpty(values []string, at *field.Path) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

func priorityLevels() registry.Resource {
	return registry.Define[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList](registry.Resource{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		Kind:         "PriorityLevelConfiguration",
		Plural:       "prioritylevelconfigurations",
		ValidateName: apivalidation.NameIsDNSSubdomain,

		UnconditionalUpdate: true,
	}, []table.Column{
		table.Text("Type", "Limited or Exempt.", func(p *flowcontrolv1.PriorityLevelConfiguration) string { return string(p.Spec.Type) }),
		table.Text("NominalConcurrencyShares", "Its share of the server's concurrency limit.", func(p *flowcontrolv1.PriorityLevelConfiguration) string {
			if p.Spec.Limited == nil {
				return table.None
			}
			return strconv.Itoa(int(ptr.Deref(p.Spec.Limited.NominalConcurrencyShares, defaultShares)))
		}),
		table.Age(),
	}, registry.Strategy[*flowcontrolv1.PriorityLevelConfiguration]{
		Default:  defaultPriorityLevel,
		Validate: validatePriorityLevel,
		ValidateStatusUpdate: func(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			return validateConditions(p.Status.Conditions, func(c flowcontrolv1.PriorityLevelConfigurationCondition) string { return string(c.Type) })
		},
		Desired: func(p *flowcontrolv1.PriorityLevelConfiguration) any { return p.Spec },
		CopyStatus: registry.CopyField(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationStatus {
			return &p.Status
		}),
	})
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := p.Spec.Exempt; exempt != nil {
		registry.SetDefaultPtr(&exempt.NominalConcurrencyShares, 0)
		registry.SetDefaultPtr(&exempt.LendablePercent, 0)
	}
	limited := p.Spec.Limited
	if limited == nil {
		return
	}
	registry.SetDefaultPtr(&limited.NominalConcurrencyShares, defaultShares)
	registry.SetDefaultPtr(&limited.LendablePercent, 0)
	if queuing := limited.LimitResponse.Queuing; queuing != nil {
		registry.SetDefault(&queuing.Queues, defaultQueues)
		registry.SetDefault(&queuing.HandSize, defaultHandSize)
		registry.SetDefault(&queuing.QueueLengthLimit, defaultQueueLimit)
	}
}

func validatePriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validate.OneOf(p.Spec.Type, spec.Child("type"), flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
	if (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) && len(errs) == 0 {
		errs = append(errs, field.Invalid(spec.Child("type"), p.Spec.Type, "type must be 'Exempt' if and only if name is 'exempt'"))
	}
	switch p.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if p.Spec.Limited != nil {
			errs = append(errs, field.Forbidden(spec.Child("limited"), "must be nil if the type is not Limited"))
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if p.Spec.Exempt != nil {
			errs = append(errs, field.Forbidden(spec.Child("exempt"), "must be nil if the type is Limited"))
		}
		if p.Spec.Limited == nil {
			return append(errs, field.Required(spec.Child("limited"), "must not be empty when type is Limited"))
		}
		errs = append(errs, validateLimited(p.Spec.Limited, spec.Child("limited"))...)
	default: // reported above
	}
	return errs
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) field.ErrorList {
	response, queuing := at.Child("limitResponse"), at.Child("limitResponse", "queuing")
	errs := slices.Concat(
		validate.NotNegative(l.NominalConcurrencyShares, at.Child("nominalConcurrencyShares")),
		validate.InRange(ptr.Deref(l.LendablePercent, 0), at.Child("lendablePercent"), 0, 100),
		validate.NotNegative(l.BorrowingLimitPercent, at.Child("borrowingLimitPercent")),
		validate.OneOf(l.LimitResponse.Type, response.Child("type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject),
	)
	q := l.LimitResponse.Queuing
	switch {
	case l.LimitResponse.Type == flowcontrolv1.LimitResponseTypeReject && q != nil:
		return append(errs, field.Forbidden(queuing, "must be nil if limited.limitResponse.type is not Limited"))
	case l.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue && q == nil:
		return append(errs, field.Required(queuing, "must not be empty if limited.limitResponse.type is Limited"))
	case q == nil:
		return errs
	}
	errs = slices.Concat(errs,
		validate.Positive(&q.Queues, queuing.Child("queues")), validate.Positive(&q.HandSize, queuing.Child("handSize")), validate.Positive(&q.QueueLengthLimit, queuing.Child("queueLengthLimit")))
	if q.HandSize > q.Queues {
		errs = append(errs, field.Invalid(queuing.Child("handSize"), q.HandSize, "should not be greater than queues ("+strconv.Itoa(int(q.Queues))+")"))
	}
	return errs
}
