package containers

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// outside starts a control plane without nodes. The function that it returns starts the agent of the node outside, which has
// real containers of the daemon, with its data in dir; both processes end with the test.
func outside(t *testing.T, d *daemon, dir string) (p *plane, agent func() *plane) {
	t.Helper()
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	start := func(arguments ...string) *plane {
		t.Helper()
		started, err := launch(arguments...)
		if err != nil {
			t.Fatal(err)
		}
		stopAtEnd(t, started)
		return started
	}
	return start("up", "--ephemeral", "--secure-port=0", "--nodes=0", "--write-node-kubeconfig=outside="+kubeconfig), func() *plane {
		return start("node", "--kubeconfig="+kubeconfig, "--runtime=cri", "--cri-socket=unix://"+d.socket, "--data-dir="+dir)
	}
}

// TestNodeOutside: a node with real containers in a process of its own. Its pods run, with the objects that they refer to,
// and are logged through the API server; they outlive the agent; when they have finished, their volumes are gone, and when
// they are deleted nothing is left.
func TestNodeOutside(t *testing.T) {
	t.Parallel()
	d, dir := needDaemon(t), t.TempDir()
	p, outside := outside(t, d, dir)
	agent := outside()
	s := newStory(t, p)
	followed := s.follow()
	eventually.Agrees(t, func() string { return filesOfFinished(dir, followed) })

	p.run(t, "create", "configmap", "words", "--from-literal=word=spoken")
	word := corev1.EnvVar{Name: "WORD", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "words"}, Key: "word",
	}}}
	second := &story{t, p, s.name + "-2", s.out}
	second.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(600)), Containers: []corev1.Container{{
		Name: "main", Env: []corev1.EnvVar{word}, Command: shell("echo $WORD; echo wrong >&2; " + idle),
	}}})
	pod := p.eventuallyReady(t, second.name)
	if got := strings.Fields(p.run(t, "logs", second.name)); len(got) != 2 {
		t.Errorf("logs: %q", got)
	}
	if _, err := os.Stat(filepath.Join(dir, "pods", string(pod.UID))); err != nil {
		t.Errorf("a pod that runs has no files: what is looked for later would never be found: %v", err)
	}
	agent.kill(t)
	if out, err := p.try("", "logs", second.name); err == nil || !strings.Contains(err.Error(), "the agent of node outside, which does not answer at 127.0.0.1:") {
		t.Errorf("logs without an agent: %s %v", out, err)
	}
	outside()
	eventually.Agrees(t, func() string { // the agent is ready before it has looked at its pods
		out, err := p.try("", "logs", second.name, "--tail=1")
		if err != nil {
			return err.Error()
		}
		if out != "spoken\n" && out != "wrong\n" { // of two streams either may be last
			return "logs: " + out
		}
		return ""
	})
	p.run(t, "delete", "pod", s.name, second.name)
	d.nothingIsLeft(t, append(idsOf(t, followed), idsOf(t, pod)...))
	eventually.Agrees(t, func() string {
		for _, gone := range []*corev1.Pod{followed, pod} {
			if _, err := os.Stat(filepath.Join(dir, "pods", string(gone.UID))); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Sprintf("the files of pod %s are there still: %v", gone.Name, err)
			}
		}
		return ""
	})
}

// filesOfFinished returns an error text unless the agent with this directory has the logs of a pod, but not its volumes.
func filesOfFinished(dir string, pod *corev1.Pod) string {
	at := filepath.Join(dir, "pods", string(pod.UID))
	if _, err := os.Stat(filepath.Join(at, "logs")); err != nil {
		return fmt.Sprintf("the logs of pod %s: %v", pod.Name, err)
	}
	for _, name := range []string{"volumes", "subpaths"} {
		if _, err := os.Stat(filepath.Join(at, name)); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf("the %s of pod %s are there still: %v", name, pod.Name, err)
		}
	}
	return ""
}
