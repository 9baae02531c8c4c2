package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
)

// validateSelectedTemplate checks the template of the pods that a selector is to select. With one that is
// no selector, the pods are not looked into: that is what has to be mended first.
func validateSelectedTemplate(kind string, template *corev1.PodTemplateSpec, selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		if kind == "StatefulSet" { // of which upstream checks the pods that run for ever, all the same
			return podspec.ValidateEndless(kind, template, at)
		}
		return nil
	}
	return podspec.ValidateTemplate(kind, template, at)
}

// templatePath is where the kinds of this group have the template of their pods.
func templatePath() *field.Path { return field.NewPath("spec", "template") }

// made are the kinds whose pods are named after them.
type made interface {
	*appsv1.Deployment | *appsv1.ReplicaSet
	metav1.Object
}

// warnOfPods warns of the pods that are made from a template.
func warnOfPods[P made](obj, old P, template *corev1.PodTemplateSpec) []string {
	return append(podspec.WarnOfName(obj, old), podspec.WarnOfTemplate(obj, old, template, templatePath())...)
}
