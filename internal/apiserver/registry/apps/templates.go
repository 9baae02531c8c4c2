package apps

import (
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
