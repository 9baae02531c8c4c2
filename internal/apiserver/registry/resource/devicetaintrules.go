package resource

import (
	"slices"
	"time"

	resourcev1 "k8s.io/api/resource/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// deviceTaintRules add a taint to devices of any driver.
func deviceTaintRules() registry.Resource {
	taint := func(r *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaint { return &r.Spec.Taint }
	return registry.Define[resourcev1.DeviceTaintRule, resourcev1.DeviceTaintRuleList](registry.Resource{
		GroupVersion: resourcev1.SchemeGroupVersion,
		Kind:         "DeviceTaintRule",
		Plural:       "devicetaintrules",
		ValidateName: apivalidation.NameIsDNSSubdomain,
	}, []table.Column{
		table.Text("Key", "The key of the taint.", func(r *resourcev1.DeviceTaintRule) string { return taint(r).Key }),
		table.Text("Value", "The value of the taint.", func(r *resourcev1.DeviceTaintRule) string { return taint(r).Value }),
		table.Text("Effect", "What the taint does to claims that do not tolerate it.", func(r *resourcev1.DeviceTaintRule) string {
			return string(taint(r).Effect)
		}),
		table.TextAt("TimeAdded", "Since when the taint has this effect.", addedAt),
		table.Age(),
	}, registry.Strategy[*resourcev1.DeviceTaintRule]{
		Default:          func(r *resourcev1.DeviceTaintRule) { defaultTaint(taint(r)) },
		Desired:          func(r *resourcev1.DeviceTaintRule) any { return r.Spec },
		PrepareForUpdate: dateEffect,
		ValidateIn: func(_ schema.GroupVersion, r, old *resourcev1.DeviceTaintRule) field.ErrorList {
			return validateTaintRule(r, old)
		},
		CopyStatus: registry.CopyField(func(r *resourcev1.DeviceTaintRule) *resourcev1.DeviceTaintRuleStatus { return &r.Status }),
		ValidateStatusUpdate: func(r, _ *resourcev1.DeviceTaintRule) field.ErrorList {
			return validateTaintConditions(r.Status.Conditions, field.NewPath("status", "conditions"))
		},
	})
}

// defaultTaint sets the time of a new taint.
func defaultTaint(t *resourcev1.DeviceTaint) {
	if t.TimeAdded == nil {
		t.TimeAdded = new(metav1.Now().Rfc3339Copy())
	}
}

// dateEffect sets the time of a taint whose effect changes, if the client has not: the time that a claim tolerates the
// taint begins anew.
func dateEffect(r, old *resourcev1.DeviceTaintRule) {
	if r.Spec.Taint.Effect != old.Spec.Taint.Effect && r.Spec.Taint.TimeAdded.Equal(old.Spec.Taint.TimeAdded) {
		r.Spec.Taint.TimeAdded = new(metav1.Now().Rfc3339Copy())
	}
}

// validateTaintRule checks a rule. An effect that is stored was valid when it was stored.
func validateTaintRule(r, old *resourcev1.DeviceTaintRule) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	if s := ptr.Deref(r.Spec.DeviceSelector, resourcev1.DeviceTaintSelector{}); r.Spec.DeviceSelector != nil {
		at := spec.Child("deviceSelector")
		errs = slices.Concat(
			ifSet(s.Driver, at.Child("driver"), podspec.ValidateDriverName),
			ifSet(s.Pool, at.Child("pool"), validatePool),
			ifSet(s.Device, at.Child("device"), validateLabel))
	}
	taint := r.Spec.Taint
	if old != nil && old.Spec.Taint.Effect == taint.Effect {
		taint.Effect = resourcev1.DeviceTaintEffectNone
	}
	return append(errs, validateTaint(&taint, spec.Child("taint"))...)
}

func ifSet(name *string, at *field.Path, check func(string, *field.Path) field.ErrorList) field.ErrorList {
	if name == nil {
		return nil
	}
	return check(*name, at)
}

func validateTaintConditions(conditions []metav1.Condition, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateConditions(conditions, at)
	errs = append(errs, validate.MaxItems(conditions, at, resourcev1.DeviceTaintRuleStatusMaxConditions)...)
	return errs
}

func addedAt(r *resourcev1.DeviceTaintRule, now time.Time) string {
	if added := r.Spec.Taint.TimeAdded; added != nil {
		return table.Since(*added, now)
	}
	return ""
}
