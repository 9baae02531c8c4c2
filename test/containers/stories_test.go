package containers

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// lastPort is the last port given out: pods that share the host's network must not collide.
var lastPort atomic.Int32

func port() int32 { return 28200 + lastPort.Add(1) }

// stories counts the stories: a test may run more than once.
var stories atomic.Int32

// story is a pod with a directory that it shares with the test, as /out.
type story struct {
	t    *testing.T
	p    *plane
	name string
	out  string
}

func newStory(t *testing.T, p *plane) *story {
	t.Helper()
	name := strings.NewReplacer("/", "-", "_", "-").Replace(strings.ToLower(strings.TrimPrefix(t.Name(), "Test")))
	s := &story{t, p, name, filepath.Join(workDir, fmt.Sprintf("out-%s-%d", name, stories.Add(1)))}
	if err := os.Mkdir(s.out, 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// create makes the pod of a spec, whose containers need not name their image.
func (s *story) create(spec corev1.PodSpec) {
	s.t.Helper()
	spec.HostNetwork = spec.HostNetwork || !once.daemon.network
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "out", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.out}}})
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if c.Image == "" {
				c.Image = image
			}
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "out", MountPath: "/out"})
		}
	}
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": s.name}, "spec": spec})
	if err != nil {
		s.t.Fatal(err)
	}
	s.p.apply(s.t, string(text))
}

// mark waits for a file that the pod writes, and returns its modification time.
func (s *story) mark(name string) time.Time {
	s.t.Helper()
	var at time.Time
	eventually.Agrees(s.t, func() string {
		info, err := os.Stat(filepath.Join(s.out, name))
		if err != nil {
			return err.Error() + "\n" + s.p.Log()
		}
		at = info.ModTime()
		return ""
	})
	return at
}

// has reports whether the pod has written a file.
func (s *story) has(name string) bool {
	s.t.Helper()
	_, err := os.Stat(filepath.Join(s.out, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.t.Fatal(err)
	}
	return err == nil
}

func shell(script string) []string { return []string{"sh", "-c", script} }

// idle runs until TERM, which it obeys.
const idle = `trap 'exit 0' TERM; while :; do sleep 0.1; done`

// deaf writes when TERM comes, ignores it, and keeps writing for as long as it runs.
const deaf = `trap 'touch /out/term' TERM; touch /out/up; while :; do touch /out/alive; sleep 0.1; done`

// TestLifeOfAPod: init container, sidecar and container start in that order, share a volume, know their
// pod's identity, and are logged; on deletion the sidecar ends last; nothing is left.
func TestLifeOfAPod(t *testing.T) {
	p, d := sharedPlane(t)
	s := newStory(t, p)
	always := corev1.ContainerRestartPolicyAlways
	data := []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	name := corev1.EnvVar{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}
	s.create(corev1.PodSpec{
		Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		InitContainers: []corev1.Container{
			{Name: "prepare", Command: shell("sleep 0.5; echo prepared > /data/text; touch /out/1"), VolumeMounts: data},
			{
				Name: "beside", RestartPolicy: &always,
				Command: shell(`trap 'touch /out/beside-term; exit 0' TERM; ls /out > /out/beside; echo trouble >&2; while :; do sleep 0.1; done`),
				StartupProbe: &corev1.Probe{
					ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ls", "/out/beside"}}}, PeriodSeconds: 1, FailureThreshold: 600,
				},
			},
		},
		Containers: []corev1.Container{{
			Name: "main", VolumeMounts: data, Env: []corev1.EnvVar{name, {Name: "GREETING", Value: "I am $(NAME)"}},
			Command: []string{"sh"}, Args: []string{"-c", `trap 'ls /out > /out/main-term; sleep 0.5; touch /out/main-end; exit 0' TERM
				ls /out > /out/main; echo "$GREETING"; cat /data/text; touch /out/written; while :; do sleep 0.1; done`},
		}},
	})
	pod := p.eventuallyReady(t, s.name)
	s.mark("written")
	if got := s.read("main"); !slices.Contains(strings.Fields(got), "1") || !slices.Contains(strings.Fields(got), "beside") {
		t.Errorf("the container found %q when it started, want what the init container and the sidecar wrote", got)
	}
	eventually.Agrees(t, func() string {
		if got, want := p.run(t, "logs", s.name, "-c", "main"), "I am "+s.name+"\nprepared\n"; got != want {
			return fmt.Sprintf("logs: %q, want %q", got, want)
		}
		return ""
	})
	if got := p.run(t, "logs", s.name, "-c", "main", "--tail=1"); got != "prepared\n" {
		t.Errorf("logs --tail=1: %q", got)
	}
	eventually.Agrees(t, func() string {
		if got := p.run(t, "logs", s.name, "-c", "beside"); got != "trouble\n" {
			return fmt.Sprintf("logs of what was written to stderr: %q", got)
		}
		return ""
	})
	if got := p.run(t, "logs", s.name, "-c", "main", "--limit-bytes=4"); got != "I am" {
		t.Errorf("logs --limit-bytes=4: %q", got)
	}
	stamped := p.run(t, "logs", s.name, "-c", "main", "--timestamps", "--tail=1")
	if stamp, text, _ := strings.Cut(stamped, " "); text != "prepared\n" {
		t.Errorf("logs --timestamps: %q", stamped)
	} else if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
		t.Errorf("logs --timestamps: %v", err)
	}
	p.run(t, "delete", "pod", s.name)
	if got := s.read("main-term"); strings.Contains(got, "beside-term") {
		t.Errorf("the sidecar was told to end first: %q", got)
	}
	if end, told := s.mark("main-end"), s.mark("beside-term"); told.Before(end) {
		t.Errorf("the sidecar was told to end at %s, the container ended at %s", told, end)
	}
	d.nothingIsLeft(t, idsOf(t, pod))
}

