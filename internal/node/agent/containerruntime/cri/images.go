package cri

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// image returns the image of a container, after pulling it if the pull policy requires that, or if the pod may not use
// the present image without the consent of the registry.
func (r *Runtime) image(ctx context.Context, of *corev1.Pod, c *corev1.Container, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	there, err := r.imageStatus(ctx, c.Image, c.Image)
	if err != nil {
		return nil, err
	}
	secrets := sync.OnceValue(func() []credential { return r.credentials(ctx, of, c.Image) })
	isAllowed := there != nil && r.mayUse(ctx, c.Image, there, secrets)
	switch {
	case isPulled(c, there != nil), there != nil && !isAllowed && c.ImagePullPolicy != corev1.PullNever:
		return r.pullFor(ctx, of, c, pull{image: c.Image, present: there.GetId(), untracked: r.untracked(ctx), secrets: secrets(), sandbox: sandbox})
	case there == nil:
		return nil, lifecycle.StartError{
			Reason: "ErrImageNeverPull", Err: fmt.Errorf("container image %q is not present with pull policy of %s", c.Image, c.ImagePullPolicy),
		}
	case !isAllowed:
		return nil, lifecycle.StartError{
			Reason: "ErrImageNeverPull", Err: fmt.Errorf("container image %q is present but not verified: it was pulled with credentials that the pod does not have; "+
				"give the pod such a pull secret, or another pull policy than %s", c.Image, c.ImagePullPolicy),
		}
	}
	r.tell(of, c, "Pulled", "Container image %q already present on machine and can be accessed by the pod", c.Image)
	return there, nil
}

// imageStatus returns an image, or nil if it is not there. asked is the name in the spec.
func (r *Runtime) imageStatus(ctx context.Context, image, asked string) (*runtimeapi.Image, error) {
	there, err := r.images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: image, UserSpecifiedImage: asked}, false)
	if err != nil {
		return nil, lifecycle.StartError{Reason: "ImageInspectError", Err: fmt.Errorf("failed to inspect image %q: %w", asked, err)}
	}
	return there.GetImage(), nil
}

// mayUse reports whether a pod with these credentials may use a present image without a pull.
func (r *Runtime) mayUse(ctx context.Context, image string, there *runtimeapi.Image, secrets func() []credential) bool {
	access, err := r.records.accessTo(image, there)
	if err != nil {
		r.failures.Warn(ctx, "record of an image not read", image, err, "image", image)
		return false
	}
	if access.Everybody {
		return true
	}
	var uses []secretUse
	for _, c := range secrets() {
		uses = append(uses, c.use)
	}
	return access.allows(uses)
}

// credentials returns the credentials in a pod's pull secrets for an image.
func (r *Runtime) credentials(ctx context.Context, of *corev1.Pod, image string) []credential {
	all, err := pullSecrets(ctx, r.objects, of, r.store.id)
	if err != nil {
		r.failures.Warn(ctx, "pull secrets not used", of.Namespace+"/"+of.Name, err, "pod", of.Namespace+"/"+of.Name)
	}
	return matching(all, image)
}

// pull is the input of the pull of an image.
type pull struct {
	image     string
	present   string              // the ID of the present image with this name, or ""
	untracked map[string]struct{} // the IDs of the present images that the agent has not pulled
	secrets   []credential
	sandbox   *runtimeapi.PodSandboxConfig
}

// untracked returns the IDs of the images that the agent has not pulled.
func (r *Runtime) untracked(ctx context.Context) map[string]struct{} {
	images, err := r.images.ListImages(ctx, nil)
	if err != nil { // then a pull that brings one of them is recorded, and fewer pods may use it
		r.failures.Warn(ctx, "images not listed", "images", err)
	}
	return r.records.untracked(images)
}

// pullFor pulls the image of a container, returns it, and records the pods that may use it.
func (r *Runtime) pullFor(ctx context.Context, of *corev1.Pod, c *corev1.Container, p pull) (*runtimeapi.Image, error) {
	r.tell(of, c, "Pulling", "Pulling image %q", c.Image)
	began := r.clock.Now()
	if err := r.records.begin(c.Image); err != nil {
		return nil, pullError(c.Image, fmt.Errorf("record the pull: %w", err))
	}
	id, access, err := r.pull(ctx, p)
	if err != nil {
		r.recordFailure(ctx, p)
		return nil, pullError(c.Image, err)
	}
	there, err := r.imageStatus(ctx, id, c.Image) // the pulled image may differ from the present one
	if err != nil {
		return nil, err
	}
	if there == nil {
		return nil, pullError(c.Image, errors.New("the runtime has pulled it, and does not have it"))
	}
	if _, wasThere := p.untracked[there.GetId()]; wasThere {
		err = r.records.end(c.Image) // every pod may use it still
	} else {
		err = r.records.succeed(c.Image, there.GetId(), access)
	}
	if err != nil {
		r.failures.Warn(ctx, "pull of an image not recorded", c.Image, err, "image", c.Image)
	}
	took := r.clock.Now().Sub(began).Truncate(time.Millisecond)
	r.tell(of, c, "Pulled", "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", c.Image, took, took, there.GetSize())
	return there, nil
}

// recordFailure records that a pull has failed. The runtime may have finished it nevertheless, as when the request was
// cancelled too late: then nobody may use the image without a pull.
func (r *Runtime) recordFailure(ctx context.Context, p pull) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), describeWithin)
	defer cancel()
	there, err := r.imageStatus(ctx, p.image, p.image)
	_, wasThere := p.untracked[there.GetId()]
	switch {
	case err != nil: // the intent stays, and counts
	case there == nil, wasThere, there.GetId() == p.present:
		err = r.records.end(p.image)
	default:
		err = r.records.succeed(p.image, there.GetId(), imageAccess{})
	}
	if err != nil {
		r.failures.Warn(ctx, "pull of an image not recorded", p.image, err, "image", p.image)
	}
}

// pull pulls an image with the credentials of the pod's pull secrets, one after the other until the
// registry accepts one, or anonymously if there are none for it. It returns who may use the image then.
func (r *Runtime) pull(ctx context.Context, p pull) (id string, access imageAccess, err error) {
	spec := &runtimeapi.ImageSpec{Image: p.image, UserSpecifiedImage: p.image}
	if len(p.secrets) == 0 {
		id, err = r.images.PullImage(ctx, spec, nil, p.sandbox)
		return id, imageAccess{Everybody: true}, err
	}
	var failed []error
	for _, c := range p.secrets {
		id, err := r.images.PullImage(ctx, spec, c.secret, p.sandbox)
		if err == nil {
			return id, imageAccess{Secrets: []secretUse{c.use}}, nil
		}
		failed = append(failed, err)
	}
	return "", imageAccess{}, errors.Join(failed...)
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
