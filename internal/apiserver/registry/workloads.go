package registry

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// What the kinds have in common that make pods from a template.

// validateTemplate checks the template of a kind whose pods run until they are deleted.
func validateTemplate(kind string, template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	spec := path.Child("spec")
	errs := append(validateTemplateMeta(template, path.Child("metadata")), validatePodSpec(&template.Spec, spec)...)
	if policy := template.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(spec.Child("restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(spec.Child("activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind)))
	}
	return append(errs, noEphemeralContainers(template, spec)...)
}

// noEphemeralContainers: those are added to a pod that runs, never created with one.
func noEphemeralContainers(template *corev1.PodTemplateSpec, spec *field.Path) field.ErrorList {
	if len(template.Spec.EphemeralContainers) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template")}
}

// templateColumns are the wide columns of kinds with a template; some show no selector.
func templateColumns[P runtime.Object](template func(P) *corev1.PodTemplateSpec, selector func(P) string) []column {
	containers := func(name func(corev1.Container) string) func(P) string {
		return func(obj P) string { return joined(template(obj).Spec.Containers, name) }
	}
	columns := wide(
		text("Containers", "Names of the containers in the template.", containers(func(c corev1.Container) string { return c.Name })),
		text("Images", "Images of the containers in the template.", containers(func(c corev1.Container) string { return c.Image })),
	)
	if selector != nil {
		columns = append(columns, wide(text("Selector", "Labels of the pods that belong to the object.", selector))...)
	}
	return columns
}

// scaleSelector is a label selector as autoscalers read it from /scale.
func scaleSelector(s *metav1.LabelSelector) string {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		parsed = labels.Nothing()
	}
	return parsed.String()
}

// counts checks the numbers in a status of pods.
func counts(path *field.Path, numbers map[string]int32) field.ErrorList {
	var errs field.ErrorList
	names := make([]string, 0, len(numbers))
	for name := range numbers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		n := numbers[name]
		errs = append(errs, notNegative(&n, path.Child(name))...)
	}
	return errs
}