func (s *story) read(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.out, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// TestLogsFollow follows a log, which goes on until the container ends.
func TestLogsFollow(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	s.follow()
	p.run(t, "delete", "pod", s.name)
}

// follow follows the log of a pod that writes a line, is seen to have, and then ends.
func (s *story) follow() *corev1.Pod {
	t, p := s.t, s.p
	t.Helper()
	data := corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
	s.create(corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Volumes: []corev1.Volume{data}, Containers: []corev1.Container{{
		Name: "main", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: "part"}}, Command: shell(`echo one > /data/one; cat /data/one; while [ ! -e /out/go ]; do sleep 0.1; done; echo two`),
	}}})
	pod := p.eventuallyReady(t, s.name)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	command := exec.CommandContext(ctx, "kubectl", "logs", "-f", s.name)
	command.Env = append(os.Environ(), "KUBECONFIG="+p.kubeconfig)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "one\n" {
		t.Errorf("logs -f: %q %v, want one", line, err)
	}
	if err := os.WriteFile(filepath.Join(s.out, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); string(rest) != "two\n" || err != nil {
		t.Errorf("logs -f: %q %v, want two", rest, err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("logs -f: %v", err)
	}
	p.eventuallySucceeded(t, s.name)
	return pod
}

// TestProbesDecideWhenAPodIsReady: a pod is ready when its probes say so, of each kind, and not before.
func TestProbesDecideWhenAPodIsReady(t *testing.T) {
	t.Parallel()
	p, _ := sharedPlane(t)
	for kind, handler := range map[string]func(port int32) corev1.ProbeHandler{
		"exec": func(int32) corev1.ProbeHandler {
			return corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ls", "/tmp/served/ok"}}}
		},
		"http": func(port int32) corev1.ProbeHandler {
			return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: intOrString(port)}}
		},
		"tcp": func(port int32) corev1.ProbeHandler {
			return corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intOrString(port)}}
		},
	} {
		t.Run(kind, func(t *testing.T) {
			s := newStory(t, p)
			n := port()
			script := fmt.Sprintf(`trap 'exit 0' TERM; touch /out/up; while [ ! -e /out/go ]; do sleep 0.1; done
				mkdir /tmp/served; touch /tmp/served/ok; httpd -p %d -h /tmp/served; while :; do sleep 0.1; done`, n)
			s.create(corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Command: shell(script), ReadinessProbe: &corev1.Probe{ProbeHandler: handler(n), PeriodSeconds: 1, TimeoutSeconds: 30},
			}}})
			s.mark("up")
			eventually.Agrees(t, func() string {
				if p.run(t, "get", "events", "--field-selector=reason=Unhealthy,involvedObject.name="+s.name, "-o", "name") == "" {
					return "no probe has failed: " + p.Log()
				}
				return ""
			})
			if pod := p.pod(t, s.name); isReady(pod) {
				t.Fatalf("ready before anything is served: %+v", pod.Status)
			}
			if err := os.WriteFile(filepath.Join(s.out, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.eventuallyReady(t, s.name)
			p.run(t, "delete", "pod", s.name)
		})
	}
}

