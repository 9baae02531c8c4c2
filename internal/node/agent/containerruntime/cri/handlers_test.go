package cri

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
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
		if got := r.Observe(pod.UID); len(got.Instances) != 1 || got.Instances[0].Alive() {
			t.Errorf("%+v", got)
		}
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
