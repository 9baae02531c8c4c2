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
	d.nothingIsLeft(t, idsOf(pod))
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
