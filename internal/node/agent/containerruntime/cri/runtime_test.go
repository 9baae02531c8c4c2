package cri

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	apitest "k8s.io/cri-api/pkg/apis/testing"
	clocktesting "k8s.io/utils/clock/testing"
	utilexec "k8s.io/utils/exec"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// fake is an in-memory container runtime.
type fake struct {
	*apitest.FakeRuntimeService
	images *apitest.FakeImageService

	mu    sync.Mutex
	stops []int64 // guarded by mu: the timeouts with which containers were stopped
	exec  error   // the result of commands

	commands int           // guarded by mu: how many were run
	command  []string      // guarded by mu: the last one
	within   time.Duration // guarded by mu: its time limit
}

func newFake() *fake {
	return &fake{FakeRuntimeService: apitest.NewFakeRuntimeService(), images: apitest.NewFakeImageService()}
}

// StopContainer implements internalapi.ContainerManager.
func (f *fake) StopContainer(ctx context.Context, id string, timeout int64) error {
	f.mu.Lock()
	f.stops = append(f.stops, timeout)
	f.mu.Unlock()
	return f.FakeRuntimeService.StopContainer(ctx, id, timeout)
}

// ExecSync implements internalapi.ContainerManager.
func (f *fake) ExecSync(_ context.Context, _ string, command []string, within time.Duration) (stdout, stderr []byte, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.commands++
	f.command, f.within = command, within
	return []byte("out"), []byte("err"), f.exec
}

