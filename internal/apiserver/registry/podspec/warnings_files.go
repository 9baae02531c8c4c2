package podspec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// volumeFile is a file in a volume. source is empty if the volume has only one source.
type volumeFile struct{ path, source string }

// maxQuoted bounds the texts that a warning about two files quotes, in bytes. Each file may be in the warnings of many
// pairs.
const maxQuoted = 4 << 10

func (f volumeFile) String() string {
	path := validate.Shortened(f.path, maxQuoted)
	if f.source == "" {
		return fmt.Sprintf("%q", path)
	}
	return fmt.Sprintf("%q (%s)", path, validate.Shortened(f.source, maxQuoted))
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
				w.put(fmt.Sprintf("volume %q (Projected) has no sources provided", v.Name))
			}
			files = append(files, projectedFiles(source)...)
		}
	}
	what = validate.Shortened(what, maxQuoted)
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
	}
	for _, pair := range overlaps(files) {
		w.put(fmt.Sprintf("volume %q (%s): overlapping paths: %s with %s", v.Name, what, files[pair.later], files[pair.earlier]))
	}
}

// overlap has the positions of two files with equal paths, or of which one contains the other.
type overlap struct{ later, earlier int }

// overlaps returns the overlaps of files, in their order, up to validate.MaxWarnings. In the order of the paths, a path
// follows the paths that contain it, and nothing else is in between, so the pairs need not be compared one by one.
func overlaps(files []volumeFile) []overlap {
	type placed struct {
		path     string // with a slash at its end, so that a path that contains another one is its prefix
		position int
	}
	var sorted []placed
	for i := range files {
		if files[i].path != "" {
			sorted = append(sorted, placed{files[i].path + "/", i})
		}
	}
	slices.SortStableFunc(sorted, func(a, b placed) int { return cmp.Compare(a.path, b.path) })
	var found []overlap
	var containing []placed // the files that contain the current one, or are equal to it
	for _, f := range sorted {
		for len(containing) > 0 && !strings.HasPrefix(f.path, containing[len(containing)-1].path) {
			containing = containing[:len(containing)-1]
		}
		for _, other := range containing[:min(len(containing), validate.MaxWarnings-len(found))] {
			found = append(found, overlap{max(f.position, other.position), min(f.position, other.position)})
		}
		containing = append(containing, f)
	}
	slices.SortFunc(found, func(a, b overlap) int {
		return cmp.Or(cmp.Compare(a.later, b.later), cmp.Compare(a.earlier, b.earlier))
	})
	return found
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
