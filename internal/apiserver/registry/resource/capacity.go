package resource

import (
	"fmt"
	"math"
	"strconv"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDiscreteValues is the maximum number of valid amounts in a request policy.
const maxDiscreteValues = 10

// validateCapacity checks a capacity of a device, and, if the device is shared, the amounts that requests may have.
func validateCapacity(c *resourcev1.DeviceCapacity, shared bool, at *field.Path) field.ErrorList {
	policy, path := c.RequestPolicy, at.Child("requestPolicy")
	switch {
	case policy == nil:
		return nil
	case !shared:
		return field.ErrorList{field.Forbidden(path, "allowMultipleAllocations must be true")}
	case len(policy.ValidValues) > 0 && policy.ValidRange != nil:
		return field.ErrorList{field.Forbidden(path, `exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`)}
	case len(policy.ValidValues) > 0 && policy.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validValues is defined")}
	case len(policy.ValidValues) > 0:
		return validateValues(policy.ValidValues, *policy.Default, c.Value, path.Child("validValues"))
	case policy.ValidRange != nil && policy.Default == nil:
		return field.ErrorList{field.Required(path.Child("default"), "required when validRange is defined")}
	case policy.ValidRange != nil:
		return validateRange(policy.ValidRange, *policy.Default, c.Value, path.Child("validRange"))
	}
	return nil
}

// validateValues checks a list of valid amounts. A request is rounded up to the next one.
func validateValues(values []resource.Quantity, byDefault, capacity resource.Quantity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	hasDefault := false
	for i := 1; i < len(values); i++ {
		if values[i-1].Cmp(values[i]) > 0 {
			errs = append(errs, field.Invalid(at.Index(i), values[i].String(), "values must be sorted in ascending order"))
		}
	}
	errs = append(errs, validateSet(values, maxDiscreteValues, at, func(q resource.Quantity) string { return strconv.FormatInt(q.Value(), 10) },
		func(q *resource.Quantity, at *field.Path) field.ErrorList {
			hasDefault = hasDefault || q.Cmp(byDefault) == 0
			if q.Cmp(capacity) > 0 {
				return field.ErrorList{field.Invalid(at, q.String(), "option is larger than capacity value: "+capacity.String())}
			}
			return nil
		})...)
	if !hasDefault {
		errs = append(errs, field.Invalid(at, byDefault.String(), "default value is not valid according to the requestPolicy"))
	}
	return errs
}

// validateRange checks a range of amounts, which starts at its minimum and grows in steps.
func validateRange(r *resourcev1.CapacityRequestPolicyRange, byDefault, capacity resource.Quantity, at *field.Path) field.ErrorList {
	lowest, highest := at.Child("min"), at.Child("max")
	if r.Min == nil {
		return field.ErrorList{field.Required(lowest, "required when validRange is defined")}
	}
	var errs field.ErrorList
	atMost := func(q, limit resource.Quantity, path *field.Path, value resource.Quantity, message string) {
		if q.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path, value.String(), message))
		}
	}
	atMost(*r.Min, capacity, lowest, *r.Min, "min is larger than capacity value: "+capacity.String())
	atMost(*r.Min, byDefault, at.Child("default"), byDefault, "default is less than min: "+r.Min.String())
	if r.Max != nil {
		atMost(*r.Min, *r.Max, highest, *r.Min, "min is larger than max: "+r.Max.String())
		atMost(*r.Max, capacity, highest, *r.Max, "max is larger than capacity value: "+capacity.String())
		atMost(byDefault, *r.Max, at.Child("default"), byDefault, "default is more than max: "+r.Max.String())
	}
	switch {
	case r.Step == nil:
		return errs
	case r.Step.Sign() <= 0:
		return append(errs, field.Invalid(at.Child("step"), r.Step.String(), "must be greater than zero"))
	}
	next := r.Min.DeepCopy()
	next.Add(*r.Step)
	atMost(next, capacity, at.Child("step"), *r.Step, fmt.Sprintf("one step %s is larger than capacity value: %s", next.String(), capacity.String()))
	if outside := outsideInt64(r, byDefault, at); len(outside) > 0 {
		return append(errs, outside...)
	}
	errs = append(errs, validateStep(byDefault, r, at.Child("step"))...)
	if r.Max != nil {
		errs = append(errs, validateStep(*r.Max, r, at.Child("step"))...)
	}
	return errs
}

// outsideInt64 complains about amounts that cannot be calculated with as int64.
func outsideInt64(r *resourcev1.CapacityRequestPolicyRange, byDefault resource.Quantity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, amount := range []struct {
		field string
		q     *resource.Quantity
	}{{"default", &byDefault}, {"min", r.Min}, {"max", r.Max}, {"step", r.Step}} {
		switch path := at.Child(amount.field); {
		case amount.q == nil:
		case amount.q.Sign() < 0:
			errs = append(errs, field.Invalid(path, amount.q.String(), apivalidation.IsNegativeErrorMsg))
		case amount.q.CmpInt64(math.MaxInt64) > 0:
			errs = append(errs, field.Invalid(path, amount.q.String(), fmt.Sprintf("must not be larger than %d", math.MaxInt64)))
		}
	}
	return errs
}

// validateStep checks that an amount is a whole number of steps above the minimum. Fractions are rounded up, as long as
// the feature gate DRAFractionalCapacityRange is off.
func validateStep(q resource.Quantity, r *resourcev1.CapacityRequestPolicyRange, at *field.Path) field.ErrorList {
	if (q.Value()-r.Min.Value())%r.Step.Value() == 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(at, q.String(), fmt.Sprintf("value is not a multiple of a given step (%s) from (%s)", r.Step.String(), r.Min.String()))}
}