func (f *fake) open(t *testing.T, dir string) *Runtime {
	t.Helper()
	r, err := open(t.Context(), Config{Dir: dir, HostIPs: []string{"192.0.2.1"}, Logger: slog.New(slog.DiscardHandler)}, services{f, f.images})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// do carries out a step and waits until it has ended.
func do(t *testing.T, r *Runtime, pod *corev1.Pod, s lifecycle.Step) error {
	t.Helper()
	ended := make(chan error, 1)
	r.Do(t.Context(), pod, s, func(err error) { ended <- err })
	return <-ended
}

func mustDo(t *testing.T, r *Runtime, pod *corev1.Pod, s lifecycle.Step) {
	t.Helper()
	if err := do(t, r, pod, s); err != nil {
		t.Fatalf("%T: %v", s, err)
	}
}

// TestStepsAndRestart checks that the effect of a step can be observed when it has ended, also by the next agent, but
// not by another agent on the same socket.
func TestStepsAndRestart(t *testing.T) {
	f, dir, pod := newFake(), t.TempDir(), aPod()
	r := f.open(t, dir)
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c", Backoff: time.Second})
	first := r.Observe(pod.UID)
	if !first.Sandbox.Ready || len(first.Instances) != 1 || !first.Instances[0].Alive() {
		t.Fatalf("%+v", first)
	}

	r = f.open(t, dir)
	if got := r.Observe(pod.UID); len(got.Instances) != 1 || got.Instances[0].ID != first.Instances[0].ID || got.Instances[0].Backoff != time.Second {
		t.Errorf("after the restart %+v, want %+v", got, first)
	}
	if other := f.open(t, t.TempDir()); len(other.Known()) != 0 || other.Observe(pod.UID).Sandbox.ID != "" {
		t.Errorf("another agent knows %v", other.Known())
	}
	// An agent that was stopped in between repeats steps. That changes nothing.
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	if got := r.Observe(pod.UID); len(got.Instances) != 1 {
		t.Errorf("%+v", got)
	}

	id := first.Instances[0].ID
	mustDo(t, r, pod, lifecycle.Signal{ID: id, Container: "c", Grace: 1500 * time.Millisecond})
	mustDo(t, r, pod, lifecycle.Kill{ID: id, Container: "c"})
	if want := []int64{2, 0}; !slices.Equal(f.stops, want) {
		t.Errorf("stopped with timeouts %v, want %v", f.stops, want)
	}
	if got := r.Observe(pod.UID); got.Instances[0].Alive() {
		t.Errorf("%+v", got)
	}
	mustDo(t, r, pod, lifecycle.RemoveSandbox{ID: first.Sandbox.ID})
	if got := r.Observe(pod.UID); got.Sandbox.ID != "" || len(got.Instances) != 0 {
		t.Errorf("%+v", got)
	}
	if !slices.Contains(r.Known(), pod.UID) {
		t.Error("the files of a pod that gets another sandbox are gone")
	}
	mustDo(t, r, pod, lifecycle.RemoveSandbox{ID: first.Sandbox.ID, Final: true})
	if known := r.Known(); len(known) != 0 {
		t.Errorf("%v is still known", known)
	}
}

// TestHalfMade checks that a container that an earlier agent created but did not start does not count, and is created
// again.
func TestHalfMade(t *testing.T) {
	f, pod := newFake(), aPod()
	r := f.open(t, t.TempDir())
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	f.InjectError("StartContainer", errors.New("stopped here"))
	if err := do(t, r, pod, lifecycle.Start{Container: "c"}); err == nil {
		t.Fatal("no error")
	}
	if got := r.Observe(pod.UID); len(got.Instances) != 0 {
		t.Fatalf("%+v", got)
	}
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	if got := r.Observe(pod.UID); len(got.Instances) != 1 || got.Instances[0].Attempt != 0 {
		t.Errorf("%+v", got)
	}
}

// TestForgottenPodLeavesNoFiles checks that the files of a forgotten pod are removed.
func TestForgottenPodLeavesNoFiles(t *testing.T) {
	r, pod := newFake().open(t, t.TempDir()), aPod()
	if err := os.MkdirAll(r.store.volume(pod.UID, "v"), 0o700); err != nil {
		t.Fatal(err)
	}
	if known := r.Known(); !slices.Contains(known, pod.UID) {
		t.Fatalf("%v", known)
	}
	r.Forget(pod.UID)
	if known := r.Known(); len(known) != 0 {
		t.Errorf("%v", known)
	}
}

func TestClearRemovesContainersSandboxesAndFiles(t *testing.T) {
	f, pod := newFake(), aPod()
	r := f.open(t, t.TempDir())
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	other := f.open(t, t.TempDir())
	stranger := aPod()
	stranger.UID, stranger.Name = "u-2", "stranger"
	mustDo(t, other, stranger, lifecycle.CreateSandbox{})
	if err := r.Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(f.Sandboxes) != 1 || len(f.Containers) != 0 || len(r.store.known()) != 0 {
		t.Errorf("left: %v %v %v", f.Sandboxes, f.Containers, r.store.known())
	}
}

func TestImagesArePulledByPolicy(t *testing.T) {
	for name, test := range map[string]struct {
		policy  corev1.PullPolicy
		there   bool
		refused error
		reason  string
		pulls   int
	}{
		"there, if not present":   {policy: corev1.PullIfNotPresent, there: true},
		"missing, if not present": {policy: corev1.PullIfNotPresent, pulls: 1},
		"there, always":           {policy: corev1.PullAlways, there: true, pulls: 1},
		"there, never":            {policy: corev1.PullNever, there: true},
		"missing, never":          {policy: corev1.PullNever, reason: "ErrImageNeverPull"},
		"refused":                 {policy: corev1.PullIfNotPresent, refused: errors.New("no such image"), reason: "ErrImagePull", pulls: 1},
		"no name":                 {policy: corev1.PullIfNotPresent, refused: errors.New("invalid reference format"), reason: "InvalidImageName", pulls: 1},
	} {
		f, pod := newFake(), aPod()
		if test.there {
			f.images.SetFakeImages([]string{"image:1"})
		}
		if test.refused != nil {
			f.images.InjectError("PullImage", test.refused)
		}
		r := f.open(t, t.TempDir())
		mustDo(t, r, pod, lifecycle.CreateSandbox{})
		pod.Spec.Containers[0].ImagePullPolicy = test.policy
		err := do(t, r, pod, lifecycle.Start{Container: "c"})
		why, _ := errors.AsType[lifecycle.StartError](err)
		if why.Reason != test.reason || (err == nil) != (test.reason == "") {
			t.Errorf("%s: %v (%s), want %q", name, err, why.Reason, test.reason)
		}
		pulls := 0
		for _, call := range f.images.Called {
			if call == "PullImage" {
				pulls++
			}
		}
		if pulls != test.pulls {
			t.Errorf("%s: %d pulls, want %d", name, pulls, test.pulls)
		}
	}
}

// TestExecProbes checks that a probe that the runtime cannot run is no failure of the container, and that a command may
// refer to variables with a literal value.
func TestExecProbes(t *testing.T) {
	f, pod := newFake(), aPod()
	pod.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
	r := f.open(t, t.TempDir())
	probe := lifecycle.Probe{ID: "containerd://x", Container: "c", Kind: lifecycle.Liveness}
	mustDo(t, r, pod, probe)
	c := &pod.Spec.Containers[0]
	c.Env = []corev1.EnvVar{{Name: "FILE", Value: "/well"}, {Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}
	c.LivenessProbe.Exec.Command = []string{"ls", "$(FILE)", "a$(NAME)b", "$(NONE)"}
	mustDo(t, r, pod, probe)
	if want := []string{"ls", "/well", "ab", "$(NONE)"}; !slices.Equal(f.command, want) {
		t.Errorf("it ran %q, want %q", f.command, want)
	}
	f.exec = utilexec.CodeExitError{Err: errors.New("exit"), Code: 3}
	if err := do(t, r, pod, probe); err == nil || isUndecided(err) || !strings.Contains(err.Error(), "exited with 3: outerr") {
		t.Errorf("%v", err)
	}
	f.exec = errors.New("connection refused")
	if err := do(t, r, pod, probe); !isUndecided(err) {
		t.Errorf("%v", err)
	}
}

func isUndecided(err error) bool {
	_, undecided := errors.AsType[lifecycle.UndecidedError](err)
	return undecided
}

// TestFailedProbesAreLoggedOnce checks that a probe that fails again and again is not logged each time.
func TestFailedProbesAreLoggedOnce(t *testing.T) {
	f, pod := newFake(), aPod()
	f.exec = utilexec.CodeExitError{Err: errors.New("exit"), Code: 3}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}}
	var log strings.Builder
	r, err := open(t.Context(), Config{Dir: t.TempDir(), Logger: slog.New(slog.NewTextHandler(&log, nil))}, services{f, f.images})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := do(t, r, pod, lifecycle.Probe{ID: "containerd://x", Container: "c", Kind: lifecycle.Readiness}); err == nil {
			t.Error("the probe succeeds")
		}
	}
	if n := strings.Count(log.String(), "probe failed"); n != 1 {
		t.Errorf("%d lines:\n%s", n, log.String())
	}
}

