package flowcontrol

import (
	"fmt"
	"strconv"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/util/shufflesharding"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

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
		Default: defaultPriorityLevel,
		Validate: func(p *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			return append(validatePriorityLevel(p), validateMandatoryLevel(p, field.NewPath("spec"))...)
		},
		ValidateStatusUpdate: func(p, _ *flowcontrolv1.PriorityLevelConfiguration) field.ErrorList {
			kind := func(c flowcontrolv1.PriorityLevelConfigurationCondition) string { return string(c.Type) }
			return validateConditions(p.Status.Conditions, kind)
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
	if (p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt) != (p.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt) {
		errs = append(errs, field.Invalid(spec.Child("type"), p.Spec.Type, "must be 'Exempt' if and only if `name` is 'exempt'"))
	}
	limited, exempt := spec.Child("limited"), spec.Child("exempt")
	if p.Spec.Type != flowcontrolv1.PriorityLevelEnablementLimited && p.Spec.Limited != nil {
		response := &p.Spec.Limited.LimitResponse
		errs = append(errs, field.Forbidden(limited, ""))
		errs = append(errs, validate.Required(response.Type, limited.Child("limitResponse", "type"))...)
		errs = append(errs, validateQueues(response, limited.Child("limitResponse", "queuing"))...)
	}
	if p.Spec.Type != flowcontrolv1.PriorityLevelEnablementExempt && p.Spec.Exempt != nil {
		errs = append(errs, field.Forbidden(exempt, ""))
	}
	switch e := p.Spec.Exempt; p.Spec.Type {
	case flowcontrolv1.PriorityLevelEnablementExempt:
		if e != nil {
			errs = append(errs, validateShares(e.NominalConcurrencyShares, e.LendablePercent, exempt)...)
		}
	case flowcontrolv1.PriorityLevelEnablementLimited:
		if p.Spec.Limited == nil {
			return append(errs, field.Required(limited, ""))
		}
		errs = append(errs, validateLimited(p.Spec.Limited, limited)...)
	default: // reported above
	}
	return errs
}

// validateShares checks a level's share of the server's concurrency, and the percentage of it that other levels may
// borrow.
func validateShares(shares, lendable *int32, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if ptr.Deref(shares, 0) < 0 {
		errs = append(errs, field.Invalid(at.Child("nominalConcurrencyShares"), *shares, "must be a non-negative integer"))
	}
	return append(errs, validate.InRange(ptr.Deref(lendable, 0), at.Child("lendablePercent"), 0, 100)...)
}

func validateLimited(l *flowcontrolv1.LimitedPriorityLevelConfiguration, at *field.Path) field.ErrorList {
	response, queuing := at.Child("limitResponse"), at.Child("limitResponse", "queuing")
	errs := append(
		validateShares(l.NominalConcurrencyShares, l.LendablePercent, at),
		validate.OneOf(l.LimitResponse.Type, response.Child("type"), flowcontrolv1.LimitResponseTypeQueue, flowcontrolv1.LimitResponseTypeReject)...)
	if borrowed := l.BorrowingLimitPercent; ptr.Deref(borrowed, 0) < 0 {
		errs = append(errs, field.Invalid(at.Child("borrowingLimitPercent"), *borrowed, "if specified, must be a non-negative integer"))
	}
	errs = append(errs, validateQueues(&l.LimitResponse, queuing)...)
	if q := l.LimitResponse.Queuing; q != nil && l.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue {
		errs = append(errs, validateQueuing(q, queuing)...)
	}
	return errs
}

// validateQueues checks that requests have queues if they wait, and only then.
func validateQueues(r *flowcontrolv1.LimitResponse, queuing *field.Path) field.ErrorList {
	switch waits := r.Type == flowcontrolv1.LimitResponseTypeQueue; {
	case waits && r.Queuing == nil:
		return field.ErrorList{field.Required(queuing, "")}
	case !waits && r.Queuing != nil:
		return field.ErrorList{field.Forbidden(queuing, "")}
	}
	return nil
}

// validateQueuing checks the queues of a level and the hand size of its flows: the hash of a flow must have enough bits
// to deal a hand of queues.
func validateQueuing(q *flowcontrolv1.QueuingConfiguration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	invalid := func(name string, value int32, complaint string) {
		errs = append(errs, field.Invalid(at.Child(name), value, complaint))
	}
	if q.QueueLengthLimit <= 0 {
		invalid("queueLengthLimit", q.QueueLengthLimit, "must be positive")
	}
	switch {
	case q.Queues <= 0:
		invalid("queues", q.Queues, "must be positive")
	case q.Queues > maxQueues:
		invalid("queues", q.Queues, fmt.Sprintf("must not be greater than %d", maxQueues))
	}
	switch {
	case q.HandSize <= 0:
		invalid("handSize", q.HandSize, "must be positive")
	case q.HandSize > q.Queues:
		invalid("handSize", q.HandSize, fmt.Sprintf("should not be greater than queues (%d)", q.Queues))
	case shufflesharding.RequiredEntropyBits(int(q.Queues), int(q.HandSize)) > shufflesharding.MaxHashBits:
		invalid("handSize", q.HandSize, fmt.Sprintf("required entropy bits of deckSize %d and handSize %d should not be greater than %d",
			q.Queues, q.HandSize, shufflesharding.MaxHashBits))
	}
	return errs
}
