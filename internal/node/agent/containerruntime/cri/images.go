package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// startKey identifies the start of a container.
type startKey struct {
	uid       types.UID
	container string
}

// beginPull returns the context in which a step pulls its image. The caller calls end when the step has ended, and
// holds r.mu.
func (r *Runtime) beginPull(ctx context.Context, uid types.UID, s lifecycle.Step) (pull context.Context, end func()) {
	start, ok := s.(lifecycle.Start)
	if !ok {
		return ctx, func() {}
	}
	key := startKey{uid, start.Container}
	pull, cancel := context.WithCancel(ctx)
	r.pulls[key] = cancel
	return pull, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.pulls, key)
	}
}

// giveUp cancels the pull of the image of a container that is being started.
func (r *Runtime) giveUp(uid types.UID, container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cancel := r.pulls[startKey{uid, container}]; cancel != nil {
		cancel()
	}
}

// image returns the image of a container, after pulling it if the pull policy requires that.
func (r *Runtime) image(ctx context.Context, of *corev1.Pod, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	spec := &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image}
	there, err := r.images.ImageStatus(ctx, spec, false)
	if err != nil {
		return nil, lifecycle.StartError{Reason: "ImageInspectError", Err: fmt.Errorf("failed to inspect image %q: %w", c.Image, err)}
	}
	if isPulled(c, there.GetImage() != nil) {
		r.tell(of, c, "Pulling", "Pulling image %q", c.Image)
		began := r.clock.Now()
		// The pulled image may differ from the present one.
		if spec.Image, err = r.pull(ctx, of, spec, sandbox); err != nil {
			return nil, pullError(c.Image, err)
		}
		if there, err = r.images.ImageStatus(ctx, spec, false); err != nil {
			return nil, lifecycle.StartError{Reason: "ImageInspectError", Err: fmt.Errorf("failed to inspect image %q: %w", c.Image, err)}
		}
		took := r.clock.Now().Sub(began).Truncate(time.Millisecond)
		r.tell(of, c, "Pulled", "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", c.Image, took, took, there.GetImage().GetSize())
	} else if there.GetImage() != nil {
		r.tell(of, c, "Pulled", "Container image %q already present on machine and can be accessed by the pod", c.Image)
	}
	if there.GetImage() == nil {
		return nil, lifecycle.StartError{
			Reason: "ErrImageNeverPull", Err: fmt.Errorf("container image %q is not present with pull policy of %s", c.Image, c.ImagePullPolicy),
		}
	}
	return there.GetImage(), nil
}

// pull pulls an image with the credentials of the pod's pull secrets, one after the other until the
// registry accepts one, or anonymously if there are none for it.
func (r *Runtime) pull(ctx context.Context, of *corev1.Pod, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	all, err := pullSecrets(ctx, r.objects, of)
	if err != nil {
		r.failures.Warn(ctx, "pull secrets not used", of.Namespace+"/"+of.Name, err, "pod", of.Namespace+"/"+of.Name)
	}
	secrets := matching(all, spec.Image)
	if len(secrets) == 0 {
		return r.images.PullImage(ctx, spec, nil, sandbox)
	}
	var failed []error
	for _, secret := range secrets {
		id, err := r.images.PullImage(ctx, spec, secret, sandbox)
		if err == nil {
			return id, nil
		}
		failed = append(failed, err)
	}
	return "", errors.Join(failed...)
}

// isPulled reports whether the image of a container must be pulled before its start.
func isPulled(c *corev1.Container, there bool) bool {
	switch c.ImagePullPolicy {
	case corev1.PullNever:
		return false
	case corev1.PullAlways:
		return true
	case corev1.PullIfNotPresent:
	}
	return !there
}

// pullError returns the error for an image that could not be pulled.
func pullError(image string, err error) error {
	if strings.Contains(err.Error(), "invalid reference format") {
		return lifecycle.StartError{Reason: "InvalidImageName", Err: fmt.Errorf("failed to apply default image tag %q: %w", image, err)}
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return lifecycle.StartError{Reason: "ErrImagePull", Err: fmt.Errorf("failed to pull image %q: %w", image, err)}
}

// Notify sets the receiver of Events about images, which no step returns. It is called before Run.
func (r *Runtime) Notify(notify func(*corev1.Pod, lifecycle.Event)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notify = notify
}

// tell reports an Event about the image of a container.
func (r *Runtime) tell(of *corev1.Pod, c *corev1.Container, reason, format string, args ...any) {
	r.mu.Lock()
	notify := r.notify
	r.mu.Unlock()
	if notify != nil {
		notify(of, lifecycle.Event{Container: c.Name, Type: corev1.EventTypeNormal, Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
}
