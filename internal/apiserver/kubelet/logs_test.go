package kubelet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// pods is a registry with one pod.
type pods struct{ pod *corev1.Pod }

func (p pods) Get(context.Context, string, *metav1.GetOptions) (runtime.Object, error) {
	return p.pod, nil
}

// responder writes the error of an endpoint.
type responder struct{ w http.ResponseWriter }

func (a responder) Object(status int, _ runtime.Object) { a.w.WriteHeader(status) }
func (a responder) Error(err error) {
	status := http.StatusInternalServerError
	if answer, ok := err.(apierrors.APIStatus); ok {
		status = int(answer.Status().Code)
	}
	http.Error(a.w, err.Error(), status)
}

// logSource opens a log as Nodes.Logs does.
type logSource func(context.Context, *corev1.Pod, *corev1.PodLogOptions) (io.ReadCloser, error)

// localLogs are nodes of this process that serve logs only.
type localLogs struct {
	Nodes

	open logSource
}

func (l localLogs) Logs(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	return l.open(ctx, pod, o)
}

// newLogEndpoint returns pods/log of a registry with one pod. The sources are of nodes in this process, which may be
// nil, and of others.
func newLogEndpoint(pod *corev1.Pod, here, elsewhere logSource) *logEndpoint {
	return &logEndpoint{pods: pods{pod}, remote: elsewhere, local: func() Nodes {
		if here == nil {
			return nil
		}
		return localLogs{open: here}
	}}
}

// serveLogs serves pods/log.
func serveLogs(t *testing.T, e *logEndpoint) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler, err := e.Connect(r.Context(), "web", nil, responder{w})
		if err != nil {
			responder{w}.Error(err)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func httpGet(t *testing.T, url string) (status int, text string, err error) {
	t.Helper()
	response, err := (&http.Client{Timeout: eventually.Patience}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

// The logs of pods on nodes of this process come from these nodes, all others from remote agents.
func TestEndpointChoosesTheSource(t *testing.T) {
	answers := func(text string) logSource {
		return func(_ context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
			if o.Container == "app" {
				return io.NopCloser(strings.NewReader(text)), nil
			}
			return nil, apierrors.NewBadRequest("container " + o.Container)
		}
	}
	refuses := func(err error) logSource {
		return func(context.Context, *corev1.Pod, *corev1.PodLogOptions) (io.ReadCloser, error) { return nil, err }
	}
	waiting := aPod()
	waiting.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}}}}
	missing, away := apierrors.NewNotFound(corev1.Resource("containers"), "app"), apierrors.NewNotFound(corev1.Resource("nodes"), "worker")
	for name, test := range map[string]struct {
		pod             *corev1.Pod
		here, elsewhere logSource
		query           string
		status          int
		want            string
	}{
		"here":                    {aPod(), answers("here"), refuses(nil), "", http.StatusOK, "here"},
		"elsewhere":               {aPod(), refuses(away), answers("elsewhere"), "", http.StatusOK, "elsewhere"},
		"nobody here":             {aPod(), nil, answers("elsewhere"), "?container=app", http.StatusOK, "elsewhere"},
		"no such container here":  {aPod(), refuses(missing), answers("elsewhere"), "", http.StatusBadRequest, "not found"},
		"no such container there": {aPod(), nil, refuses(missing), "", http.StatusBadRequest, "not found"},
		"waiting there":           {waiting, nil, refuses(missing), "", http.StatusBadRequest, `container "app" in pod "web" is waiting to start: ErrImagePull`},
		"nobody there":            {waiting, nil, refuses(unavailable(waiting, logTask, "is silent")), "", http.StatusServiceUnavailable, "which is silent"},
		"no container of the pod": {aPod(), nil, answers(""), "?container=other", http.StatusBadRequest, "container other is not valid for pod web"},
		"a bad option":            {aPod(), nil, answers(""), "?tailLines=x", http.StatusBadRequest, "tailLines"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newLogEndpoint(test.pod, test.here, test.elsewhere)
			if status, text, err := httpGet(t, serveLogs(t, e)+"/"+test.query); err != nil || status != test.status || !strings.Contains(text, test.want) {
				t.Errorf("%d %q, %v; want %d %q", status, text, err, test.status, test.want)
			}
		})
	}
}

// remoteAgent is the agent of the node worker, with one log.
type remoteAgent struct {
	log func(context.Context) io.ReadCloser
	o   atomic.Pointer[corev1.PodLogOptions]
}

func (r *remoteAgent) Pod(string, string) (*corev1.Pod, error) { return aPod(), nil }

func (r *remoteAgent) Pods() ([]*corev1.Pod, error) { return []*corev1.Pod{aPod()}, nil }

func (r *remoteAgent) Logs(ctx context.Context, _ *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	r.o.Store(o)
	return r.log(ctx), nil
}

func (r *remoteAgent) Stream(context.Context, *corev1.Pod, kubeletapi.StreamRequest) (*url.URL, error) {
	return nil, apierrors.NewBadRequest("it only has a log")
}

// A log that is followed from an agent in another process arrives line by line. It ends for
// the client when the agent ends it, and for the agent when the client disconnects; when the
// connection to the agent breaks, the client gets an error.
func TestFollowInAnotherProcess(t *testing.T) {
	authority := newAuthority(t)
	for name, test := range map[string]struct {
		end  func(writer *io.PipeWriter, client *http.Response)
		want error // the final read error of the client, if it is still connected
	}{
		"the container ends": {func(w *io.PipeWriter, _ *http.Response) { w.Close() }, io.EOF},
		"the client goes":    {func(_ *io.PipeWriter, r *http.Response) { r.Body.Close() }, nil},
		"the agent goes":     {nil, io.ErrUnexpectedEOF},
	} {
		t.Run(name, func(t *testing.T) {
			reader, writer := io.Pipe()
			gone := make(chan struct{})
			agent := &remoteAgent{log: func(ctx context.Context) io.ReadCloser {
				context.AfterFunc(ctx, func() {
					writer.CloseWithError(ctx.Err())
					close(gone)
				})
				return reader
			}}
			handler, broken := kubeletapi.Handler(agent), make(chan func(), 1)
			if test.end == nil {
				handler = breaking(handler, broken)
			}
			e := newLogEndpoint(aPod(), nil, remoteLogsOf(authority, where(t, serve(t, authority, handler))).Logs)
			response, err := (&http.Client{Timeout: eventually.Patience}).Get(serveLogs(t, e) + "/?follow=true&tailLines=7")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if o := agent.o.Load(); !o.Follow || *o.TailLines != 7 || o.Container != "app" {
				t.Errorf("asked for %+v", o)
			}
			for _, line := range []string{"a\n", "b\n"} {
				if _, err := io.WriteString(writer, line); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(line))
				if _, err := io.ReadFull(response.Body, got); err != nil || string(got) != line {
					t.Fatalf("%q, %v; want %q", got, err, line)
				}
			}
			if test.end != nil {
				test.end(writer, response)
			} else {
				(<-broken)()
			}
			if _, err := response.Body.Read(make([]byte, 1)); test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("at last %v, want %v", err, test.want)
			}
			select {
			case <-gone:
			case <-time.After(eventually.Patience):
				t.Error("the agent still reads the log")
			}
		})
	}
}

// breaking sends a function that breaks the connection of a request.
func breaking(next http.Handler, cut chan<- func()) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		cut <- cancel
		next.ServeHTTP(w, r.WithContext(ctx))
		panic(http.ErrAbortHandler)
	})
}
