package cri

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilexec "k8s.io/utils/exec"

	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// mostOutput is the maximum reported output of a command, in bytes.
const mostOutput = 1024

// subject is the instance of a hook or a probe.
type subject struct {
	pod       *corev1.Pod
	container *corev1.Container
	id        string
}

// preStop runs the preStop hook of an instance within its time limit.
func (r *Runtime) preStop(ctx context.Context, of *corev1.Pod, s lifecycle.PreStop) error {
	c := find(of, s.Container)
	if c == nil || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Within)
	defer cancel()
	err := r.handle(ctx, subject{of, c, s.ID}, c.Lifecycle.PreStop, s.Within)
	if err != nil {
		r.log.WarnContext(ctx, "preStop hook failed", "pod", of.Namespace+"/"+of.Name, "container", s.Container, "error", err)
	}
	return err
}

// postStart runs the postStart hook of an instance, and kills the instance if the hook fails.
func (r *Runtime) postStart(ctx context.Context, of *corev1.Pod, s lifecycle.Start, id string) error {
	c := find(of, s.Container)
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	if err := r.refresh(ctx, of.UID); err != nil { // so that the container can be stopped meanwhile
		return err
	}
	err := r.handle(ctx, subject{of, c, r.name + "://" + id}, c.Lifecycle.PostStart, 0)
	switch {
	case err == nil || ctx.Err() != nil:
		return err // an agent that is stopping leaves the container alone
	case errors.Is(err, errEnded): // there is nothing to stop
		return lifecycle.StartError{Reason: lifecycle.PostStartHookError, Err: fmt.Errorf("postStart hook: %w", err)}
	}
	return lifecycle.StartError{
		Reason: lifecycle.PostStartHookError,
		Err:    errors.Join(fmt.Errorf("postStart hook: %w", err), r.stopAfterHook(ctx, of, s, id)),
	}
}

// stopAfterHook ends a container whose postStart hook has failed: preStop, TERM, KILL.
func (r *Runtime) stopAfterHook(ctx context.Context, of *corev1.Pod, s lifecycle.Start, id string) error {
	grace := corev1.DefaultTerminationGracePeriodSeconds * time.Second
	if own := of.Spec.TerminationGracePeriodSeconds; own != nil {
		grace = pods.Seconds(*own)
	}
	began := r.clock.Now()
	_ = r.preStop(ctx, of, lifecycle.PreStop{ID: r.name + "://" + id, Container: s.Container, Within: grace}) // it logs the error
	return r.stop(ctx, id, max(grace-r.clock.Since(began), lifecycle.LeastGrace))
}

// errEnded is the cause of the end of a hook or a probe whose instance has ended.
var errEnded = errors.New("the container has ended")

// whileAlive returns a context that ends when an instance ends, with the cause errEnded. A hook or a probe must not
// outlive its instance: a server that never answers would keep the pod. The caller calls stop at the end.
func (r *Runtime) whileAlive(ctx context.Context, of subject) (alive context.Context, stop func()) {
	alive, cancel := context.WithCancelCause(ctx)
	ignore := r.cache.onEnd(of.pod.UID, of.id, func() { cancel(errEnded) })
	return alive, func() {
		ignore()
		cancel(nil)
	}
}

// handle runs a hook. There is no time limit if within is 0. The error wraps errEnded if the hook was cancelled because
// its instance has ended.
func (r *Runtime) handle(ctx context.Context, of subject, h *corev1.LifecycleHandler, within time.Duration) error {
	ctx, stop := r.whileAlive(ctx, of)
	defer stop()
	var err error
	switch {
	case h.Exec != nil:
		err = r.exec(ctx, of.id, h.Exec.Command, within)
	case h.HTTPGet != nil:
		err = r.call(ctx, of, h.HTTPGet)
	case h.Sleep != nil:
		err = r.sleep(ctx, pods.Seconds(h.Sleep.Seconds))
	default:
		err = errors.New("this kind of hook is not supported by this node")
	}
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, errEnded) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// call runs a hook by an HTTP request. Any response is a success, whatever its status, as it is for a kubelet. A server
// that does not speak TLS gets the request again without it, and without credentials.
func (r *Runtime) call(ctx context.Context, of subject, g *corev1.HTTPGetAction) error {
	_, err := r.send(ctx, of, g, "lifecycle")
	if err == nil || !strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return err
	}
	plain := g.DeepCopy()
	plain.Scheme = corev1.URISchemeHTTP
	plain.HTTPHeaders = slices.DeleteFunc(plain.HTTPHeaders, func(h corev1.HTTPHeader) bool { return strings.EqualFold(h.Name, "Authorization") })
	if _, again := r.send(ctx, of, plain, "lifecycle"); again != nil {
		return err
	}
	return nil
}

// exec runs a command in an instance. An exit code other than 0 is an error.
func (r *Runtime) exec(ctx context.Context, id string, command []string, within time.Duration) error {
	stdout, stderr, err := r.containers.ExecSync(ctx, bare(id), command, min(within, longestWait))
	if exit, ok := errors.AsType[utilexec.ExitError](err); ok {
		return fmt.Errorf("command exited with %d: %s", exit.ExitStatus(), said(stdout, stderr))
	}
	return err
}

// said returns the beginning of a command's output.
func said(stdout, stderr []byte) []byte {
	all := bytes.TrimSpace(append(bytes.Clone(stdout), stderr...))
	return bytes.ToValidUTF8(all[:min(len(all), mostOutput)], nil)
}

// sleep waits for the given time, or until the instance ends, which is no error.
func (r *Runtime) sleep(ctx context.Context, d time.Duration) error {
	timer := r.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		if errors.Is(context.Cause(ctx), errEnded) {
			return nil
		}
		return ctx.Err()
	}
}

// portOf returns the number of a port, which may be given by name.
func portOf(c *corev1.Container, p intstr.IntOrString) (int, error) {
	if p.Type == intstr.Int {
		return p.IntValue(), nil
	}
	for _, named := range c.Ports {
		if named.Name == p.StrVal {
			return int(named.ContainerPort), nil
		}
	}
	if n := p.IntValue(); n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("container %s has no port named %s", c.Name, p.StrVal)
}
