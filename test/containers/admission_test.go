package containers

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestRejectedPodIsMadeAgain: a pod whose port on the node is taken fails, and its StatefulSet makes
// it anew until the port is free.
func TestRejectedPodIsMadeAgain(t *testing.T) {
	t.Parallel()
	p, d := sharedPlane(t)
	number := port()
	s := newStory(t, p)
	ports := []corev1.ContainerPort{{ContainerPort: number, HostPort: number}}
	s.create(corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "main", Command: shell(idle), Ports: ports}}})
	first := p.eventuallyReady(t, s.name)
	p.apply(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: again}
spec:
  serviceName: again
  selector: {matchLabels: {app: again}}
  template:
    metadata: {labels: {app: again}}
    spec: {nodeName: %s, hostNetwork: true, containers: [{name: main, image: %q, command: [sh, -c, %q], ports: [{containerPort: %d, hostPort: %d}]}]}
`, first.Spec.NodeName, image, idle, number, number))
	rejected := ""
	eventually.Agrees(t, func() string {
		pod := p.pod(t, "again-0")
		if pod == nil || pod.Status.Phase != corev1.PodFailed {
			return "no failed pod again-0\n" + p.Log()
		}
		rejected = pod.Status.Reason + ": " + pod.Status.Message
		return ""
	})
	if want := "NodePorts: Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"; rejected != want {
		t.Errorf("the pod failed for %s", rejected)
	}
	p.run(t, "delete", "pod", s.name)
	again := p.eventuallyReady(t, "again-0")
	p.run(t, "delete", "statefulset", "again", "--cascade=foreground")
	d.nothingIsLeft(t, append(idsOf(t, first), idsOf(t, again)...))
}

// TestMessageFromLog: the end of the log of a container that has failed is its termination message
// if its policy says so.
func TestMessageFromLog(t *testing.T) {
	p, d := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "main", Command: shell("echo out; echo err >&2; exit 3"), TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		}},
	})
	var pod *corev1.Pod
	eventually.Agrees(t, func() string {
		if pod = p.pod(t, s.name); pod == nil || pod.Status.Phase != corev1.PodFailed {
			return "the pod has not failed\n" + p.Log()
		}
		return ""
	})
	// The two streams come by two pipes, in either order.
	end := pod.Status.ContainerStatuses[0].State.Terminated
	if end.ExitCode != 3 || end.Message != "out\nerr\n" && end.Message != "err\nout\n" {
		t.Errorf("it ended with %+v", end)
	}
	p.run(t, "delete", "pod", s.name)
	d.nothingIsLeft(t, idsOf(t, pod))
}
