package admissionchain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"
)

// limitDefaultsAnnotation is the annotation of a pod that lists the defaults that were set.
const limitDefaultsAnnotation = "kubernetes.io/limit-ranger"

// setLimitDefaults sets the requests and limits that a LimitRange has defaults for and the containers of a pod
// leave out.
func setLimitDefaults(limits *corev1.LimitRange, pod *corev1.Pod) {
	defaults := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, item := range limits.Spec.Limits {
		if item.Type == corev1.LimitTypeContainer {
			maps.Copy(defaults.Requests, item.DefaultRequest)
			maps.Copy(defaults.Limits, item.Default)
		}
	}
	var set []string
	for i := range pod.Spec.Containers {
		set = append(set, setContainerDefaults(&pod.Spec.Containers[i], defaults, "container")...)
	}
	for i := range pod.Spec.InitContainers {
		set = append(set, setContainerDefaults(&pod.Spec.InitContainers[i], defaults, "init container")...)
	}
	if len(set) > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, limitDefaultsAnnotation, "LimitRanger plugin set: "+strings.Join(set, "; "))
	}
}

// setContainerDefaults sets the defaults of one container, and returns a description of them.
func setContainerDefaults(c *corev1.Container, defaults corev1.ResourceRequirements, what string) []string {
	var set []string
	for _, list := range []struct {
		own      *corev1.ResourceList
		defaults corev1.ResourceList
		word     string
	}{{&c.Resources.Requests, defaults.Requests, "request"}, {&c.Resources.Limits, defaults.Limits, "limit"}} {
		// The list may be shared with the object that was sent.
		filled := maps.Clone(*list.own)
		var names []string
		for _, name := range slices.Sorted(maps.Keys(list.defaults)) {
			if _, ok := filled[name]; ok {
				continue
			}
			if filled == nil {
				filled = corev1.ResourceList{}
			}
			filled[name] = list.defaults[name].DeepCopy()
			names = append(names, string(name))
		}
		*list.own = filled
		if len(names) > 0 {
			set = append(set, fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), list.word, what, c.Name))
		}
	}
	return set
}

// checkPodLimits returns an error that lists how a pod violates a LimitRange.
func checkPodLimits(limits *corev1.LimitRange, pod *corev1.Pod) error {
	var errs []error
	for _, item := range limits.Spec.Limits {
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
				errs = append(errs, checkRequirements(&item, c.Resources.Requests, c.Resources.Limits)...)
			}
		case corev1.LimitTypePod:
			options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
			errs = append(errs, checkRequirements(&item, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))...)
		case corev1.LimitTypePersistentVolumeClaim:
		}
	}
	return utilerrors.NewAggregate(errs)
}

// checkClaimLimits returns an error that lists how the requests of a volume claim violate a LimitRange. The
// limits of a claim do not count.
func checkClaimLimits(limits *corev1.LimitRange, claim *corev1.PersistentVolumeClaim) error {
	var errs []error
	for _, item := range limits.Spec.Limits {
		if item.Type != corev1.LimitTypePersistentVolumeClaim {
			continue
		}
		requested := claim.Spec.Resources.Requests
		errs = append(errs, eachLimit(item.Min, func(name corev1.ResourceName, least resource.Quantity) error {
			return checkMin(limitBound{"minimum", item.Type, name, least}, requested, nil)
		})...)
		errs = append(errs, eachLimit(item.Max, func(name corev1.ResourceName, most resource.Quantity) error {
			b := limitBound{"maximum", item.Type, name, most}
			if _, ok := requested[name]; !ok {
				return b.missing("request")
			}
			return b.exceededBy(requested, "request")
		})...)
	}
	return utilerrors.NewAggregate(errs)
}

// checkRequirements returns errors for requests and limits that violate the limits of one type.
func checkRequirements(item *corev1.LimitRangeItem, requested, limited corev1.ResourceList) []error {
	return slices.Concat(
		eachLimit(item.Min, func(name corev1.ResourceName, least resource.Quantity) error {
			return checkMin(limitBound{"minimum", item.Type, name, least}, requested, limited)
		}),
		eachLimit(item.Max, func(name corev1.ResourceName, most resource.Quantity) error {
			b := limitBound{"maximum", item.Type, name, most}
			if _, ok := limited[name]; !ok {
				return b.missing("limit")
			}
			if err := b.exceededBy(limited, "limit"); err != nil {
				return err
			}
			return b.exceededBy(requested, "request")
		}),
		eachLimit(item.MaxLimitRequestRatio, func(name corev1.ResourceName, ratio resource.Quantity) error {
			return checkRatio(limitBound{"max limit to request ratio", item.Type, name, ratio}, requested, limited)
		}),
	)
}

// eachLimit applies a check to all resources of a list, in the order of their names.
func eachLimit(list corev1.ResourceList, check func(corev1.ResourceName, resource.Quantity) error) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(list)) {
		if err := check(name, list[name]); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

func checkMin(b limitBound, requested, limited corev1.ResourceList) error {
	if _, ok := requested[b.name]; !ok {
		return b.missing("request")
	}
	if err := b.undercutBy(requested, "request"); err != nil {
		return err
	}
	return b.undercutBy(limited, "limit")
}

func checkRatio(b limitBound, requested, limited corev1.ResourceList) error {
	const format = "%s max limit to request ratio per %s is %s, but %s"
	request, limit := requested[b.name], limited[b.name]
	switch {
	case request.IsZero():
		return fmt.Errorf(format, b.name, b.limitType, b.value.String(), "no request is specified or request is 0")
	case limit.IsZero():
		return fmt.Errorf(format, b.name, b.limitType, b.value.String(), "no limit is specified or limit is 0")
	}
	requestValue, limitValue := request.Value(), limit.Value()
	if max(requestValue, limitValue) <= resource.MaxMilliValue {
		requestValue, limitValue = request.MilliValue(), limit.MilliValue()
	}
	// In thousandths, like the ratio: rounding must not make 900m of 300m more than 3.
	ratio := float64(limitValue) / float64(requestValue)
	if ratio*1000 > float64(b.value.MilliValue()) {
		return fmt.Errorf(format, b.name, b.limitType, b.value.String(), fmt.Sprintf("provided ratio is %f", ratio))
	}
	return nil
}

// limitBound is the minimum or maximum of one resource.
type limitBound struct {
	word      string
	limitType corev1.LimitType
	name      corev1.ResourceName
	value     resource.Quantity
}

// String returns the bound in the form of error messages.
func (b limitBound) String() string {
	return fmt.Sprintf("%s %s usage per %s is %s", b.word, b.name, b.limitType, b.value.String())
}

// missing returns the error for a pod or claim that does not specify the resource.
func (b limitBound) missing(what string) error {
	return errors.New(b.String() + ".  No " + what + " is specified")
}

func (b limitBound) undercutBy(list corev1.ResourceList, what string) error {
	if quantity, ok := list[b.name]; ok && quantity.Cmp(b.value) < 0 {
		return fmt.Errorf("%s, but %s is %s", b, what, quantity.String())
	}
	return nil
}

func (b limitBound) exceededBy(list corev1.ResourceList, what string) error {
	if quantity, ok := list[b.name]; ok && quantity.Cmp(b.value) > 0 {
		return fmt.Errorf("%s, but %s is %s", b, what, quantity.String())
	}
	return nil
}
