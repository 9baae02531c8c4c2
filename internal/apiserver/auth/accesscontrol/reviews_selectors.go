package accesscontrol

import (
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// fieldRequirements returns the requirements of a review about a list, watch or deletion of a collection. With an
// error it returns those that are valid: fewer requirements ask for more, so the answer errs on the side of refusal.
func fieldRequirements(s authorizationv1.FieldSelectorAttributes) (requirements fields.Requirements, err error) {
	if s.RawSelector != "" {
		selector, err := fields.ParseSelector(s.RawSelector)
		if err != nil {
			return nil, err
		}
		return selector.Requirements(), nil
	}
	operators := map[metav1.FieldSelectorOperator]selection.Operator{metav1.FieldSelectorOpIn: selection.Equals, metav1.FieldSelectorOpNotIn: selection.NotEquals}
	for _, r := range s.Requirements {
		operator, ok := operators[r.Operator]
		if !ok || len(r.Values) != 1 {
			err = errors.Join(err, fmt.Errorf("a field is selected by %s with one value, or by %s with one", metav1.FieldSelectorOpIn, metav1.FieldSelectorOpNotIn))
			continue
		}
		requirements = append(requirements, fields.Requirement{Field: r.Key, Operator: operator, Value: r.Values[0]})
	}
	return requirements, err
}

// labelRequirements is fieldRequirements for labels.
func labelRequirements(s authorizationv1.LabelSelectorAttributes) (requirements labels.Requirements, err error) {
	if s.RawSelector != "" {
		selector, err := labels.Parse(s.RawSelector)
		if err != nil {
			return nil, err
		}
		requirements, _ := selector.Requirements()
		return requirements, nil
	}
	for i := range s.Requirements {
		selector, problem := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: s.Requirements[i : i+1]})
		if problem != nil {
			err = errors.Join(err, problem)
			continue
		}
		all, _ := selector.Requirements()
		requirements = append(requirements, all...)
	}
	return requirements, err
}

// validateSelectors requires one form of each selector. Unknown operators are left out of the review: a newer client
// may know more of them.
func validateSelectors(resource authorizationv1.ResourceAttributes, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := resource.FieldSelector; s != nil {
		at := at.Child("fieldSelector")
		errs = append(errs, validateForm(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			options := metav1validation.FieldSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
			errs = append(errs, metav1validation.ValidateFieldSelectorRequirement(r, options, at.Child("requirements").Index(i))...)
		}
	}
	if s := resource.LabelSelector; s != nil {
		at := at.Child("labelSelector")
		errs = append(errs, validateForm(s.RawSelector, len(s.Requirements), at)...)
		for i, r := range s.Requirements {
			options := metav1validation.LabelSelectorValidationOptions{AllowUnknownOperatorInRequirement: true}
			errs = append(errs, metav1validation.ValidateLabelSelectorRequirement(r, options, at.Child("requirements").Index(i))...)
		}
	}
	return errs
}

func validateForm(raw string, requirements int, at *field.Path) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	default:
		return nil
	}
}

// evaluationError returns the text of an authorizer's error, and of the parts of selectors that the review ignored.
func evaluationError(err error, a authorizer.AttributesRecord) string {
	var problems []string
	if err != nil {
		problems = append(problems, err.Error())
	}
	ignored := func(name string, used int, err error) {
		switch {
		case err != nil && used > 0:
			problems = append(problems, fmt.Sprintf("spec.resourceAttributes.%s partially ignored due to parse error", name))
		case err != nil:
			problems = append(problems, fmt.Sprintf("spec.resourceAttributes.%s ignored due to parse error", name))
		}
	}
	ignored("fieldSelector", len(a.FieldSelectorRequirements), a.FieldSelectorParsingErr)
	ignored("labelSelector", len(a.LabelSelectorRequirements), a.LabelSelectorParsingErr)
	return strings.Join(problems, "; ")
}
