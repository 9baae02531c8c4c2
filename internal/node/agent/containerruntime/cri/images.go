package cri

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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
		return r.pullFor(ctx, of, c, pull{image: c.Image, namespace: of.Namespace, secrets: secrets(), sandbox: sandbox})
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
	if err := r.records.use(c.Image, there.GetId()); err != nil {
		r.failures.Warn(ctx, "use of an image not recorded", c.Image, err, "image", c.Image)
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
	image, namespace string
	secrets          []credential
	sandbox          *runtimeapi.PodSandboxConfig
}

// isAnonymous reports whether the pull is without credentials. Everybody may use what it brings, however it ends.
func (p pull) isAnonymous() bool { return len(p.secrets) == 0 }

// pulled is the result of the pull of an image.
type pulled struct {
	id       string
	access   imageAccess // the pods that may use the image then
	isCutOff bool        // the runtime may go on with an attempt with credentials
}

// pullFor pulls the image of a container, returns it, and records the pods that may use it.
func (r *Runtime) pullFor(ctx context.Context, of *corev1.Pod, c *corev1.Container, p pull) (*runtimeapi.Image, error) {
	preloaded, err := r.recordBegin(ctx, p)
	if err != nil {
		return nil, pullError(c.Image, fmt.Errorf("before the pull: %w", err))
	}
	r.tell(of, c, "Pulling", "Pulling image %q", c.Image)
	began := r.clock.Now()
	result, err := r.pull(ctx, p)
	if err != nil {
		r.recordFailure(ctx, p, result)
		return nil, pullError(c.Image, err)
	}
	there, err := r.brought(ctx, p, result)
	if err != nil {
		r.recordLeave(ctx, p, nil)
		return nil, err
	}
	err = r.records.add(namedPull{p.image, p.namespace, result.access}, there.GetId(), preloaded, r.namesInUse())
	r.recordSuccess(ctx, p, result, err)
	if ctx.Err() != nil { // the container must not start
		return nil, pullError(c.Image, ctx.Err())
	}
	took := r.clock.Now().Sub(began).Truncate(time.Millisecond)
	r.tell(of, c, "Pulled", "Successfully pulled image %q in %s (%s including waiting). Image size: %d bytes.", c.Image, took, took, there.GetSize())
	return there, nil
}

// brought returns the image that a pull has brought, which may differ from the one that was present. It asks also if the
// pull was cancelled after its end, since the end must be recorded.
func (r *Runtime) brought(ctx context.Context, p pull, result pulled) (*runtimeapi.Image, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), describeWithin)
	defer cancel()
	there, err := r.imageStatus(ctx, result.id, p.image)
	if err != nil {
		return nil, err
	}
	if there == nil {
		return nil, pullError(p.image, errors.New("the runtime has pulled it, and does not have it"))
	}
	return there, nil
}

// recordBegin records that a pull begins. For one with credentials, it returns the images that were preloaded: every pod may
// use them, also after the pull.
func (r *Runtime) recordBegin(ctx context.Context, p pull) (preloaded map[string]uint64, err error) {
	there, err := r.records.list(func() ([]*runtimeapi.Image, error) { return r.images.ListImages(ctx, nil) })
	if err != nil { // without the list, the pull could close preloaded images
		return nil, fmt.Errorf("list the images that are present: %w", err)
	}
	if p.isAnonymous() {
		return nil, r.records.findPreloaded(there)
	}
	return r.records.begin(p.image, p.namespace, there)
}

// recordSuccess records that a pull has succeeded. err is the error of the record of its image.
func (r *Runtime) recordSuccess(ctx context.Context, p pull, result pulled, err error) {
	if err == nil && !result.isCutOff && !p.isAnonymous() {
		err = r.records.end(p.image)
	}
	if err != nil || result.isCutOff {
		r.recordLeave(ctx, p, err)
	}
}

// recordFailure records that a pull has failed.
func (r *Runtime) recordFailure(ctx context.Context, p pull, result pulled) {
	if p.isAnonymous() {
		return
	}
	if result.isCutOff {
		r.recordLeave(ctx, p, nil)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), describeWithin)
	defer cancel()
	images, err := r.images.ListImages(ctx, nil)
	if err == nil {
		err = r.records.fail(p.image, images)
	}
	if err != nil {
		r.recordLeave(ctx, p, err)
	}
}

// recordLeave records that the agent does not see the end of a pull. failed is an error of the records before.
func (r *Runtime) recordLeave(ctx context.Context, p pull, failed error) {
	if !p.isAnonymous() {
		failed = errors.Join(failed, r.records.leave(p.image, r.clock.Now()))
	}
	if failed != nil {
		r.failures.Warn(ctx, "end of a pull not recorded", p.image, failed, "image", p.image)
	}
}

// namesInUse returns the names of the repositories that are in the specs of the pods on the node.
func (r *Runtime) namesInUse() usedNames {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := usedNames{}
	for _, pod := range r.pods {
		for _, image := range imagesOf(&pod.Spec) {
			names.add(repositoryName(image), pod.Namespace)
		}
	}
	return names
}

// imagesOf returns the images of all containers of a pod.
func imagesOf(spec *corev1.PodSpec) []string {
	var images []string
	for _, c := range slices.Concat(spec.InitContainers, spec.Containers) {
		images = append(images, c.Image)
	}
	for _, c := range spec.EphemeralContainers {
		images = append(images, c.Image)
	}
	return images
}

// pull pulls an image with the credentials of the pod's pull secrets, one after the other until the
// registry accepts one, or anonymously if there are none for it.
func (r *Runtime) pull(ctx context.Context, p pull) (pulled, error) {
	spec := &runtimeapi.ImageSpec{Image: p.image, UserSpecifiedImage: p.image}
	if p.isAnonymous() {
		id, err := r.images.PullImage(ctx, spec, nil, p.sandbox)
		return pulled{id: id, access: imageAccess{Everybody: true}}, err
	}
	var result pulled
	var failed []error
	for _, c := range p.secrets {
		id, err := r.images.PullImage(ctx, spec, c.secret, p.sandbox)
		if err == nil {
			result.id, result.access = id, imageAccess{Secrets: []secretUse{c.use}}
			return result, nil
		}
		result.isCutOff = result.isCutOff || isCutOff(err)
		failed = append(failed, err)
	}
	return result, errors.Join(failed...)
}

// isCutOff reports whether the error of a request may be that of the connection, so that the runtime may go on with it.
// gRPC answers a cancelled request at once, whatever the runtime does.
func isCutOff(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return slices.Contains([]codes.Code{codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Internal}, status.Code(err))
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
