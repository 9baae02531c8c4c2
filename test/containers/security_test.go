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

// TestSeccompProfilesOfTheNode: a pod may name the profiles of the node's administrator, and no other file. Its sandbox
// does not need the system calls that the profile forbids.
func TestSeccompProfilesOfTheNode(t *testing.T) {
	d := needDaemon(t)
	dir := filepath.Join(t.TempDir(), "data")
	p := ownPlane(t, d, "--data-dir="+dir)
	const profile = `{"defaultAction":"SCMP_ACT_ALLOW","syscalls":[{"names":["mkdir","mkdirat"],"action":"SCMP_ACT_ERRNO"}]}`
	if err := os.WriteFile(filepath.Join(dir, "node", "seccomp", "nodir.json"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStory(t, p)
	local := func(name string) *corev1.SecurityContext {
		return &corev1.SecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: &name}}
	}
	s.create(corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{SeccompProfile: local("nodir.json").SeccompProfile},
		Containers: []corev1.Container{
			{Name: "kept", Command: shell("mkdir /out/kept; touch /out/ran; " + idle)},
			// The file that this path leads to from the root directory, where a service is started, is written by a container.
			{Name: "own", SecurityContext: local(strings.TrimPrefix(s.out, "/") + "/planted.json"), Command: shell("touch /out/escaped")},
		},
	})
	if err := os.WriteFile(filepath.Join(s.out, "planted.json"), []byte(`{"defaultAction":"SCMP_ACT_ALLOW"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s.mark("ran")
	if s.has("kept") {
		t.Error("the container made a directory, which its profile forbids")
	}
	s.isRefused("own", "CreateContainerError")
	if s.has("escaped") {
		t.Error("a container runs with a profile of its own")
	}
	p.run(t, "delete", "pod", s.name)
}

// TestGroupWithoutUser: a container of an image that names no user runs as root, with the group that is asked for, and not
// at all if it must not be root.
func TestGroupWithoutUser(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsGroup: new(int64(7))},
		Containers: []corev1.Container{
			{Name: "main", Command: shell("busybox id -u > /out/user; busybox id -g >> /out/user; touch /out/done; " + idle)},
			{Name: "strict", SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true)}, Command: shell("touch /out/escaped")},
		},
	})
	s.mark("done")
	if got := s.read("user"); got != "0\n7\n" {
		t.Errorf("its user and group are %q", got)
	}
	s.isRefused("strict", "CreateContainerConfigError")
	if s.has("escaped") {
		t.Error("a container that must not be root runs as root")
	}
	p.run(t, "delete", "pod", s.name)
}

// TestGroupsOfTheImage: a pod may forbid that its processes have the groups of their user in the image. A node whose
// runtime cannot forbid it rejects the pod.
func TestGroupsOfTheImage(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	strict := corev1.SupplementalGroupsPolicyStrict
	s.create(corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{SupplementalGroups: []int64{60}, SupplementalGroupsPolicy: &strict},
		Containers:      []corev1.Container{{Name: "main", Command: shell("busybox id -G > /out/groups; touch /out/done; " + idle)}},
	})
	if able := p.run(t, "get", "nodes", "-o", "jsonpath={.items[0].status.features.supplementalGroupsPolicy}"); able != "true" {
		pod := p.eventuallyIs(t, s.name, "rejected", func(pod *corev1.Pod) bool { return pod.Status.Phase == corev1.PodFailed })
		if got := pod.Status.Reason; got != "SupplementalGroupsPolicyNotSupported" || s.has("groups") {
			t.Errorf("the node is not able to (%q), and the pod failed because of %q", able, got)
		}
		return
	}
	s.mark("done")
	if got := s.read("groups"); got != "0 60\n" {
		t.Errorf("its groups are %q", got)
	}
	p.run(t, "delete", "pod", s.name)
}

// isRefused waits until a container waits for a reason.
func (s *story) isRefused(container, reason string) {
	s.t.Helper()
	eventually.Agrees(s.t, func() string {
		statuses := s.p.pod(s.t, s.name).Status.ContainerStatuses
		for _, c := range statuses {
			if w := c.State.Waiting; c.Name == container && w != nil && w.Reason == reason {
				return ""
			}
		}
		return fmt.Sprintf("%s does not wait for %s: %+v", container, reason, statuses)
	})
}
