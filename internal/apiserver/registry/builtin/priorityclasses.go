package builtin

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// schedulingGroup returns the API group scheduling.k8s.io/v1: PriorityClasses.
func schedulingGroup() registry.Group {
	return registry.Group{
		GroupVersion: schedulingv1.SchemeGroupVersion,
		AddToScheme:  schedulingv1.AddToScheme,
		Resources:    []registry.Resource{priorityClasses()},
	}
}

const (
	// highestUserPriority is the highest value of a class that users may create.
	highestUserPriority = 1_000_000_000
	// systemPriorityPrefix is reserved for the names of the system's classes.
	systemPriorityPrefix = "system-"
)

func priorityClasses() registry.Resource {
	return registry.Define[schedulingv1.PriorityClass, schedulingv1.PriorityClassList](registry.Resource{
		GroupVersion:        schedulingv1.SchemeGroupVersion,
		Kind:                "PriorityClass",
		Plural:              "priorityclasses",
		ShortNames:          []string{"pc"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, []table.Column{
		table.Number("Value", "Priority of the class's pods.", func(p *schedulingv1.PriorityClass) int { return int(p.Value) }),
		table.Text("Global-Default", "Whether this is the class of pods that name none.", func(p *schedulingv1.PriorityClass) string {
			return strconv.FormatBool(p.GlobalDefault)
		}),
		table.Age(),
		table.Text("PreemptionPolicy", "Whether its pods preempt others.", func(p *schedulingv1.PriorityClass) string {
			return string(ptr.Deref(p.PreemptionPolicy, ""))
		}),
	}, registry.Strategy[*schedulingv1.PriorityClass]{
		Default: func(p *schedulingv1.PriorityClass) {
			registry.SetDefaultPtr(&p.PreemptionPolicy, corev1.PreemptLowerPriority)
		},
		BeginCreate:    onlyDefaultPriority,
		BeginUpdate:    onlyDefaultPriority,
		ValidateCreate: validatePriorityClass,
		ValidateUpdate: func(p, old *schedulingv1.PriorityClass) field.ErrorList {
			var errs field.ErrorList
			if p.Value != old.Value {
				errs = append(errs, field.Forbidden(field.NewPath("value"), "may not be changed in an update."))
			}
			return append(errs, validate.Immutable(p.PreemptionPolicy, old.PreemptionPolicy, field.NewPath("preemptionPolicy"))...)
		},
		// The value cannot be changed, so the generation stays 1.
		Desired: func(p *schedulingv1.PriorityClass) any { return p.Value },
	})
}

// onlyDefaultPriority rejects a second default class: with two, the priority of a pod would depend on the order of the
// classes.
func onlyDefaultPriority(ctx context.Context, d registry.Registries, p *schedulingv1.PriorityClass) error {
	if !p.GlobalDefault {
		return nil
	}
	resource := schedulingv1.Resource("priorityclasses")
	classes, err := registry.ListFromCache[*schedulingv1.PriorityClass](ctx, d, resource)
	if err != nil {
		return err
	}
	for _, class := range classes {
		if class.GlobalDefault && class.Name != p.Name {
			return apierrors.NewForbidden(resource, p.Name, fmt.Errorf("PriorityClass %s is already marked as default. Only one default can exist", class.Name))
		}
	}
	return nil
}

func validatePriorityClass(p *schedulingv1.PriorityClass) field.ErrorList {
	var errs field.ErrorList
	if p.PreemptionPolicy != nil {
		errs = validate.OneOf(*p.PreemptionPolicy, field.NewPath("preemptionPolicy"), corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	switch system := strings.HasPrefix(p.Name, systemPriorityPrefix); {
	case system:
		if mistake := noSystemPriority(p); mistake != "" {
			errs = append(errs, field.Forbidden(field.NewPath("metadata", "name"),
				"priority class names with '"+systemPriorityPrefix+"' prefix are reserved for system use only. error: "+mistake))
		}
	case p.Value > highestUserPriority:
		errs = append(errs, field.Forbidden(field.NewPath("value"), fmt.Sprintf("maximum allowed value of a user defined priority is %v", highestUserPriority)))
	}
	return errs
}

// SystemPriorityClasses returns the classes that every cluster has.
func SystemPriorityClasses() []*schedulingv1.PriorityClass {
	class := func(name string, value int32, description string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, Description: description}
	}
	return []*schedulingv1.PriorityClass{
		class("system-node-critical", 2*highestUserPriority+1000, "Used for system critical pods that must not be moved from their current node."),
		class("system-cluster-critical", 2*highestUserPriority, "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
	}
}

// noSystemPriority says why a class is not one of SystemPriorityClasses; "" if it is one.
func noSystemPriority(p *schedulingv1.PriorityClass) string {
	all := SystemPriorityClasses()
	i := slices.IndexFunc(all, func(own *schedulingv1.PriorityClass) bool { return own.Name == p.Name })
	switch {
	case i < 0:
		return p.Name + " is not a known system priority class"
	case p.Value != all[i].Value:
		return fmt.Sprintf("value of %s PriorityClass must be %d", p.Name, all[i].Value)
	case p.GlobalDefault:
		return fmt.Sprintf("globalDefault of %s PriorityClass must be false", p.Name)
	}
	return ""
}
