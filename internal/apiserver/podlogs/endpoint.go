// Package podlogs serves pods/log. The API server has no logs itself: it validates the options of a request
// and reads the log from the agent of the pod's node, in the same process (Source) or in another one
// (Agents).
package podlogs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/nodeagents"
	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// Source opens the log of a container. For a pod on a node of another process, or for an unknown container,
// the error is a NotFound.
type Source func(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)

// Endpoint is pods/NAME/log.
type Endpoint struct {
	pods     rest.Getter
	source   atomic.Pointer[Source]
	fallback Source
}

var _ rest.Connecter = (*Endpoint)(nil)

// NewEndpoint returns an endpoint for the pods of a registry. fallback is the source of logs on nodes that
// the source of SetSource does not have.
func NewEndpoint(pods rest.Getter, fallback Source) *Endpoint {
	return &Endpoint{pods: pods, fallback: fallback}
}

// SetSource sets the source of logs of nodes in this process; nil means none.
func (e *Endpoint) SetSource(s Source) {
	if s == nil {
		e.source.Store(nil)
		return
	}
	e.source.Store(&s)
}

// New implements rest.Storage.
func (e *Endpoint) New() runtime.Object { return &corev1.Pod{} }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (e *Endpoint) Destroy() {}

// ConnectMethods implements rest.Connecter.
func (e *Endpoint) ConnectMethods() []string { return []string{http.MethodGet} }

// NewConnectOptions implements rest.Connecter. serve reads the options from the request.
func (e *Endpoint) NewConnectOptions() (options runtime.Object, subpath bool, path string) {
	return nil, false, ""
}

// Connect implements rest.Connecter.
func (e *Endpoint) Connect(ctx context.Context, name string, _ runtime.Object, responder rest.Responder) (http.Handler, error) {
	obj, err := e.pods.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("pod %s is a %T", name, obj)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := e.serve(w, r, pod); err != nil {
			responder.Error(err)
		}
	}), nil
}

// serve writes the log as the response. If it returns an error, nothing has been written.
func (e *Endpoint) serve(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	o, err := kubeletapi.ParseLogOptions(r.URL.Query())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if o.Container, err = nodeagents.ChooseContainer(pod, o.Container); err != nil {
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
func (e *Endpoint) open(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	if source := e.source.Load(); source != nil {
		log, err := (*source)(ctx, pod, o)
		if !nodeagents.IsUnknownNode(err) {
			return log, err
		}
	}
	return e.fallback(ctx, pod, o)
}

// waitingReason returns the reason why a container has not started; "" if it has.
func waitingReason(pod *corev1.Pod, container string) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if s.Name == container && s.State.Waiting != nil {
			return s.State.Waiting.Reason
		}
	}
	return ""
}
