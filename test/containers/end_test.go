package containers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestTERMComesAfterPreStop: TERM comes after preStop; a container that obeys it has the time that it takes.
func TestTERMComesAfterPreStop(t *testing.T) {
	t.Parallel()
	p, d := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(600)), Containers: []corev1.Container{{
		Name: "main", Command: shell(`trap 'touch /out/term; sleep 2; touch /out/end; exit 0' TERM; touch /out/up; while :; do sleep 0.1; done`),
		Lifecycle: &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: shell("touch /out/hook; sleep 1; touch /out/hooked")}}},
	}}})
	pod := p.eventuallyReady(t, s.name)
	s.mark("up")
	p.run(t, "delete", "pod", s.name)
	if !s.has("end") {
		t.Error("the container was not let end by itself")
	}
	if hooked, term := s.mark("hooked"), s.mark("term"); term.Before(hooked) {
		t.Errorf("TERM came at %s, the hook ended at %s", term, hooked)
	}
	d.nothingIsLeft(t, idsOf(t, pod))
}

// TestContainerThatIgnoresTERMIsKilledAfterItsGrace: a container that ignores TERM is killed when its grace period is over, not before.
func TestContainerThatIgnoresTERMIsKilledAfterItsGrace(t *testing.T) {
	t.Parallel()
	p, d := sharedPlane(t)
	s := newStory(t, p)
	const grace = 4
	s.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(grace)), Containers: []corev1.Container{{Name: "main", Command: shell(deaf)}}})
	pod := p.eventuallyReady(t, s.name)
	s.mark("up")
	p.run(t, "delete", "pod", s.name)
	// The files' clock is coarse, and there may be a delay between two heartbeats.
	if lived := s.mark("alive").Sub(s.mark("term")); lived < (grace-2)*time.Second {
		t.Errorf("killed %s after TERM, want %d s", lived, grace)
	}
	d.nothingIsLeft(t, idsOf(t, pod))
}

// TestLaterDeleteShortensTheGrace: a later DELETE with less grace makes the grace period shorter.
func TestLaterDeleteShortensTheGrace(t *testing.T) {
	t.Parallel()
	p, d := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(3600)), Containers: []corev1.Container{{Name: "main", Command: shell(deaf)}}})
	pod := p.eventuallyReady(t, s.name)
	s.mark("up")
	p.run(t, "delete", "pod", s.name, "--wait=false")
	s.mark("term")
	p.run(t, "delete", "pod", s.name, "--grace-period=1") // returns within patience, or fails
	d.nothingIsLeft(t, idsOf(t, pod))
}

// TestForcedDeletionEndsTheContainers: --force removes the pod from the API at once, and its containers soon.
func TestForcedDeletionEndsTheContainers(t *testing.T) {
	p, d := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(3600)), Containers: []corev1.Container{{Name: "main", Command: shell(deaf)}}})
	pod := p.eventuallyReady(t, s.name)
	s.mark("up")
	p.run(t, "delete", "pod", s.name, "--grace-period=0", "--force")
	d.nothingIsLeft(t, idsOf(t, pod))
}

// TestForegroundDeletionLeavesNoContainer: after a foreground deletion of a Deployment no container, sandbox, mount
// or cgroup is left.
func TestForegroundDeletionLeavesNoContainer(t *testing.T) {
	p, d := sharedPlane(t)
	network := ""
	if !d.network {
		network = "hostNetwork: true, "
	}
	p.apply(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: foreground}
spec:
  replicas: 3
  selector: {matchLabels: {app: foreground}}
  template:
    metadata: {labels: {app: foreground}}
    spec: {%scontainers: [{name: main, image: %q, command: [sh, -c, %q], volumeMounts: [{name: data, mountPath: /data}]}], volumes: [{name: data, emptyDir: {}}]}
`, network, image, idle))
	p.run(t, "rollout", "status", "deployment/foreground", "--timeout="+patience.String())
	pods := p.pods(t, "-l", "app=foreground")
	if len(pods) != 3 {
		t.Fatalf("%d pods, want 3", len(pods))
	}
	var ids []string
	for i := range pods {
		ids = append(ids, idsOf(t, &pods[i])...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sandboxes, err := d.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, sandbox := range sandboxes {
		if slices.ContainsFunc(pods, func(pod corev1.Pod) bool { return string(pod.UID) == sandbox.Metadata.Uid }) {
			ids = append(ids, sandbox.Id)
		}
	}
	if len(ids) != 9 { // a uid, a container and a sandbox of each
		t.Fatalf("%d ids, want 9: %v", len(ids), ids)
	}
	if mounts, err := mountsWith(ids[1]); err != nil || len(mounts) == 0 {
		t.Fatalf("a container that runs has no mounts (%v): what is looked for later would never be found", err)
	}
	if len(cgroupsOf(t, ids[1:2])) == 0 {
		t.Fatal("a container that runs has no cgroup: what is looked for later would never be found")
	}
	p.run(t, "delete", "deployment", "foreground", "--cascade=foreground")
	if left := p.pods(t, "-l", "app=foreground"); len(left) > 0 {
		t.Errorf("%d pods outlived their deployment", len(left))
	}
	d.nothingIsLeft(t, ids)
}

// idsOf returns the IDs of a pod: its uid and its containers. The status has the ID of a container only some time after the
// container has begun to run.
func idsOf(t *testing.T, pod *corev1.Pod) []string {
	t.Helper()
	ids := []string{string(pod.UID)}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		_, id, has := strings.Cut(c.ContainerID, "://")
		if !has {
			t.Fatalf("the status of pod %s has no ID of container %s yet: the test has to wait for it", pod.Name, c.Name)
		}
		ids = append(ids, id)
	}
	return ids
}

// nothingIsLeft waits until no container, task, sandbox, mount or cgroup with one of these IDs is
// left.
func (d *daemon) nothingIsLeft(t *testing.T, ids []string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		for _, what := range []string{"containers", "tasks"} {
			found, err := d.list(what)
			if err != nil {
				return err.Error()
			}
			if i := slices.IndexFunc(found, func(id string) bool { return slices.Contains(ids, id) }); i >= 0 {
				return fmt.Sprintf("%s has %s still", what, found[i])
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		sandboxes, err := d.runtime.ListPodSandbox(ctx, nil)
		if err != nil {
			return err.Error()
		}
		for _, s := range sandboxes {
			if slices.Contains(ids, s.Metadata.Uid) {
				return "sandbox of pod " + s.Metadata.Name + " is there still"
			}
		}
		for _, id := range ids {
			if mounts, err := mountsWith(id); err != nil || len(mounts) > 0 {
				return fmt.Sprintf("mounts %v %v", mounts, err)
			}
		}
		if groups := cgroupsOf(t, ids); len(groups) > 0 {
			return fmt.Sprintf("cgroups %v", groups)
		}
		return ""
	})
}

// cgroupsOf returns the cgroups that are named after one of these IDs.
func cgroupsOf(t *testing.T, ids []string) []string {
	t.Helper()
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it goes while it is looked at
		}
		if err == nil && e.IsDir() && slices.ContainsFunc(ids, func(id string) bool { return strings.Contains(e.Name(), id) }) {
			groups = append(groups, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return groups
}
