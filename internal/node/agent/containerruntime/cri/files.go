package cri

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// file is a file of a volume.
type file struct {
	path    string // relative to the volume
	data    []byte
	mode    os.FileMode
	private bool // a token or a key: it belongs to the user of the pod's containers
}

// isFiles reports whether a volume consists of API objects: ConfigMaps, Secrets, tokens and fields
// of the pod. Its files are updated while the pod runs (follow.go).
func isFiles(v *corev1.VolumeSource) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// filesOf returns the files of a volume, ordered by path. If two have the same path, the later one
// wins.
func filesOf(of *corev1.Pod, v *corev1.VolumeSource, m *references) ([]file, error) {
	byPath := map[string]file{}
	for _, source := range sourcesOf(v) {
		files, err := projected(of, &source.VolumeProjection, m, source.mode)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if f.path = path.Clean(f.path); !filepath.IsLocal(f.path) || f.path == "." {
				return nil, fmt.Errorf("%q is not a path inside the volume", f.path)
			}
			byPath[f.path] = f
		}
	}
	all := make([]file, 0, len(byPath))
	for _, at := range slices.Sorted(maps.Keys(byPath)) {
		all = append(all, byPath[at])
	}
	return all, nil
}

// source is one source of a volume.
type source struct {
	corev1.VolumeProjection
	mode os.FileMode // of files without a mode of their own
}

// sourcesOf returns the sources of a volume. Only a projected volume has several.
func sourcesOf(v *corev1.VolumeSource) []source {
	switch {
	case v.ConfigMap != nil:
		of := &corev1.ConfigMapProjection{LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional}
		return []source{{corev1.VolumeProjection{ConfigMap: of}, modeOf(v.ConfigMap.DefaultMode)}}
	case v.Secret != nil:
		of := &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional}
		return []source{{corev1.VolumeProjection{Secret: of}, modeOf(v.Secret.DefaultMode)}}
	case v.DownwardAPI != nil:
		of := &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}
		return []source{{corev1.VolumeProjection{DownwardAPI: of}, modeOf(v.DownwardAPI.DefaultMode)}}
	case v.Projected != nil:
		all := make([]source, 0, len(v.Projected.Sources))
		for _, of := range v.Projected.Sources {
			all = append(all, source{of, modeOf(v.Projected.DefaultMode)})
		}
		return all
	}
	return nil
}

// modeOf returns the given mode, or upstream's default mode for such volumes.
func modeOf(mode *int32) os.FileMode {
	if mode == nil {
		return 0o644
	}
	return os.FileMode(*mode) & os.ModePerm
}

// tokenMode is the mode of a token if the user or the group of its readers is known.
const tokenMode = 0o600

// projected returns the files of one source.
func projected(of *corev1.Pod, from *corev1.VolumeProjection, m *references, mode os.FileMode) ([]file, error) {
	switch {
	case from.ConfigMap != nil:
		object, err := m.configMap(from.ConfigMap.Name, from.ConfigMap.Optional)
		if object == nil {
			return nil, err
		}
		data := maps.Clone(object.BinaryData)
		if data == nil {
			data = map[string][]byte{}
		}
		for key, text := range object.Data {
			data[key] = []byte(text)
		}
		return picked(data, from.ConfigMap.Items, mode, isOptional(from.ConfigMap.Optional), "config map "+object.Name)
	case from.Secret != nil:
		object, err := m.secret(from.Secret.Name, from.Secret.Optional)
		if object == nil {
			return nil, err
		}
		return picked(object.Data, from.Secret.Items, mode, isOptional(from.Secret.Optional), "secret "+object.Name)
	case from.DownwardAPI != nil:
		return ofPod(of, from.DownwardAPI.Items, mode)
	case from.ServiceAccountToken != nil:
		text, err := m.token(from.ServiceAccountToken)
		if err != nil {
			return nil, err
		}
		return []file{privateFile(of, from.ServiceAccountToken.Path, []byte(text), mode)}, nil
	case from.ClusterTrustBundle != nil:
		f := m.anchors[from.ClusterTrustBundle]
		if f.err != nil || f.object == nil {
			return nil, f.err
		}
		return []file{privateFile(of, from.ClusterTrustBundle.Path, *f.object, mode)}, nil
	case from.PodCertificate != nil:
		f := m.issued[from.PodCertificate]
		if f.err != nil || f.object == nil {
			return nil, f.err
		}
		return issuedFiles(of, from.PodCertificate, f.object, mode), nil
	}
	return nil, fmt.Errorf("%s in a projected volume is not supported by this node", kindOf(from))
}

// privateFile returns a file that belongs to the user of the pod's containers, if that is known.
func privateFile(of *corev1.Pod, at string, data []byte, mode os.FileMode) file {
	if owned := ownersOf(of); owned.user != nil || owned.group != nil {
		mode = tokenMode
	}
	return file{path: at, data: data, mode: mode, private: true}
}

// issuedFiles returns the files of a certificate: with its key, the key alone, and the certificates alone.
func issuedFiles(of *corev1.Pod, p *corev1.PodCertificateProjection, c *podCredential, mode os.FileMode) []file {
	var files []file
	add := func(at string, data []byte) {
		if at != "" {
			files = append(files, privateFile(of, at, data, mode))
		}
	}
	add(p.CredentialBundlePath, slices.Concat(c.key, c.chain))
	add(p.KeyPath, c.key)
	add(p.CertificateChainPath, c.chain)
	return files
}

// picked returns the keys of an object as files: the items, or all keys if there are no items.
func picked(data map[string][]byte, items []corev1.KeyToPath, mode os.FileMode, optional bool, object string) ([]file, error) {
	var files []file
	if len(items) == 0 {
		for key, value := range data {
			files = append(files, file{path: key, data: value, mode: mode})
		}
		return files, nil
	}
	for _, item := range items {
		value, found := data[item.Key]
		switch {
		case found:
			files = append(files, file{path: item.Path, data: value, mode: ownMode(item.Mode, mode)})
		case !optional:
			return nil, fmt.Errorf("%s has no key %q", object, item.Key)
		}
	}
	return files, nil
}

// ofPod returns fields of a pod, and requests and limits of its containers, as files.
func ofPod(of *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode os.FileMode) ([]file, error) {
	files := make([]file, 0, len(items))
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = fieldOf(of, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = resourceOf(of, nil, item.ResourceFieldRef)
		default:
			err = fmt.Errorf("it has neither a fieldRef nor a resourceFieldRef")
		}
		if err != nil {
			return nil, fmt.Errorf("file %s: %w", item.Path, err)
		}
		files = append(files, file{path: item.Path, data: []byte(value), mode: ownMode(item.Mode, mode)})
	}
	return files, nil
}

func ownMode(own *int32, otherwise os.FileMode) os.FileMode {
	if own == nil {
		return otherwise
	}
	return modeOf(own)
}
