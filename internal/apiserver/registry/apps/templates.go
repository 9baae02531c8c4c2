package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
)

// validateSelectedTemplate checks the template of the pods that a selector selects. If the selector is invalid, it
// skips the pods: the user has to fix the selector first.
func validateSelectedTemplate(kind string, template *corev1.PodTemplateSpec, selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil {
		if kind == "StatefulSet" { // upstream still checks that its pods run forever
			return podspec.ValidateEndless(kind, template, at)
		}
		return nil
	}
	return podspec.ValidateTemplate(kind, template, at)
}

// templatePath is the path of the pod template in the kinds of this group.
func templatePath() *field.Path { return field.NewPath("spec", "template") }

// made are the kinds whose names become part of their pods' names.
type made interface {
	*appsv1.Deployment | *appsv1.ReplicaSet
	metav1.Object
}

// warnOfPods returns the warnings about the pods that a controller creates from a template.
func warnOfPods[P made](obj, old P, template *corev1.PodTemplateSpec) []string {
	return append(podspec.WarnOfName(obj, old), podspec.WarnOfTemplate(obj, old, template, templatePath())...)
}
