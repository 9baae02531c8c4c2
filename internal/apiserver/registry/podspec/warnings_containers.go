package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// ofFractions warns about fractional bytes.
func (w *warnings) ofFractions(list corev1.ResourceList, at *field.Path) {
	w.ofFraction(list, corev1.ResourceMemory, at)
	w.ofFraction(list, corev1.ResourceEphemeralStorage, at)
}

func (w *warnings) ofFraction(list corev1.ResourceList, name corev1.ResourceName, at *field.Path) {
	if amount, given := list[name]; given && amount.MilliValue()%1000 != 0 {
		w.add(at.Key(string(name)), "fractional byte value %q is invalid, must be an integer", amount.String())
	}
}

// WarnOfClaim warns about fractional bytes in the spec of a volume claim.
func WarnOfClaim(spec *corev1.PersistentVolumeClaimSpec, at *field.Path) []string {
	var w warnings
	w.ofFraction(spec.Resources.Requests, corev1.ResourceStorage, at.Child("resources", "requests"))
	w.ofFraction(spec.Resources.Limits, corev1.ResourceStorage, at.Child("resources", "limits"))
	return w
}

// ofVariables warns about variables that are set twice, unless the second value uses the first one.
func (w *warnings) ofVariables(env []corev1.EnvVar, at *field.Path) {
	seen := make(map[string]bool, len(env))
	for i, v := range env {
		reference := "$(" + v.Name + ")"
		adds := v.ValueFrom == nil && v.Value != reference && strings.Contains(v.Value, reference)
		if seen[v.Name] && !adds {
			w.add(at.Index(i), "hides previous definition of %q, which may be dropped when using apply", v.Name)
		}
		seen[v.Name] = true
	}
}

// ofVolumes warns about deprecated kinds of volumes, and about files that replace each other.
func (w *warnings) ofVolumes(volumes []corev1.Volume, at *field.Path) {
	for i := range volumes {
		at := at.Index(i)
		w.put(WarnOfSource(&volumes[i].VolumeSource, at)...)
		if e := volumes[i].Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			w.put(WarnOfClaim(&e.VolumeClaimTemplate.Spec, at.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
		}
	}
	for i := range volumes {
		w.ofFiles(&volumes[i])
	}
}

// WarnOfSource warns about a deprecated kind of volume.
func WarnOfSource[T corev1.VolumeSource | corev1.PersistentVolumeSource](source *T, at *field.Path) []string {
	var w warnings
	for _, name := range validate.SetMembers(source) {
		if text := retiredVolume(name); text != "" {
			w.add(at.Child(strings.Replace(name, "storageos", "storageOS", 1)), "%s", text)
		}
	}
	return w
}

// retiredVolume returns the warning about a deprecated source of volumes, or "".
func retiredVolume(source string) string {
	switch source {
	case "photonPersistentDisk":
		return "deprecated in v1.11, non-functional in v1.16+"
	case "gitRepo":
		return "deprecated in v1.11, and disabled by default in v1.33+"
	case "scaleIO":
		return "deprecated in v1.16, non-functional in v1.22+"
	case "flocker", "storageos", "quobyte":
		return "deprecated in v1.22, non-functional in v1.25+"
	case "glusterfs":
		return "deprecated in v1.25, non-functional in v1.26+"
	case "cephfs", "rbd":
		return "deprecated in v1.28, non-functional in v1.31+"
	}
	return ""
}
