package cri

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	utilexec "k8s.io/utils/exec"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// TestFailedPostStartEndsTheContainer checks that a container whose postStart hook fails ends like any other: preStop,
// then TERM with its grace period.
func TestFailedPostStartEndsTheContainer(t *testing.T) {
	hook := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"false"}}}
	for _, test := range []struct {
		grace, want int64
		commands    int
		preStop     *corev1.LifecycleHandler
	}{
		{30, 30, 1, nil},
		{30, 30, 2, hook},
		{0, 2, 1, nil}, // it can still handle TERM
		{math.MaxInt64, int64(longestWait / time.Second), 1, nil},
		{math.MaxInt64, int64(longestWait / time.Second), 2, hook},
	} {
		f, pod := newFake(), aPod()
		f.exec = utilexec.CodeExitError{Err: errors.New("no"), Code: 1}
		pod.Spec.TerminationGracePeriodSeconds = &test.grace
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: hook, PreStop: test.preStop}
		r := f.open(t, t.TempDir())
		mustDo(t, r, pod, lifecycle.CreateSandbox{})
		err := do(t, r, pod, lifecycle.Start{Container: pod.Spec.Containers[0].Name})
		if known, ok := errors.AsType[lifecycle.StartError](err); !ok || known.Reason != lifecycle.PostStartHookError {
			t.Errorf("the start: %v", err)
		}
		if f.commands != test.commands || !slices.Equal(f.stops, []int64{test.want}) {
			t.Errorf("grace %d: %d hooks ran, want %d; stopped with timeouts %v, want %d", test.grace, f.commands, test.commands, f.stops, test.want)
		}
		if f.within < 0 || f.within > longestWait {
			t.Errorf("grace %d: a hook may take %s", test.grace, f.within)
		}
		if got := r.Observe(pod.UID); len(got.Instances) != 1 || got.Instances[0].Alive() {
			t.Errorf("%+v", got)
		}
	}
}

// TestLongestSeconds checks that more seconds than a duration can have are many, and not a negative number.
func TestLongestSeconds(t *testing.T) {
	waits, r := testclock.NewFakeClock(time.Unix(1_700_000_000, 0)), newFake().open(t, t.TempDir())
	r.clock = waits
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		hook := &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: math.MaxInt64}}
		ended <- r.handle(ctx, subject{aPod(), &corev1.Container{}, "id"}, hook, 0)
	}()
	eventually.Holds(t, "the hook sleeps", waits.HasWaiters)
	if waits.Step(time.Hour); !waits.HasWaiters() {
		t.Error("a hook sleeps for less than an hour")
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a hook that sleeps ends with %v", err)
	}
	if since := logOptions(&corev1.PodLogOptions{SinceSeconds: new(int64(math.MaxInt64))}, waits.Now()).Since; !since.Before(waits.Now()) {
		t.Errorf("lines since %s", since)
	}
}

// TestHTTPHook checks that any response to a hook is a success, that a server that does not speak TLS is asked without
// it and without credentials, and that a hook without a server fails.
func TestHTTPHook(t *testing.T) {
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.URL.Path+" "+r.UserAgent()+" "+r.Header.Get("Authorization")+" "+r.Header.Get("X-Own"))
		http.Error(w, "no", http.StatusInternalServerError)
	}))
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	pod := aPod()
	pod.Spec.HostNetwork = true
	headers := []corev1.HTTPHeader{{Name: "authorization", Value: "secret"}, {Name: "X-Own", Value: "yes"}}
	run := func(scheme corev1.URIScheme) error {
		get := &corev1.HTTPGetAction{Path: "/hook", Port: intstr.Parse(at.Port()), Scheme: scheme, HTTPHeaders: headers}
		pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{HTTPGet: get}}
		return do(t, newFake().open(t, t.TempDir()), pod, lifecycle.PreStop{ID: "x", Container: "c", Within: time.Minute})
	}
	if err := errors.Join(run(corev1.URISchemeHTTP), run(corev1.URISchemeHTTPS)); err != nil {
		t.Error(err)
	}
	server.Close()
	if want := []string{"/hook kube-lifecycle/coppice secret yes", "/hook kube-lifecycle/coppice  yes"}; !slices.Equal(seen, want) {
		t.Errorf("the server has seen %q, want %q", seen, want)
	}
	if err := run(corev1.URISchemeHTTP); err == nil {
		t.Error("a hook without a server has no error")
	}
}

// TestHookOfAnAgentThatStops checks that a container keeps running if the agent stops during its postStart hook.
func TestHookOfAnAgentThatStops(t *testing.T) {
	f, pod := newFake(), aPod()
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3600}}}
	r := f.open(t, t.TempDir())
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	r.Do(ctx, pod, lifecycle.Start{Container: "c"}, func(err error) { ended <- err })
	eventually.Holds(t, "the container runs", func() bool {
		got := r.Observe(pod.UID).Instances
		return len(got) == 1 && got[0].Alive()
	})
	stop()
	if err := <-ended; !errors.Is(err, lifecycle.ErrCanceled) {
		t.Errorf("the start ended with %v", err)
	}
	if len(f.stops) != 0 {
		t.Errorf("it was stopped with timeouts %v", f.stops)
	}
}

