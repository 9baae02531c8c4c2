package containers

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestSubPath: containers share parts of volumes, named by expressions too, which stay the same when a container
// restarts; afterwards no mount is left, and a hostPath volume keeps its contents.
func TestSubPath(t *testing.T) {
	p, d := sharedPlane(t)
	s := newStory(t, p)
	host := t.TempDir()
	if err := os.WriteFile(filepath.Join(host, "kept"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	name := corev1.EnvVar{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	s.create(corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: host}}},
		},
		Containers: []corev1.Container{
			{
				Name: "part", Env: []corev1.EnvVar{name},
				VolumeMounts: []corev1.VolumeMount{
					{Name: "data", MountPath: "/part", SubPathExpr: "deep/$(NAME)"},
					{Name: "host", MountPath: "/host", SubPath: "made"},
					{Name: "host", MountPath: "/kept", SubPath: "kept", ReadOnly: true},
				},
				Command: shell(`if [ -e /part/first ]; then touch /part/second /host/second; ` + idle + `; fi
					touch /part/first; touch /kept 2>/dev/null && touch /out/writable; exit 3`),
			},
			{
				Name: "whole", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				Command: shell("trap 'exit 0' TERM; while ! [ -e /data/deep/" + s.name + "/second ]; do sleep 0.1; done; touch /out/seen; " + idle),
			},
		},
	})
	s.mark("seen")
	if s.has("writable") {
		t.Error("a read-only part can be written to")
	}
	pod := p.eventuallyReady(t, s.name)
	p.run(t, "delete", "pod", s.name)
	d.nothingIsLeft(t, idsOf(t, pod))
	for _, file := range []string{"kept", "made/second"} {
		if _, err := os.Stat(filepath.Join(host, file)); err != nil {
			t.Errorf("the volume has lost %s: %v", file, err)
		}
	}
}

// TestSubPathStaysInside: a link that a container has put in place of a part of a volume leads nowhere outside of it.
func TestSubPathStaysInside(t *testing.T) {
	p, _ := sharedPlane(t)
	outside := t.TempDir()
	for name, part := range map[string]string{"absolute": outside, "relative": "../../../../../../../../../.." + outside} {
		t.Run(name, func(t *testing.T) {
			s := newStory(t, p)
			data := corev1.VolumeMount{Name: "data", MountPath: "/data"}
			s.create(corev1.PodSpec{
				Volumes:        []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				InitContainers: []corev1.Container{{Name: "attack", Command: shell("busybox ln -s " + part + " /data/link"), VolumeMounts: []corev1.VolumeMount{data}}},
				Containers: []corev1.Container{
					{Name: "itself", Command: shell("touch /mnt/file"), VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/mnt", SubPath: "link"}}},
					{Name: "through", Command: shell("touch /mnt/file"), VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/mnt", SubPath: "link/new"}}},
				},
			})
			eventually.Agrees(t, func() string {
				for _, c := range p.pod(t, s.name).Status.ContainerStatuses {
					if w := c.State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, "failed to prepare subPath") {
						return fmt.Sprintf("%s is %+v", c.Name, c.State)
					}
				}
				return ""
			})
			p.run(t, "delete", "pod", s.name)
		})
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) > 0 {
		t.Errorf("outside of the volume are %v, %v", entries, err)
	}
}

// inVolumes runs a test of a volume named data: an emptyDir, and a hostPath.
func inVolumes(t *testing.T, test func(t *testing.T, data corev1.Volume)) {
	t.Helper()
	for name, source := range map[string]corev1.VolumeSource{
		"emptyDir": {EmptyDir: &corev1.EmptyDirVolumeSource{}},
		"hostPath": {HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}},
	} {
		t.Run(name, func(t *testing.T) { test(t, corev1.Volume{Name: "data", VolumeSource: source}) })
	}
}

func part(path, of string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: "data", MountPath: path, SubPath: of}
}

// TestSubPathOfExisting: directories and files that init containers have made are mounted, also through a link inside of
// the volume, several of one volume at once, and read-only if a container asks for that.
func TestSubPathOfExisting(t *testing.T) {
	t.Parallel()
	p, d := sharedPlane(t)
	inVolumes(t, func(t *testing.T, data corev1.Volume) {
		s := newStory(t, p)
		fixedDir, fixedFile := part("/fixed-dir", "dir"), part("/fixed-file", "dir/file")
		fixedDir.ReadOnly, fixedFile.ReadOnly = true, true
		s.create(corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Volumes: []corev1.Volume{data},
			InitContainers: []corev1.Container{
				{Name: "first", VolumeMounts: []corev1.VolumeMount{part("/data", "")}, Command: shell("mkdir /data/dir; echo one > /data/dir/file; busybox ln -s dir /data/link")},
				{Name: "second", VolumeMounts: []corev1.VolumeMount{part("/dir", "dir"), part("/made", "made/here")}, Command: shell("echo two > /dir/second; touch /made/mark")},
			},
			Containers: []corev1.Container{{
				Name: "main", VolumeMounts: []corev1.VolumeMount{
					part("/dir", "dir"), part("/file", "dir/file"), part("/link", "link"), part("/made", "made/here"), part("/other", "other"), fixedDir, fixedFile,
				},
				Command: shell(`exec > /out/seen 2> /out/errors
					cat /dir/file /file /link/second /fixed-dir/file /fixed-file; ls /made /other
					echo three > /dir/new; echo changed > /file; touch /other/mark; cat /link/new /dir/file /fixed-file
					touch /fixed-dir/mark || echo no directory; echo wrong > /fixed-file || echo no file
					ls /dir /other; touch /out/done`),
			}},
		})
		s.mark("done")
		want := "one\none\ntwo\none\none\n/made:\nmark\n\n/other:\nthree\nchanged\nchanged\nno directory\nno file\n/dir:\nfile\nnew\nsecond\n\n/other:\nmark\n"
		if got := s.read("seen"); got != want {
			t.Errorf("it sees %q, want %q; its errors are %s", got, want, s.read("errors"))
		}
		pod := p.eventuallySucceeded(t, s.name)
		p.run(t, "delete", "pod", s.name)
		d.nothingIsLeft(t, idsOf(t, pod))
	})
}

