package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

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

// placedPort is a port of a container and its path in the object.
type placedPort struct {
	corev1.ContainerPort
	at *field.Path
}

// ofPorts warns about duplicate ports and names of ports. A reference to a port by name finds the first one.
func (w *warnings) ofPorts(spec *corev1.PodSpec, at *field.Path) {
	var all []placedPort
	eachContainer(spec, at, func(c *corev1.Container, at *field.Path) {
		for i, port := range c.Ports {
			all = append(all, placedPort{port, at.Child("ports").Index(i)})
		}
	})
	for i, port := range all {
		if port.HostIP != "" && port.HostPort == 0 {
			w.add(port.at, "hostIP set without hostPort: %+v", port.ContainerPort)
		}
		for _, other := range all[:i] {
			if text := clash(port.ContainerPort, other.ContainerPort); text != "" {
				w.add(port.at, "%s port definition with %s", text, other.at)
			}
		}
	}
	named := map[string]*field.Path{}
	for _, port := range all {
		first, taken := named[port.Name]
		switch {
		case port.Name == "":
		case taken:
			w.add(port.at, "duplicate port name %q with %s, services and probes that select ports by name will use %s", port.Name, first, first)
		default:
			named[port.Name] = port.at
		}
	}
}

// clash describes how a port duplicates another one. "": it does not.
func clash(a, b corev1.ContainerPort) string {
	switch {
	case a.ContainerPort != b.ContainerPort || a.Protocol != b.Protocol:
		return ""
	case a.HostIP == b.HostIP && a.HostPort == b.HostPort:
		return "duplicate"
	case a.HostPort == 0 || b.HostPort == 0:
		return "overlapping"
	case a.HostPort == b.HostPort && (a.HostIP == "") != (b.HostIP == ""):
		return "dangerously ambiguous"
	}
	return ""
}

// ofVolumes warns about deprecated kinds of volumes, and about files that replace each other.
func (w *warnings) ofVolumes(volumes []corev1.Volume, at *field.Path) {
	for i := range volumes {
		at := at.Index(i)
		*w = append(*w, WarnOfSource(&volumes[i].VolumeSource, at)...)
		if e := volumes[i].Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			*w = append(*w, WarnOfClaim(&e.VolumeClaimTemplate.Spec, at.Child("ephemeral", "volumeClaimTemplate", "spec"))...)
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

// volumeFile is a file in a volume. source is empty if the volume has only one source.
type volumeFile struct{ path, source string }

func (f volumeFile) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// ofFiles warns about files of a volume that replace or contain another file of it.
func (w *warnings) ofFiles(v *corev1.Volume) {
	var files []volumeFile
	what := ""
	switch {
	case v.ConfigMap != nil:
		what, files = fmt.Sprintf("ConfigMap %q", v.ConfigMap.Name), keyFiles(v.ConfigMap.Items, "")
	case v.Secret != nil:
		what, files = fmt.Sprintf("Secret %q", v.Secret.SecretName), keyFiles(v.Secret.Items, "")
	case v.DownwardAPI != nil:
		what, files = "DownwardAPI", fieldFiles(v.DownwardAPI.Items, "")
	case v.Projected != nil:
		what = "Projected"
		for _, source := range v.Projected.Sources {
			if source == (corev1.VolumeProjection{}) {
				*w = append(*w, fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
			}
			files = append(files, projectedFiles(source)...)
		}
	}
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
		for _, other := range files[:i] {
			if overlap(files[i].path, other.path) {
				*w = append(*w, fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", v.Name, what, files[i], other))
			}
		}
	}
}

// overlap reports whether two paths are equal, or one contains the other.
func overlap(a, b string) bool {
	return a != "" && b != "" && (strings.HasPrefix(a+"/", b+"/") || strings.HasPrefix(b+"/", a+"/"))
}

func projectedFiles(p corev1.VolumeProjection) []volumeFile {
	switch {
	case p.ConfigMap != nil:
		return keyFiles(p.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", p.ConfigMap.Name))
	case p.Secret != nil:
		return keyFiles(p.Secret.Items, fmt.Sprintf("Secret %q", p.Secret.Name))
	case p.DownwardAPI != nil:
		return fieldFiles(p.DownwardAPI.Items, "DownwardAPI")
	case p.ServiceAccountToken != nil:
		return []volumeFile{{p.ServiceAccountToken.Path, "ServiceAccountToken"}}
	case p.ClusterTrustBundle != nil:
		name := ptr.Deref(p.ClusterTrustBundle.Name, ptr.Deref(p.ClusterTrustBundle.SignerName, ""))
		return []volumeFile{{p.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", name)}}
	case p.PodCertificate != nil:
		return slices.DeleteFunc([]volumeFile{
			{p.PodCertificate.CertificateChainPath, "PodCertificate chain"},
			{p.PodCertificate.KeyPath, "PodCertificate key"},
			{p.PodCertificate.CredentialBundlePath, "PodCertificate credential bundle"},
		}, func(f volumeFile) bool { return f.path == "" })
	}
	return nil
}

func keyFiles(items []corev1.KeyToPath, source string) []volumeFile {
	var files []volumeFile
	for _, item := range items {
		files = append(files, volumeFile{item.Path, source})
	}
	return files
}

func fieldFiles(items []corev1.DownwardAPIVolumeFile, source string) []volumeFile {
	var files []volumeFile
	for _, item := range items {
		files = append(files, volumeFile{item.Path, source})
	}
	return files
}
