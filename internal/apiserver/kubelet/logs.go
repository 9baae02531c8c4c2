package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// logEndpoint is pods/NAME/log. The API server has no logs itself: it validates the options of a request and reads the
// log from the agent of the pod's node, in this process (local) or in another one (remote).
type logEndpoint struct {
	pods  rest.Getter
	local func() Nodes
	// remote opens a log on a node that local does not have, as Nodes.Logs does.
	remote func(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)
}

var _ rest.Connecter = (*logEndpoint)(nil)

// New implements rest.Storage.
func (e *logEndpoint) New() runtime.Object { return &corev1.Pod{} }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (e *logEndpoint) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (e *logEndpoint) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions implements rest.Connecter. serve reads the options from the request.
func (e *logEndpoint) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return nil, false, ""
}

// Connect implements rest.Connecter.
func (e *logEndpoint) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	pod, err := get[corev1.Pod](ctx, e.pods, name)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := e.serve(w, r, pod); err != nil {
			responder.Error(err)
		}
	}), nil
}

// serve writes the log as the response. If it returns an error, nothing has been written.
func (e *logEndpoint) serve(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	o, err := kubeletapi.ParseLogOptions(r.URL.Query())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if o.Container, err = chooseContainer(pod, o.Container); err != nil {
		return err
	}
	if pod.Spec.NodeName == "" {
		if isWebSocket(r) {
			streamMessages(w, r, io.NopCloser(strings.NewReader("")))
		}
		return nil // an unbound pod has an empty log
	}
	log, err := e.open(r.Context(), pod, o)
	if apierrors.IsNotFound(err) {
		if reason := waitingReason(pod, o.Container); reason != "" && !o.Previous {
			return apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", o.Container, pod.Name, reason))
		}
		return apierrors.NewBadRequest(err.Error())
	}
	if err != nil {
		return err
	}
	defer log.Close()
	if isWebSocket(r) {
		streamMessages(w, r, log)
		return nil
	}
	if err := kubeletapi.WriteLog(w, log); errors.Is(err, errDisconnected) && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // the status has been sent; aborting tells the client that lines are missing
	}
	return nil
}

// open opens a log on a node in this process, or else in another one.
func (e *logEndpoint) open(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	if nodes := e.local(); nodes != nil {
		log, err := nodes.Logs(ctx, pod, o)
		if !IsUnknownNode(err) {
			return log, err
		}
	}
	return e.remote(ctx, pod, o)
}
