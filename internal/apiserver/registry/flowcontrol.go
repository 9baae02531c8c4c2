package registry

import (
	"slices"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func flowcontrolKinds() []Kind { return []Kind{flowSchemas(), priorityLevels()} }

// The defaults and bounds of the API.
const (
	defaultPrecedence = 1000
	maxPrecedence     = 10000
	defaultShares     = 30
	defaultQueues     = 64
	defaultHandSize   = 8
	defaultQueueLimit = 50
)

func flowSchemas() Kind {
	return define[flowcontrolv1.FlowSchema, flowcontrolv1.FlowSchemaList](Kind{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		Kind:         "FlowSchema",
		Resource:     "flowschemas",
		Why:          "Says which requests belong together, so that a flood of some does not stop the others, collection among them.",
		Name:         apivalidation.NameIsDNSSubdomain,

		UnconditionalUpdate: true,
	}, []column{
		text("PriorityLevel", "Priority level of its requests.", func(f *flowcontrolv1.FlowSchema) string { return f.Spec.PriorityLevelConfiguration.Name }),
		number("MatchingPrecedence", "Of those that match, the one with the lowest is taken.", func(f *flowcontrolv1.FlowSchema) int { return int(f.Spec.MatchingPrecedence) }),
		text("DistinguisherMethod", "What tells its flows apart.", func(f *flowcontrolv1.FlowSchema) string {
			if f.Spec.DistinguisherMethod == nil {
				return none
			}
			return string(f.Spec.DistinguisherMethod.Type)
		}),
		ageColumn(),
		text("MissingPL", "Whether its priority level is missing.", missingLevel),
	}, behaviour[*flowcontrolv1.FlowSchema]{
		defaults: func(f *flowcontrolv1.FlowSchema) { setDefault(&f.Spec.MatchingPrecedence, defaultPrecedence) },
		validate: validateFlowSchema,
		desired:  func(f *flowcontrolv1.FlowSchema) any { return f.Spec },
		status:   part(func(f *flowcontrolv1.FlowSchema) *flowcontrolv1.FlowSchemaStatus { return &f.Status }),
		// Who makes the default ones knows that their levels exist.
		statusFromCreator: true,
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
		inRange(f.Spec.MatchingPrecedence, spec.Child("matchingPrecedence"), 1, maxPrecedence),
		required(f.Spec.PriorityLevelConfiguration.Name, spec.Child("priorityLevelConfiguration", "name")),
		each(f.Spec.Rules, spec.Child("rules"), validateFlowRule),
	)
	if f.Spec.MatchingPrecedence == 1 && f.Name != flowcontrolv1.FlowSchemaNameExempt {
		errs = append(errs, field.Invalid(spec.Child("matchingPrecedence"), f.Spec.MatchingPrecedence, "only the schema named 'exempt' may have matchingPrecedence 1"))
	}
	if m := f.Spec.DistinguisherMethod; m != nil {
		errs = append(errs, oneOf(m.Type, spec.Child("distinguisherMethod", "type"),
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
	errs = append(errs, each(r.Subjects, at.Child("subjects"), validateFlowSubject)...)
	errs = append(errs, each(r.ResourceRules, at.Child("resourceRules"), func(r *flowcontrolv1.ResourcePolicyRule, at *field.Path) field.ErrorList {
		errs := slices.Concat(notEmpty(r.Verbs, at.Child("verbs")), notEmpty(r.APIGroups, at.Child("apiGroups")), notEmpty(r.Resources, at.Child("resources")))
		if len(r.Namespaces) == 0 && !r.ClusterScope {
			errs = append(errs, field.Required(at.Child("namespaces"), "resource rules that are not cluster scoped must supply at least one namespace"))
		}
		return errs
	})...)
	return append(errs, each(r.NonResourceRules, at.Child("nonResourceRules"), func(r *flowcontrolv1.NonResourcePolicyRule, at *field.Path) field.ErrorList {
		return append(notEmpty(r.Verbs, at.Child("verbs")), notEmpty(r.NonResourceURLs, at.Child("nonResourceURLs"))...)
	})...)
}

// validateFlowSubject: the kind says which of the three the subject is.
func validateFlowSubject(s *flowcontrolv1.Subject, at *field.Path) field.ErrorList {
	errs := oneOf(s.Kind, at.Child("kind"), flowcontrolv1.SubjectKindUser, flowcontrolv1.SubjectKindGroup, flowcontrolv1.SubjectKindServiceAccount)
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
	return errs
}

func notEmpty(values []string, at *field.Path) field.ErrorList {
	if len(values) == 0 {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

func priorityLevels() Kind {
	return define[flowcontrolv1.PriorityLevelConfiguration, flowcontrolv1.PriorityLevelConfigurationList](Kind{
		GroupVersion: flowcontrolv1.SchemeGroupVersion,
		Kind:         "PriorityLevelConfiguration",
		Resource:     "prioritylevelconfigurations",
		Why:          "How many requests of one priority are worked on at a time, and how many may wait.",
		Name:         apivalidation.NameIsDNSSubdomain,

		UnconditionalUpdate: true,
	}, []column{
		text("Type", "Whether it is limited.", func(p *flowcontrolv1.PriorityLevelConfiguration) string { return string(p.Spec.Type) }),
		text("NominalConcurrencyShares", "Its share of what the server works on at a time.", func(p *flowcontrolv1.PriorityLevelConfiguration) string {
			if p.Spec.Limited == nil {
				return none
			}
			return strconv.Itoa(int(deref(p.Spec.Limited.NominalConcurrencyShares, defaultShares)))
		}),
		ageColumn(),
	}, behaviour[*flowcontrolv1.PriorityLevelConfiguration]{
		defaults: defaultPriorityLevel,
		validate: validatePriorityLevel,
		desired:  func(p *flowcontrolv1.PriorityLevelConfiguration) any { return p.Spec },
		status: part(func(p *flowcontrolv1.PriorityLevelConfiguration) *flowcontrolv1.PriorityLevelConfigurationStatus {
			return &p.Status
		}),
	})
}

func defaultPriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := p.Spec.Exempt; exempt != nil {
		setDefaultPtr(&exempt.NominalConcurrencyShares, 0)
		setDefaultPtr(&exempt.LendablePercent, 0)
	}
	limited := p.Spec.Limited
	if limited == nil {
		return
	}
	setDefaultPtr(&limited.NominalConcurrencyShares, defaultShares)
	setDefaultPtr(&limited.LendablePercent, 0)
	if queuing := limited.LimitResponse.Queuing; queuing != nil {
		setDefault(&queuing.Queues, defaultQueues)
		setDefault(&queuing.HandSize, defaultHandSize)
		setDefault(&queuing.QueueLengthLimit, defaultQueueLimit)
	}
}

func validatePriorityLevel(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
	spec := field.NewPath("spec")
	errs := oneOf(p.Spec.Type, spec.Child("type"), flowcontrolv1.PriorityLevelEnablementExempt, flowcontrolv1.PriorityLevelEnablementLimited)
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
		notNegative(l.NominalConcurrencyShares, at.Child("nominalConcurrencyShares")),
		inRange(deref(l.LendablePercent, 0), at.Child("lendablePercent"), 0, 100),
		notNegative(l.BorrowingLimitPercent, at.Child("borrowingLimitPercent")),
		oneOf(l.LimitResponse.Type, response.Child("type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject),
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
		positive(&q.Queues, queuing.Child("queues")), positive(&q.HandSize, queuing.Child("handSize")), positive(&q.QueueLengthLimit, queuing.Child("queueLengthLimit")))
	if q.HandSize > q.Queues {
		errs = append(errs, field.Invalid(queuing.Child("handSize"), q.HandSize, "should not be greater than queues ("+strconv.Itoa(int(q.Queues))+")"))
	}
	return errs
}