// unanswered returns the address of a server that answers no request, and a channel with an element for each.
func unanswered(t *testing.T) (port intstr.IntOrString, asked <-chan struct{}) {
	t.Helper()
	requests := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		requests <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return intstr.Parse(at.Port()), requests
}

// hanging is a runtime whose commands do not end.
type hanging struct {
	*fake

	commands chan struct{} // has an element for each
}

// ExecSync implements internalapi.ContainerManager.
func (h hanging) ExecSync(ctx context.Context, _ string, _ []string, _ time.Duration) (stdout, stderr []byte, err error) {
	h.commands <- struct{}{}
	<-ctx.Done()
	return nil, nil, ctx.Err()
}

// TestHooksAndProbesEndWithTheirContainer checks that a hook or a probe without an answer ends when its container has
// ended. The container is not stopped again, and nothing is kept that waits for its end.
func TestHooksAndProbesEndWithTheirContainer(t *testing.T) {
	port, asked := unanswered(t)
	f := hanging{newFake(), make(chan struct{}, 10)}
	get := &corev1.HTTPGetAction{Path: "/", Port: port}
	command := &corev1.ExecAction{Command: []string{"sleep", "inf"}}
	for name, test := range map[string]struct {
		hook  *corev1.LifecycleHandler
		probe *corev1.ProbeHandler
		begun <-chan struct{}
	}{
		"postStart by HTTP":    {hook: &corev1.LifecycleHandler{HTTPGet: get}, begun: asked},
		"postStart by command": {hook: &corev1.LifecycleHandler{Exec: command}, begun: f.commands},
		"probe by HTTP":        {probe: &corev1.ProbeHandler{HTTPGet: get}, begun: asked},
		"probe by command":     {probe: &corev1.ProbeHandler{Exec: command}, begun: f.commands},
	} {
		t.Run(name, func(t *testing.T) {
			f.stops = nil
			r, err := open(t.Context(), Config{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}, services{f, f.images})
			if err != nil {
				t.Fatal(err)
			}
			pod := aPod()
			pod.UID, pod.Spec.HostNetwork = types.UID(name), true
			c := &pod.Spec.Containers[0]
			if test.hook != nil {
				c.Lifecycle = &corev1.Lifecycle{PostStart: test.hook, PreStop: test.hook}
			}
			mustDo(t, r, pod, lifecycle.CreateSandbox{})
			ended := make(chan error, 1)
			var step lifecycle.Step = lifecycle.Start{Container: "c"}
			if test.probe != nil {
				mustDo(t, r, pod, step)
				c.LivenessProbe = &corev1.Probe{ProbeHandler: *test.probe, TimeoutSeconds: 1 << 30}
				step = lifecycle.Probe{ID: r.Observe(pod.UID).Instances[0].ID, Container: "c", Kind: lifecycle.Liveness}
			}
			r.Do(t.Context(), pod, step, func(err error) { ended <- err })
			<-test.begun
			mustDo(t, r, pod, lifecycle.Kill{ID: r.Observe(pod.UID).Instances[0].ID, Container: "c"})
			eventually.Holds(t, "it ends", func() bool { return len(ended) == 1 })
			err = <-ended
			if known, ok := errors.AsType[lifecycle.StartError](err); test.hook != nil && (!ok || known.Reason != lifecycle.PostStartHookError) {
				t.Errorf("the start: %v", err)
			}
			if test.probe != nil && !isUndecided(err) {
				t.Errorf("the probe: %v", err)
			}
			if !slices.Equal(f.stops, []int64{0}) {
				t.Errorf("it was stopped with timeouts %v", f.stops)
			}
			r.cache.mu.Lock()
			defer r.cache.mu.Unlock()
			if n := len(r.cache.endings); n != 0 {
				t.Errorf("%d wait for ends of instances", n)
			}
		})
	}
}

// TestSleepEndsWithItsContainer checks that a sleep whose container ends is a success.
func TestSleepEndsWithItsContainer(t *testing.T) {
	f, pod := newFake(), aPod()
	pod.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1 << 30}}}
	r := f.open(t, t.TempDir())
	mustDo(t, r, pod, lifecycle.CreateSandbox{})
	ended := make(chan error, 1)
	r.Do(t.Context(), pod, lifecycle.Start{Container: "c"}, func(err error) { ended <- err })
	eventually.Holds(t, "the container runs", func() bool { return len(r.Observe(pod.UID).Instances) == 1 })
	mustDo(t, r, pod, lifecycle.Kill{ID: r.Observe(pod.UID).Instances[0].ID, Container: "c"})
	eventually.Holds(t, "the hook ends", func() bool { return len(ended) == 1 })
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