// TestFailedLivenessProbeRestartsTheContainer: a container that fails its liveness probe is ended and runs again; the log of the
// previous one can still be read.
func TestFailedLivenessProbeRestartsTheContainer(t *testing.T) {
	p, _ := sharedPlane(t)
	s := newStory(t, p)
	alive := corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"ls", "/tmp/well"}}}
	s.create(corev1.PodSpec{TerminationGracePeriodSeconds: new(int64(60)), Containers: []corev1.Container{{
		Name: "main", LivenessProbe: &corev1.Probe{ProbeHandler: alive, PeriodSeconds: 1, FailureThreshold: 2, TimeoutSeconds: 30},
		Command: shell(`trap 'echo told to end; exit 7' TERM; touch /tmp/well
			if [ -e /out/again ]; then echo second; else echo first; touch /out/again; rm /tmp/well; fi; while :; do sleep 0.1; done`),
	}}})
	eventually.Agrees(t, func() string {
		pod := p.pod(t, s.name)
		if pod == nil || len(pod.Status.ContainerStatuses) == 0 {
			return "no container yet"
		}
		c := pod.Status.ContainerStatuses[0]
		if last := c.LastTerminationState.Terminated; c.RestartCount != 1 || !c.Ready || last == nil || last.ExitCode != 7 {
			text, _ := json.Marshal(c)
			return fmt.Sprintf("want one restart after exit code 7: %s", text)
		}
		return ""
	})
	if got := p.run(t, "logs", s.name, "--previous"); got != "first\ntold to end\n" {
		t.Errorf("logs --previous: %q", got)
	}
	if got := p.run(t, "logs", s.name); got != "second\n" {
		t.Errorf("logs: %q", got)
	}
	p.run(t, "delete", "pod", s.name)
}

// TestUnsupportedVolumesAreNamed: a volume type that the node does not support is named in the pod's status, and
// so is an image that is missing; such pods can be deleted.
func TestUnsupportedVolumesAreNamed(t *testing.T) {
	p, _ := sharedPlane(t)
	for _, test := range []struct {
		name, reason, message string
		spec                  corev1.PodSpec
	}{
		{
			"volume", "CreateContainerConfigError", "nfs volumes are not supported by this node",
			corev1.PodSpec{
				Volumes:    []corev1.Volume{{Name: "far", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "nfs.invalid", Path: "/"}}}},
				Containers: []corev1.Container{{Name: "main", Command: shell(idle)}},
			},
		},
		{
			"image", "ErrImageNeverPull", "is not present with pull policy of Never",
			corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "coppice.test/missing:1", ImagePullPolicy: corev1.PullNever}}},
		},
		{
			"command", "RunContainerError", "no-such-command",
			corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Command: []string{"/no-such-command"}}}},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t, p)
			s.create(test.spec)
			eventually.Agrees(t, func() string {
				pod := p.pod(t, s.name)
				if pod == nil || len(pod.Status.ContainerStatuses) == 0 {
					return "no container yet"
				}
				w := pod.Status.ContainerStatuses[0].State.Waiting
				if w == nil || w.Reason != test.reason || !strings.Contains(w.Message, test.message) {
					return fmt.Sprintf("waits for %+v, want %s: …%s…", w, test.reason, test.message)
				}
				return ""
			})
			p.run(t, "delete", "pod", s.name)
		})
	}
}