func TestNetworkProbes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/ok" && r.Header.Get("X-Own") == "yes" && r.Host == "other.test":
		case r.URL.Path == "/plain" && r.Header.Get("Accept") == "*/*" && r.Header.Get("Accept-Encoding") == "" && r.UserAgent() == "kube-probe/coppice":
		case r.URL.Path == "/round":
			http.Redirect(w, r, "/round", http.StatusFound)
		case r.URL.Path == "/away":
			http.Redirect(w, r, "http://elsewhere.invalid/", http.StatusFound)
		default:
			http.Error(w, "no", http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	open := intstr.Parse(at.Port())
	closed := intstr.Parse(freeport.Find(t))
	headers := []corev1.HTTPHeader{{Name: "X-Own", Value: "yes"}, {Name: "Host", Value: "other.test"}}
	for name, test := range map[string]struct {
		handler corev1.ProbeHandler
		well    bool
	}{
		"http":             {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: open, HTTPHeaders: headers}}, true},
		"http, named port": {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: intstr.FromString("web"), HTTPHeaders: headers}}, true},
		"http, refused":    {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: open}}, false},
		"http, no headers": {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/plain", Port: open}}, true},
		"http, a circle":   {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/round", Port: open}}, false},
		"http, elsewhere":  {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/away", Port: open}}, true},
		"http, no server":  {corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ok", Port: closed}}, false},
		"tcp":              {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: open}}, true},
		"tcp, no server":   {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: closed}}, false},
		"tcp, no port":     {corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("none")}}, false},
		"grpc, no grpc":    {corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: int32(open.IntValue())}}, false},
	} {
		pod := aPod()
		pod.Spec.HostNetwork = true
		c := &pod.Spec.Containers[0]
		c.Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: int32(open.IntValue())}}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: test.handler, TimeoutSeconds: 60}
		if test.handler.GRPC != nil {
			c.ReadinessProbe.TimeoutSeconds = 1
		}
		err := do(t, newFake().open(t, t.TempDir()), pod, lifecycle.Probe{ID: "x", Container: "c", Kind: lifecycle.Readiness})
		if (err == nil) != test.well {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLogsFollowTheirOptions(t *testing.T) {
	f, pod := newFake(), aPod()
	r := f.open(t, t.TempDir())
	read := func(o corev1.PodLogOptions) string {
		t.Helper()
		o.Container = "c"
		log, err := r.Logs(t.Context(), pod, &o)
		if err != nil {
			return err.Error()
		}
		defer log.Close()
		text, err := io.ReadAll(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := read(corev1.PodLogOptions{}); !strings.Contains(got, kubeletapi.ErrNoContainer.Error()) {
		t.Errorf("logs of none: %q", got)
	}
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	path := r.store.log(pod.UID, "c", 0)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	text := "2026-01-02T03:04:05.000000001Z stdout F one\n2026-01-02T03:04:06.5Z stderr P tw\n2026-01-02T03:04:06.5Z stderr F o\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		o    corev1.PodLogOptions
		want string
	}{
		"all":        {corev1.PodLogOptions{}, "one\ntwo\n"},
		"tail":       {corev1.PodLogOptions{TailLines: new(int64(2))}, "two\n"},
		"limit":      {corev1.PodLogOptions{LimitBytes: new(int64(5))}, "one\nt"},
		"timestamps": {corev1.PodLogOptions{Timestamps: true, LimitBytes: new(int64(35))}, "2026-01-02T03:04:05.000000001Z one\n"},
		"stdout":     {corev1.PodLogOptions{Stream: new(corev1.LogStreamStdout)}, "one\n"},
		"since":      {corev1.PodLogOptions{SinceSeconds: new(int64(1))}, ""},
	} {
		if got := read(test.o); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	if got := read(corev1.PodLogOptions{Previous: true}); !strings.Contains(got, "previous terminated container") {
		t.Errorf("previous: %q", got)
	}
	mustDo(t, r, pod, lifecycle.Kill{ID: r.Observe(pod.UID).Instances[0].ID, Container: "c"})
	mustDo(t, r, pod, lifecycle.Start{Container: "c", Attempt: 1})
	if got := read(corev1.PodLogOptions{Previous: true}); got != "one\ntwo\n" {
		t.Errorf("previous: %q", got)
	}
}

// TestRunObservesAContainerThatExits checks that the agent observes a container that exits on its own, and that Run returns when nothing is under
// way.
func TestRunObservesAContainerThatExits(t *testing.T) {
	f, pod := newFake(), aPod()
	r := f.open(t, t.TempDir())
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	mustDo(t, r, pod, lifecycle.Start{Container: "c"})
	ctx, stop := context.WithCancel(t.Context())
	changed, ended := make(chan string, 100), make(chan error, 1)
	go func() { ended <- r.Run(ctx, func(uid types.UID) { changed <- string(uid) }) }()
	if err := f.FakeRuntimeService.StopContainer(ctx, bare(r.Observe(pod.UID).Instances[0].ID), 0); err != nil {
		t.Fatal(err)
	}
	if got := <-changed; got != string(pod.UID) || r.Observe(pod.UID).Instances[0].Alive() {
		t.Errorf("%s: %+v", got, r.Observe(pod.UID))
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := do(t, r, pod, lifecycle.Kill{}); !errors.Is(err, lifecycle.ErrCanceled) {
		t.Errorf("a step was begun after the end: %v", err)
	}
}

func TestNobodyServes(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "none.sock")
	_, err := Connect(t.Context(), Config{Socket: "unix://" + socket, Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "no container runtime serves unix://"+socket) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// TestRuntimeThatDoesNotAnswerIsDown checks that a runtime counts as down when it has not answered for 30 s, and no longer
// once it answers.
func TestRuntimeThatDoesNotAnswerIsDown(t *testing.T) {
	f, now := newFake(), clocktesting.NewFakeClock(time.Unix(1000, 0))
	r, err := open(t.Context(), Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler), Clock: now}, services{f, f.images})
	if err != nil {
		t.Fatal(err)
	}
	now.Step(downAfter)
	if err := r.Healthy(); err != nil {
		t.Errorf("before the agent asks: %v", err)
	}
	r.beginAsking()
	now.Step(downAfter - 1)
	if err := r.Healthy(); err != nil {
		t.Errorf("before: %v", err)
	}
	f.InjectError("ListPodSandbox", errors.New("connection refused"))
	if _, err := r.look(t.Context()); err == nil {
		t.Error("a runtime that does not answer has listed its pods")
	}
	now.Step(1)
	if err := r.Healthy(); err == nil || err.Error() != "container runtime is down" {
		t.Errorf("after %s: %v", downAfter, err)
	}
	if _, err := r.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Healthy(); err != nil {
		t.Errorf("when it answers again: %v", err)
	}
}

// slow is a runtime that takes some time to answer about a container, and ends none.
type slow struct {
	*fake

	wait func()
}

// ContainerStatus implements internalapi.ContainerManager.
func (s slow) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	s.wait()
	return s.fake.ContainerStatus(ctx, id, verbose)
}

// StopContainer implements internalapi.ContainerManager.
func (s slow) StopContainer(ctx context.Context, _ string, timeout int64) error {
	s.mu.Lock()
	s.stops = append(s.stops, timeout)
	s.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

// TestSlowRuntimeIsNotDown checks that a runtime that answers counts as healthy, even if a round of requests takes long, or
// a container in an unknown state does not end. The agent asks to end it once at a time.
func TestSlowRuntimeIsNotDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, pod := newFake(), aPod()
		for _, name := range []string{"d", "e"} {
			other := *pod.Spec.Containers[0].DeepCopy()
			other.Name = name
			pod.Spec.Containers = append(pod.Spec.Containers, other)
		}
		dir := t.TempDir()
		first := f.open(t, dir)
		mustDo(t, first, pod, lifecycle.CreateSandbox{})
		for _, name := range []string{"c", "d", "e"} {
			mustDo(t, first, pod, lifecycle.Start{Container: name})
		}
		r, err := open(t.Context(), Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}, services{slow{f, func() { time.Sleep(downAfter / 2) }}, f.images})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx, func(types.UID) {}) }()
		synctest.Wait()
		f.Lock()
		for _, c := range f.Containers {
			c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
		}
		f.Unlock()
		for range 300 {
			time.Sleep(time.Second)
			if err := r.Healthy(); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.refresh(ctx, pod.UID); err != nil {
			t.Error(err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(f.stops) != 3 {
			t.Errorf("%d requests to end 3 containers", len(f.stops))
		}
		time.Sleep(downAfter)
		if r.Healthy() == nil {
			t.Error("a runtime that has not answered since Run began counts as healthy")
		}
	})
}
