package containers

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestProbeThatCannotRunHasAnEvent: an Event says why a probe could not be carried out. The command of a probe may refer to
// variables.
func TestProbeThatCannotRunHasAnEvent(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	exec := func(command ...string) *corev1.Probe {
		return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}, PeriodSeconds: 1, TimeoutSeconds: 30}
	}
	s.create(corev1.PodSpec{Containers: []corev1.Container{
		{Name: "well", Command: shell(idle), Env: []corev1.EnvVar{{Name: "FILE", Value: "/etc/passwd"}}, ReadinessProbe: exec("ls", "$(FILE)")},
		{Name: "unknown", Command: shell(idle), ReadinessProbe: exec("/no-such-probe")},
	}})
	eventually.Agrees(t, func() string {
		events := p.run(t, "get", "events", "--field-selector=involvedObject.name="+s.name, "-o", "jsonpath={range .items[*]}{.reason}: {.message}{'\\n'}{end}")
		if !strings.Contains(events, "Unhealthy: Readiness probe errored and resulted in unknown state: ") || !strings.Contains(events, "/no-such-probe") {
			return "the Events are " + events
		}
		ready := map[string]bool{}
		for _, c := range p.pod(t, s.name).Status.ContainerStatuses {
			ready[c.Name] = c.Ready
		}
		if !ready["well"] || ready["unknown"] {
			return fmt.Sprintf("ready are %v", ready)
		}
		return ""
	})
	p.run(t, "delete", "pod", s.name)
}

// TestAnotherImageRestartsTheContainer: a container whose image is changed ends and runs again with the other image, even if its pod is
// never restarted; the pod's other container keeps running.
func TestAnotherImageRestartsTheContainer(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	s.create(corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{
		{Name: "main", Command: shell("trap 'touch /out/term; exit 3' TERM; touch /out/up; while :; do sleep 0.1; done")},
		{Name: "beside", Command: shell(idle)},
	}})
	before := p.eventuallyReady(t, s.name)
	s.mark("up") // the shell ignores TERM before its trap is set, and so lives for the whole grace period
	if err := os.Remove(filepath.Join(s.out, "up")); err != nil {
		t.Fatal(err)
	}
	p.run(t, "set", "image", "pod/"+s.name, "main="+otherImage)
	eventually.Agrees(t, func() string {
		pod := p.pod(t, s.name)
		beside, main := pod.Status.ContainerStatuses[0], pod.Status.ContainerStatuses[1]
		if main.Image != otherImage || main.State.Running == nil || main.RestartCount != 1 || main.LastTerminationState.Terminated == nil ||
			main.LastTerminationState.Terminated.ExitCode != 3 || beside.ContainerID != before.Status.ContainerStatuses[0].ContainerID {
			text, _ := json.Marshal(pod.Status)
			return string(text)
		}
		return ""
	})
	s.mark("term")
	s.mark("up")
	p.run(t, "delete", "pod", s.name)
}

// TestStatusOfTheResponseToAHookDoesNotCount: a server gets the requests of both hooks. Its responses do not count, whatever their status.
func TestStatusOfTheResponseToAHookDoesNotCount(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	var began, ended atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/began":
			began.Add(1)
		case "/ended":
			ended.Add(1)
		}
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	_, number, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	hook := func(path string) *corev1.LifecycleHandler {
		return &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Path: path, Port: intstr.Parse(number)}}
	}
	s.create(corev1.PodSpec{Containers: []corev1.Container{{
		Name: "main", Command: shell(idle), Lifecycle: &corev1.Lifecycle{PostStart: hook("/began"), PreStop: hook("/ended")},
	}}})
	if pod := p.eventuallyReady(t, s.name); pod.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("it was restarted: %+v", pod.Status.ContainerStatuses[0])
	}
	p.run(t, "delete", "pod", s.name)
	if began.Load() != 1 || ended.Load() != 1 {
		t.Errorf("the server got %d requests of postStart and %d of preStop", began.Load(), ended.Load())
	}
}