// TestSubPathThatFails: a container does not start with a part that a link leads out of the volume, that is below a
// file, or whose expression has no usable value.
func TestSubPathThatFails(t *testing.T) {
	p, _ := sharedPlane(t)
	expression := func(of string) corev1.VolumeMount {
		return corev1.VolumeMount{Name: "data", MountPath: "/mnt", SubPathExpr: of}
	}
	const unusable = "failed to prepare subPath"
	cases := []struct {
		name, message string
		mount         corev1.VolumeMount
	}{
		{"directory", unusable, part("/mnt", "directory")},
		{"program", unusable, part("/mnt", "program")},
		{"missing", unusable, part("/mnt", "missing")},
		{"up", unusable, part("/mnt", "up")},
		{"chain", unusable, part("/mnt", "chain")},
		{"below-file", unusable, part("/mnt", "file/below")},
		{"parent", "must not contain '..'", expression("$(UP)")},
		{"root", "must not be an absolute path", expression("$(ROOT)/x")},
		{"unknown", `missing value for "NONE"`, expression("$(NONE)")},
	}
	messages := map[string]string{}
	for _, c := range cases {
		messages[c.name] = c.message
	}
	inVolumes(t, func(t *testing.T, data corev1.Volume) {
		s := newStory(t, p)
		spec := corev1.PodSpec{Volumes: []corev1.Volume{data}, InitContainers: []corev1.Container{{
			Name: "links", VolumeMounts: []corev1.VolumeMount{part("/data", "")},
			Command: shell("cd /data; touch file; for to in directory:/bin program:/bin/sh missing:/bin/none up:../ chain:up; do busybox ln -s ${to#*:} ${to%:*}; done"),
		}}}
		for _, c := range cases {
			spec.Containers = append(spec.Containers, corev1.Container{
				Name: c.name, VolumeMounts: []corev1.VolumeMount{c.mount}, Env: []corev1.EnvVar{{Name: "UP", Value: ".."}, {Name: "ROOT", Value: "/tmp"}},
				Command: shell("touch /out/ran-" + c.name),
			})
		}
		s.create(spec)
		eventually.Agrees(t, func() string {
			statuses := p.pod(t, s.name).Status.ContainerStatuses
			if len(statuses) != len(cases) {
				return fmt.Sprintf("%d containers have a status", len(statuses))
			}
			for _, c := range statuses {
				if w := c.State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" || !strings.Contains(w.Message, messages[c.Name]) {
					return fmt.Sprintf("%s is %+v, want the message %s", c.Name, w, messages[c.Name])
				}
			}
			return ""
		})
		p.run(t, "delete", "pod", s.name)
		for _, c := range cases {
			if s.has("ran-" + c.name) {
				t.Errorf("%s ran", c.name)
			}
		}
	})
}

// TestSubPathExprOfAnnotation: a container starts when the annotation that its part is named by is there, and keeps the
// part when the annotation changes and when the directory is removed; afterwards no mount is left.
func TestSubPathExprOfAnnotation(t *testing.T) {
	t.Parallel()
	p, d := sharedPlane(t)
	s := newStory(t, p)
	name := corev1.EnvVar{Name: "PART", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['part']"}}}
	s.create(corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		Containers: []corev1.Container{{
			Name: "main", Env: []corev1.EnvVar{name},
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/part", SubPathExpr: "$(PART)/own"}, part("/data", "")},
			Command: shell(`trap 'exit 0' TERM; touch /data/first/own/file /out/up; while ! [ -e /out/go ]; do sleep 0.1; done
				ls /data /part > /out/seen; rm -r /data/first; touch /out/done; while :; do sleep 0.1; done`),
		}},
	})
	eventually.Agrees(t, func() string {
		pod := p.pod(t, s.name)
		if len(pod.Status.ContainerStatuses) == 0 {
			return "no container yet"
		}
		if w := pod.Status.ContainerStatuses[0].State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" {
			return fmt.Sprintf("it waits for %+v", w)
		}
		return ""
	})
	p.run(t, "annotate", "pod", s.name, "part=first")
	pod := p.eventuallyReady(t, s.name)
	s.mark("up")
	p.run(t, "annotate", "pod", s.name, "part=second", "--overwrite")
	if err := os.WriteFile(filepath.Join(s.out, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.mark("done")
	if got, want := s.read("seen"), "/data:\nfirst\n\n/part:\nfile\n"; got != want {
		t.Errorf("it sees %q, want %q", got, want)
	}
	p.run(t, "delete", "pod", s.name)
	d.nothingIsLeft(t, idsOf(t, pod))
}
