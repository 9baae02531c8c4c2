package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

// ValidateTemplate checks the template of a kind whose pods run until they are deleted.
func ValidateTemplate(kind string, template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	spec := path.Child("spec")
	errs := append(ValidateTemplateMeta(template, path), ValidateSpec(&template.Spec, spec)...)
	errs = append(errs, ValidateEndless(kind, template, path)...)
	return append(errs, ForbidEphemeralContainers(template, spec)...)
}

// ValidateEndless checks that the pods of a template run until they are deleted.
func ValidateEndless(kind string, template *corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	spec := path.Child("spec")
	var errs field.ErrorList
	if policy := template.Spec.RestartPolicy; policy != "" && policy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(spec.Child("restartPolicy"), policy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if template.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(spec.Child("activeDeadlineSeconds"), fmt.Sprintf("activeDeadlineSeconds in %s is not Supported", kind)))
	}
	return errs
}

// ForbidEphemeralContainers rejects ephemeral containers in a template: they can only be added
// to a running pod.
func ForbidEphemeralContainers(template *corev1.PodTemplateSpec, spec *field.Path) field.ErrorList {
	if len(template.Spec.EphemeralContainers) == 0 {
		return nil
	}
	return field.ErrorList{field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template")}
}

// TemplateColumns returns the wide columns of kinds with a template. Without a selector,
// there is no column for it.
func TemplateColumns[P runtime.Object](template func(P) *corev1.PodTemplateSpec, selector func(P) string) []table.Column {
	containers := func(name func(corev1.Container) string) func(P) string {
		return func(obj P) string { return table.Join(template(obj).Spec.Containers, name) }
	}
	columns := table.Wide(
		table.Text("Containers", "Names of the containers in the template.", containers(func(c corev1.Container) string { return c.Name })),
		table.Text("Images", "Images of the containers in the template.", containers(func(c corev1.Container) string { return c.Image })),
	)
	if selector != nil {
		columns = append(columns, table.Wide(table.Text("Selector", "Labels of the pods that belong to the object.", selector))...)
	}
	return columns
}
