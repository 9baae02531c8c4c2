package flowcontrol

import (
	"fmt"
	"slices"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/flowcontrol/bootstrap"
)

// The server maintains the mandatory objects and reverts changes to them. Validation refuses such a change, so that no
// user believes that it has an effect.

// validateMandatorySchema checks that a mandatory flow schema has its fixed spec.
func validateMandatorySchema(f *flowcontrolv1.FlowSchema, spec *field.Path) field.ErrorList {
	i := slices.IndexFunc(bootstrap.MandatoryFlowSchemas, func(m *flowcontrolv1.FlowSchema) bool { return m.Name == f.Name })
	if i < 0 || equality.Semantic.DeepEqual(f.Spec, bootstrap.MandatoryFlowSchemas[i].Spec) {
		return nil
	}
	return field.ErrorList{field.Invalid(spec, f.Spec, fmt.Sprintf("spec of '%s' must equal the fixed value", f.Name))}
}

// validateMandatoryLevel checks that a mandatory priority level has its fixed spec. Clients may change spec.exempt of
// the exempt level: its shares determine how much concurrency other levels can borrow from it.
func validateMandatoryLevel(p *flowcontrolv1.PriorityLevelConfiguration, spec *field.Path) field.ErrorList {
	i := slices.IndexFunc(bootstrap.MandatoryPriorityLevelConfigurations, func(m *flowcontrolv1.PriorityLevelConfiguration) bool { return m.Name == p.Name })
	if i < 0 {
		return nil
	}
	fixed, given, which := bootstrap.MandatoryPriorityLevelConfigurations[i].Spec, p.Spec, "spec of '%s' must equal the fixed value"
	if p.Name == flowcontrolv1.PriorityLevelConfigurationNameExempt {
		given.Exempt, which = fixed.Exempt, "spec of '%s' except the 'spec.exempt' field must equal the fixed value"
	}
	if equality.Semantic.DeepEqual(given, fixed) {
		return nil
	}
	return field.ErrorList{field.Invalid(spec, p.Spec, fmt.Sprintf(which, p.Name))}
}
