package containers

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func intOrString(n int32) intstr.IntOrString { return intstr.FromInt32(n) }

// TestKilledAgentFindsItsContainersAgain: an agent that was killed finds its containers again: none is killed, none is
// forgotten. Containers of pods that the API no longer knows are ended.
func TestKilledAgentFindsItsContainersAgain(t *testing.T) {
	d := needDaemon(t)
	dir := t.TempDir()
	p := ownPlane(t, d, "--data-dir="+dir)
	s := newStory(t, p)
	s.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(600)), Containers: []corev1.Container{{Name: "main", Command: shell(idle)}}})
	before := p.eventuallyReady(t, s.name)
	p.kill(t)

	p = ownPlane(t, d, "--data-dir="+dir)
	s.p = p
	// The agent has seen the pod once it has begun to start another.
	second := &story{t, p, s.name + "-2", s.out}
	second.create(corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: shell(idle)}}})
	other := p.eventuallyReady(t, second.name)
	after := p.pod(t, s.name)
	if after == nil || !isReady(after) {
		t.Fatalf("not ready after the restart: %+v", after)
	}
	if got, want := idsOf(t, after), idsOf(t, before); !slices.Equal(got, want) {
		t.Errorf("containers %v, want %v as before", got, want)
	}
	if n := after.Status.ContainerStatuses[0].RestartCount; n != 0 {
		t.Errorf("%d restarts", n)
	}
	p.run(t, "delete", "pod", s.name)
	d.nothingIsLeft(t, idsOf(t, before))

	p.kill(t)
	keepOnly(t, dir, "node")
	ownPlane(t, d, "--data-dir="+dir)
	d.nothingIsLeft(t, idsOf(t, other))
	eventually.Agrees(t, func() string {
		if _, err := os.Stat(filepath.Join(dir, "node", "pods", string(other.UID))); err == nil {
			return "the files of a pod that is gone are there still"
		}
		return ""
	})
}

// keepOnly removes all of a directory but one entry.
func keepOnly(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() == name {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEphemeralControlPlaneLeavesNoContainers: an ephemeral control plane leaves no containers, and does not touch those of
// another.
func TestEphemeralControlPlaneLeavesNoContainers(t *testing.T) {
	other, d := sharedPlane(t)
	bystander := newStory(t, other)
	bystander.create(corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: shell(idle)}}})
	untouched := other.eventuallyReady(t, bystander.name)

	p := ownPlane(t, d, "--ephemeral")
	s := &story{t, p, "own", bystander.out}
	s.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(3600)), Containers: []corev1.Container{{Name: "main", Command: shell(deaf)}}})
	pod := p.eventuallyReady(t, s.name)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	d.nothingIsLeft(t, idsOf(t, pod))
	if tasks, err := d.list("tasks"); err != nil || !slices.Contains(tasks, idsOf(t, untouched)[1]) {
		t.Errorf("the container of another control plane is gone (%v): %v", err, tasks)
	}
	other.run(t, "delete", "pod", bystander.name)
}
