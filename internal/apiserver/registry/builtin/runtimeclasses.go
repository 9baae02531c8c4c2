package builtin

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// nodeGroup returns the API group node.k8s.io/v1: RuntimeClasses. Package core applies them to pods.
func nodeGroup() registry.Group {
	return registry.Group{
		GroupVersion: nodev1.SchemeGroupVersion,
		AddToScheme:  nodev1.AddToScheme,
		Resources:    []registry.Resource{runtimeClasses()},
	}
}

func runtimeClasses() registry.Resource {
	return registry.Define[nodev1.RuntimeClass, nodev1.RuntimeClassList](registry.Resource{
		GroupVersion:   nodev1.SchemeGroupVersion,
		Kind:           "RuntimeClass",
		Plural:         "runtimeclasses",
		ValidateName:   apivalidation.NameIsDNSSubdomain,
		AnyFinalizer:   true,
		CreateOnUpdate: true,
	}, []table.Column{
		table.Text("Handler", "Configuration of the container runtime.", func(c *nodev1.RuntimeClass) string { return c.Handler }),
		table.Age(),
	}, registry.Strategy[*nodev1.RuntimeClass]{
		Warn:     warnOfRuntimeClass,
		Validate: validateRuntimeClass,
		ValidateCreate: func(c *nodev1.RuntimeClass) field.ErrorList {
			if c.Handler == "" {
				return validate.Required(c.Handler, field.NewPath("handler"))
			}
			return validate.ShortName(c.Handler, field.NewPath("handler"))
		},
		ValidateUpdate: func(c, old *nodev1.RuntimeClass) field.ErrorList {
			return append(validate.RequiredLabel(c.Handler, field.NewPath("handler")),
				validate.ImmutableUnnamed(c.Handler, old.Handler, field.NewPath("handler"))...)
		},
	})
}

// warnOfRuntimeClass warns about deprecated labels of nodes.
func warnOfRuntimeClass(c, _ *nodev1.RuntimeClass) []string {
	var all []string
	if c.Scheduling == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(c.Scheduling.NodeSelector)) {
		if text := validate.DeprecatedNodeLabel(key); text != "" {
			all = append(all, "scheduling.nodeSelector: "+text)
		}
	}
	return all
}

func validateRuntimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	var errs field.ErrorList
	if c.Overhead != nil {
		errs = append(errs, podspec.ValidateOverhead(c.Overhead.PodFixed, field.NewPath("overhead"))...)
	}
	if s := c.Scheduling; s != nil {
		at := field.NewPath("scheduling")
		errs = append(errs, metav1validation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
		errs = append(errs, validateRuntimeClassTolerations(s.Tolerations, at.Child("tolerations"))...)
	}
	return errs
}

// validateRuntimeClassTolerations checks that tolerations are valid and, unlike the tolerations of a pod, unique.
func validateRuntimeClassTolerations(tolerations []corev1.Toleration, at *field.Path) field.ErrorList {
	errs := podspec.ValidateTolerations(tolerations, at)
	seen := map[corev1.Toleration]bool{}
	for i, t := range tolerations {
		key := t
		key.TolerationSeconds = nil
		if seen[key] {
			errs = append(errs, field.Duplicate(at.Index(i), t))
		}
		seen[key] = true
	}
	return errs
}
