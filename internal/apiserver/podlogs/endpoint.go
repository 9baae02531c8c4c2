// Package podlogs is pods/log: what the containers of a pod have written. The API server
// has no logs; it checks the question, and hands it to whoever has them: the agent in the
// same process, or that of the node, wherever it is (Agents).
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

	"github.com/coppice-dev/coppice/internal/containerlogs"
)

// Source has the logs of the containers on some nodes. The error of a pod on another node,
// or of a container that it does not have, is a NotFound.
type Source func(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error)

// Endpoint is pods/NAME/log.
type Endpoint struct {
	pods      rest.Getter
	source    atomic.Pointer[Source]
	elsewhere Source
}

var _ rest.Connecter = (*Endpoint)(nil)

// NewEndpoint makes an endpoint for the pods of a registry. What the source that is set
// does not have is elsewhere.
func NewEndpoint(pods rest.Getter, elsewhere Source) *Endpoint {
	return &Endpoint{pods: pods, elsewhere: elsewhere}
}

// SetSource tells where the logs of the nodes of this process are; it has none if nil.
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

// NewConnectOptions implements rest.Connecter: the options are read from the request.
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

// serve answers with the log. An error means that nothing has been answered yet.
func (e *Endpoint) serve(w http.ResponseWriter, r *http.Request, pod *corev1.Pod) error {
	o, err := containerlogs.ParseOptions(r.URL.Query())
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if err := choose(pod, o); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if pod.Spec.NodeName == "" {
		return nil // nothing has been written yet
	}
	log, err := e.open(r.Context(), pod, o)
	if apierrors.IsNotFound(err) {
		if reason := waitsFor(pod, o.Container); reason != "" && !o.Previous {
			return apierrors.NewBadRequest(fmt.Sprintf("container %q in pod %q is waiting to start: %s", o.Container, pod.Name, reason))
		}
		return apierrors.NewBadRequest(err.Error())
	}
	if err != nil {
		return err
	}
	defer log.Close()
	if err := containerlogs.Stream(w, log); errors.Is(err, errCutOff) && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // the status is sent; this is how the client learns that lines are missing
	}
	return nil
}

// open asks for a log in this process, and then where the node is.
func (e *Endpoint) open(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	if source := e.source.Load(); source != nil {
		log, err := (*source)(ctx, pod, o)
		if !isOfNode(err) {
			return log, err
		}
	}
	return e.elsewhere(ctx, pod, o)
}

// isOfNode tells whether an error says that the pod is on another node.
func isOfNode(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(err) && answer.ErrStatus.Details != nil && answer.ErrStatus.Details.Kind == "nodes"
}

// choose finds the container that is asked about. A pod with one container has no doubt.
func choose(pod *corev1.Pod, o *corev1.PodLogOptions) error {
	var names []string
	for _, c := range pod.Spec.Containers {
		names = append(names, c.Name)
	}
	if o.Container == "" {
		if len(names) > 1 || len(pod.Spec.InitContainers) > 0 {
			return fmt.Errorf("a container name must be specified for pod %s, choose one of: [%s]", pod.Name, strings.Join(names, " "))
		}
		o.Container = names[0]
	}
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	if !slices.Contains(names, o.Container) {
		return fmt.Errorf("container %s is not valid for pod %s", o.Container, pod.Name)
	}
	return nil
}

// waitsFor is why a container does not run; empty if it does, or did.
func waitsFor(pod *corev1.Pod, container string) string {
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.Name == container && s.State.Waiting != nil {
			return s.State.Waiting.Reason
		}
	}
	return ""
}
