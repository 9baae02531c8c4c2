package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/agent/lifecycle"
)

// image returns the image of a container, after pulling it if the pull policy requires that. Pulls
// are anonymous.
func (r *Runtime) image(ctx context.Context, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	spec := &runtimeapi.ImageSpec{Image: c.Image, UserSpecifiedImage: c.Image}
	there, err := r.images.ImageStatus(ctx, spec, false)
	if err != nil {
		return nil, lifecycle.StartError{Reason: "ImageInspectError", Err: fmt.Errorf("failed to inspect image %q: %w", c.Image, err)}
	}
	if isPulled(c, there.GetImage() != nil) {
		// The pulled image may be another than the one that was present.
		if spec.Image, err = r.images.PullImage(ctx, spec, nil, sandbox); err != nil {
			return nil, pullError(c.Image, err)
		}
		if there, err = r.images.ImageStatus(ctx, spec, false); err != nil {
			return nil, lifecycle.StartError{Reason: "ImageInspectError", Err: fmt.Errorf("failed to inspect image %q: %w", c.Image, err)}
		}
	}
	if there.GetImage() == nil {
		return nil, lifecycle.StartError{
			Reason: "ErrImageNeverPull", Err: fmt.Errorf("container image %q is not present with pull policy of %s", c.Image, c.ImagePullPolicy),
		}
	}
	return there.GetImage(), nil
}

// isPulled reports whether the image of a container is pulled before its start.
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
