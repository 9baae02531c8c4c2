package cri

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func someReferences() *references {
	m := newReferences()
	m.configMaps["settings"] = found[corev1.ConfigMap]{object: &corev1.ConfigMap{
		Data: map[string]string{"b": "2", "a": "1"}, BinaryData: map[string][]byte{"c": {0xff}},
	}}
	m.configMaps["gone"] = found[corev1.ConfigMap]{err: apierrors.NewNotFound(corev1.Resource("configmaps"), "gone")}
	m.secrets["keys"] = found[corev1.Secret]{object: &corev1.Secret{Data: map[string][]byte{"k": []byte("s3")}}}
	return m
}

func ref(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

func TestFilesOf(t *testing.T) {
	pod := aPod()
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}
	field := func(path string) *corev1.ObjectFieldSelector { return &corev1.ObjectFieldSelector{FieldPath: path} }
	items := func(items ...corev1.KeyToPath) []corev1.KeyToPath { return items }
	maps := func(v corev1.ConfigMapVolumeSource) corev1.VolumeSource { return corev1.VolumeSource{ConfigMap: &v} }
	own := func(items ...corev1.DownwardAPIVolumeFile) corev1.VolumeSource {
		return corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}
	}
	for name, test := range map[string]struct {
		volume corev1.VolumeSource
		want   []file
		wrong  string
	}{
		"a whole map": {
			volume: maps(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings")}),
			want:   []file{{"a", []byte("1"), 0o644, false}, {"b", []byte("2"), 0o644, false}, {"c", []byte{0xff}, 0o644, false}},
		},
		"some keys, some with modes": {
			volume: maps(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings"), DefaultMode: new(int32(0o400)), Items: items(
				corev1.KeyToPath{Key: "b", Path: "deep/down/b"}, corev1.KeyToPath{Key: "a", Path: "x", Mode: new(int32(0o755))},
			)}),
			want: []file{{"deep/down/b", []byte("2"), 0o400, false}, {"x", []byte("1"), 0o755, false}},
		},
		"a key that is not there": {
			volume: maps(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings"), Items: items(corev1.KeyToPath{Key: "z", Path: "z"})}),
			wrong:  `no key "z"`,
		},
		"a key that may be missing": {
			volume: maps(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings"), Optional: new(true), Items: items(corev1.KeyToPath{Key: "z", Path: "z"})}),
			want:   []file{},
		},
		"a map that is not there":   {volume: maps(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("gone")}), wrong: "not found"},
		"a map that may be missing": {volume: maps(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("gone"), Optional: new(true)}), want: []file{}},
		"a way out": {
			volume: maps(corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings"), Items: items(corev1.KeyToPath{Key: "a", Path: "a/../../b"})}),
			wrong:  "is not a path inside the volume",
		},
		"a secret": {
			volume: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "keys", DefaultMode: new(int32(0o440))}},
			want:   []file{{"k", []byte("s3"), 0o440, false}},
		},
		"fields and resources": {
			volume: own(
				corev1.DownwardAPIVolumeFile{Path: "name", FieldRef: field("metadata.name")},
				corev1.DownwardAPIVolumeFile{Path: "labels", FieldRef: field("metadata.labels")},
				corev1.DownwardAPIVolumeFile{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: "c", Resource: "requests.cpu"}},
			),
			want: []file{{"cpu", []byte("2"), 0o644, false}, {"labels", []byte(`app="web"`), 0o644, false}, {"name", []byte("web"), 0o644, false}},
		},
		"resources of no container": {
			volume: own(corev1.DownwardAPIVolumeFile{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "requests.cpu"}}),
			wrong:  "container  not found",
		},
		"several, of which the later counts": {
			volume: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: ref("settings")}},
				{Secret: &corev1.SecretProjection{LocalObjectReference: ref("keys"), Items: items(corev1.KeyToPath{Key: "k", Path: "a"})}},
			}}},
			want: []file{{"a", []byte("s3"), 0o644, false}, {"b", []byte("2"), 0o644, false}, {"c", []byte{0xff}, 0o644, false}},
		},
	} {
		got, err := filesOf(pod, &test.volume, someReferences())
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v, want %q", name, err, test.wrong)
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(file{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestMountsOfFiles checks that volumes of files, and parts of them, are mounted read-only.
func TestMountsOfFiles(t *testing.T) {
	s, err := openStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	pod := aPod()
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "settings", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: ref("settings")}}},
		{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
	}
	if err := s.prepare(pod, someReferences()); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		mount corev1.VolumeMount
		want  *runtimeapi.Mount
		wrong string
	}{
		"whole":          {mount: corev1.VolumeMount{Name: "settings", MountPath: "/s"}, want: &runtimeapi.Mount{ContainerPath: "/s", HostPath: s.volume("u-1", "settings"), Readonly: true}},
		"a part":         {mount: corev1.VolumeMount{Name: "settings", MountPath: "/a", SubPath: "a"}, want: &runtimeapi.Mount{ContainerPath: "/a", HostPath: s.volume("u-1", "settings") + "/a", Readonly: true}},
		"no such part":   {mount: corev1.VolumeMount{Name: "settings", MountPath: "/a", SubPath: "z"}, wrong: `has no "z"`},
		"an expression":  {mount: corev1.VolumeMount{Name: "settings", MountPath: "/a", SubPathExpr: "$(A)"}, want: &runtimeapi.Mount{ContainerPath: "/a", HostPath: s.volume("u-1", "settings") + "/a", Readonly: true}},
		"a way out":      {mount: corev1.VolumeMount{Name: "settings", MountPath: "/a", SubPath: "../.."}, wrong: "must not contain '..'"},
		"no such volume": {mount: corev1.VolumeMount{Name: "none", MountPath: "/e"}, wrong: "not one of the pod's"},
	} {
		got, err := s.mounts(pod, &corev1.Container{VolumeMounts: []corev1.VolumeMount{test.mount}}, []variable{{"A", "a"}})
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(), test.wrong) {
			t.Errorf("%s: %v, want %q", name, err, test.wrong)
		}
		if test.want != nil && (len(got) != 1 || got[0].String() != test.want.String()) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
