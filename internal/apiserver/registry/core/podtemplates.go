package core

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

func podTemplates() registry.Resource {
	return registry.Define[corev1.PodTemplate, corev1.PodTemplateList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "PodTemplate",
		Plural:              "podtemplates",
		Namespaced:          true,
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		ReturnDeletedObject: true,
	}, podTemplateColumns(), registry.Strategy[*corev1.PodTemplate]{
		Default: func(t *corev1.PodTemplate) { podspec.DefaultSpec(&t.Template.Spec) },
		Validate: func(t *corev1.PodTemplate) field.ErrorList {
			path := field.NewPath("template")
			errs := podspec.ValidateTemplateMeta(&t.Template, path)
			errs = append(errs, podspec.ValidateSpec(&t.Template.Spec, path.Child("spec"))...)
			return append(errs, podspec.ForbidEphemeralContainers(&t.Template, path.Child("spec"))...)
		},
		Warn: func(t, old *corev1.PodTemplate) []string {
			return podspec.WarnOfTemplate(t, old, &t.Template, field.NewPath("template"))
		},
		Desired: func(t *corev1.PodTemplate) any { return t.Template },
	})
}

// podTemplateColumns are always shown: a template has no other ones.
func podTemplateColumns() []table.Column {
	columns := podspec.TemplateColumns(func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template }, nil)
	for i := range columns {
		columns[i].Priority = 0
	}
	return append(columns, table.Text("Pod Labels", "Labels of the pods.", func(t *corev1.PodTemplate) string {
		return table.Labels(t.Template.Labels)
	}))
}
