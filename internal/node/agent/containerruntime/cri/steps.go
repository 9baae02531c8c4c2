package cri

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// Do implements agent.Runtime. A step has ended once its effect can be observed.
func (r *Runtime) Do(ctx context.Context, of *corev1.Pod, s lifecycle.Step, done func(error)) {
	ctx = quiet(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		go done(lifecycle.ErrCanceled) // the agent is stopping
		return
	}
	pull, end := r.beginPull(ctx, of.UID, s)
	r.steps.Go(func() {
		err := r.do(ctx, pull, of, s)
		gaveUp := pull.Err() != nil // the image
		end()
		if changes(s) {
			if look := r.refresh(ctx, of.UID); err == nil {
				err = look
			}
		}
		// A context ends a moment before its child: an agent that is stopping may not have ended pull yet.
		if err != nil && (gaveUp || ctx.Err() != nil) {
			err = fmt.Errorf("%w: %w", lifecycle.ErrCanceled, err)
		}
		done(err)
	})
}

// changes reports whether a step changes the observed state.
func changes(s lifecycle.Step) bool {
	switch s.(type) {
	case lifecycle.Probe, lifecycle.PreStop, lifecycle.GiveUp, lifecycle.Resize, lifecycle.Delete:
		return false
	case lifecycle.CreateSandbox, lifecycle.StopSandbox, lifecycle.RemoveSandbox, lifecycle.Start, lifecycle.Remove, lifecycle.Signal, lifecycle.Kill:
	}
	return true
}

// do carries out a step. pull is the context in which an image is pulled.
func (r *Runtime) do(ctx, pull context.Context, of *corev1.Pod, s lifecycle.Step) error {
	switch s := s.(type) {
	case lifecycle.CreateSandbox:
		return r.createSandbox(ctx, of, s)
	case lifecycle.StopSandbox:
		r.removeVolumes(ctx, of)
		return r.stopSandbox(ctx, s.ID)
	case lifecycle.RemoveSandbox:
		return r.removeSandbox(ctx, of, s)
	case lifecycle.Start:
		return r.start(ctx, pull, of, s)
	case lifecycle.GiveUp:
		r.giveUp(of.UID, s.Container)
	case lifecycle.Remove:
		return r.remove(ctx, of, s)
	case lifecycle.Probe:
		return r.probe(ctx, of, s)
	case lifecycle.PreStop:
		return r.preStop(ctx, of, s)
	case lifecycle.Signal:
		return r.stop(ctx, s.ID, s.Grace)
	case lifecycle.Kill:
		// KILL also shortens a grace period: the StopContainer request that waits for the end of
		// the longer period ends with the container.
		return r.stop(ctx, s.ID, 0)
	case lifecycle.Resize, lifecycle.Delete: // Resize is never requested here; the agent carries out Delete
	}
	return nil
}

// createSandbox creates the volumes of a pod and its sandbox, unless there is a sandbox already.
func (r *Runtime) createSandbox(ctx context.Context, of *corev1.Pod, s lifecycle.CreateSandbox) error {
	listings, err := r.listings(ctx, of.UID)
	if err != nil {
		return err
	}
	there := listings[of.UID]
	if current := there.sandbox(); current != nil && current.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil
	}
	// Remains of an attempt by an earlier agent would be in the way.
	if err := r.removeSandboxes(ctx, there); err != nil {
		return err
	}
	described := withLimits(of, r.capacity)
	if err := r.prepare(described, gatherVolumes(ctx, r.objects, r.issuers, described)); err != nil {
		return lifecycle.StartError{Reason: "CreateContainerConfigError", Err: err}
	}
	config, err := r.sandboxConfig(of, s.Attempt)
	if err != nil {
		return err // not a StartError, which would be an error of a volume
	}
	id, err := r.containers.RunPodSandbox(ctx, config, "")
	if err != nil {
		return fmt.Errorf("create the sandbox: %w", err)
	}
	made, err := r.containers.PodSandboxStatus(ctx, id, false)
	if err != nil {
		return fmt.Errorf("look at the new sandbox: %w", err)
	}
	if observedSandbox(made.GetStatus(), r.hostIPs).NoAddress {
		return errors.New("create the sandbox: its network gave it no IP address")
	}
	return nil
}

func (r *Runtime) sandboxConfig(of *corev1.Pod, attempt int32) (*runtimeapi.PodSandboxConfig, error) {
	if of.Spec.RuntimeClassName != nil && *of.Spec.RuntimeClassName != "" {
		return nil, fmt.Errorf("runtime class %s is not supported by this node", *of.Spec.RuntimeClassName)
	}
	if users := of.Spec.HostUsers; users != nil && !*users {
		return nil, errors.New("user namespaces (hostUsers: false) are not supported by this node")
	}
	var host []byte
	if addsToHostDNS(of) {
		var err error
		if host, err = os.ReadFile(resolvConf); err != nil {
			return nil, fmt.Errorf("read the DNS configuration of the node: %w", err)
		}
	}
	c, err := sandboxConfig(of, attempt, r.store.labels(), r.cgroups, r.store.logs(of.UID))
	if err != nil {
		return nil, err
	}
	c.DnsConfig = dnsConfig(of, host)
	return c, nil
}

// removeSandbox removes the sandboxes of a pod, with their network and containers. With s.Final it
// also removes the pod's logs and volumes.
func (r *Runtime) removeSandbox(ctx context.Context, of *corev1.Pod, s lifecycle.RemoveSandbox) error {
	listings, err := r.listings(ctx, of.UID)
	if err != nil {
		return err
	}
	if err := r.removeSandboxes(ctx, listings[of.UID]); err != nil || !s.Final {
		return err
	}
	if err := r.removeFiles(of.UID); err != nil {
		return fmt.Errorf("remove the files of the pod: %w", err)
	}
	return nil
}

func (r *Runtime) removeSandboxes(ctx context.Context, h listing) error {
	for _, c := range h.containers {
		// Containers are still alive here only if Clear runs or their sandbox has died.
		if err := r.stop(ctx, c.GetId(), 0); err != nil {
			return err
		}
		if err := r.containers.RemoveContainer(ctx, c.GetId()); err != nil && !isNotFound(err) {
			return fmt.Errorf("remove container %s: %w", c.GetId(), err)
		}
	}
	for _, s := range h.sandboxes {
		if err := r.stopSandbox(ctx, s.GetId()); err != nil {
			return err
		}
		if err := r.containers.RemovePodSandbox(ctx, s.GetId()); err != nil && !isNotFound(err) {
			return fmt.Errorf("remove sandbox %s: %w", s.GetId(), err)
		}
	}
	return nil
}

// stopSandbox ends the processes and the network of a sandbox.
func (r *Runtime) stopSandbox(ctx context.Context, id string) error {
	if err := r.containers.StopPodSandbox(ctx, id); err != nil && !isNotFound(err) {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

// start creates and starts a container, unless that has been done already.
func (r *Runtime) start(ctx, pull context.Context, of *corev1.Pod, s lifecycle.Start) error {
	listings, err := r.listings(ctx, of.UID)
	if err != nil {
		return err
	}
	there := listings[of.UID]
	sandbox := there.sandbox()
	if sandbox == nil {
		return fmt.Errorf("pod %s/%s has no sandbox any more", of.Namespace, of.Name)
	}
	for _, c := range there.containers {
		switch {
		case c.GetMetadata().GetName() != s.Container:
		case c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED: // an earlier agent created it, but did not start it
			if err := r.containers.RemoveContainer(ctx, c.GetId()); err != nil && !isNotFound(err) {
				return fmt.Errorf("remove container %s, which was never started: %w", c.GetId(), err)
			}
		case attemptOf(c.GetMetadata().GetAttempt()) >= s.Attempt:
			return nil
		}
	}
	id, err := r.create(ctx, pull, of, s, sandbox)
	if err != nil {
		return err
	}
	if err := r.containers.StartContainer(ctx, id); err != nil {
		return lifecycle.StartError{Reason: "RunContainerError", Err: spoken(err)}
	}
	return r.postStart(ctx, of, s, id)
}

// spoken returns the message of an error of the runtime, for users.
func spoken(err error) error { return errors.New(status.Convert(err).Message()) }

func (r *Runtime) create(ctx, pull context.Context, of *corev1.Pod, s lifecycle.Start, sandbox *runtimeapi.PodSandbox) (id string, err error) {
	b := blueprint{pod: r.withAddresses(of), container: find(of, s.Container), start: s, own: r.store.labels(), capacity: r.capacity}
	if b.container == nil {
		return "", fmt.Errorf("pod %s/%s has no container %s", of.Namespace, of.Name, s.Container)
	}
	config, err := r.sandboxConfig(of, attemptOf(sandbox.GetMetadata().GetAttempt()))
	if err != nil {
		return "", lifecycle.StartError{Reason: "CreateContainerConfigError", Err: err}
	}
	if b.image, err = r.image(pull, of, b.container, config); err != nil {
		return "", err
	}
	if err := r.furnish(ctx, &b); err != nil {
		return "", lifecycle.StartError{Reason: "CreateContainerConfigError", Err: err}
	}
	if id, err = r.containers.CreateContainer(ctx, sandbox.GetId(), containerConfig(b), config); err != nil {
		return "", lifecycle.StartError{Reason: "CreateContainerError", Err: spoken(err)}
	}
	return id, nil
}

// furnish adds the parts of a blueprint that have to be looked up or created first.
func (r *Runtime) furnish(ctx context.Context, b *blueprint) (err error) {
	if reason := userOf(b.pod, b.container).mayRun(b.image); reason != "" {
		return errors.New(reason)
	}
	if b.seccomp, err = seccomp(b.container.SecurityContext, b.pod.Spec.SecurityContext, r.store.profiles()); err != nil {
		return err
	}
	if target := targetOf(b.pod, b.container.Name); target != "" {
		if b.target = r.running(b.pod, target); b.target == "" {
			return fmt.Errorf("container %s, whose processes are to be seen, does not run", target)
		}
	}
	services, err := r.servicesOf(ctx, b.pod)
	if err != nil {
		return fmt.Errorf("find the services: %w", err)
	}
	described := withLimits(b.pod, r.capacity)
	b.variables, err = environment(described, find(described, b.container.Name), serviceVariables(services), gather(ctx, r.objects, b.pod.Namespace, b.container))
	if err != nil {
		return err
	}
	if b.mounts, err = r.store.mounts(b.pod, b.container, b.variables); err != nil {
		if hidden, ok := errors.AsType[hiddenError](err); ok {
			r.failures.Warn(ctx, hidden.text, b.pod.Namespace+"/"+b.pod.Name, hidden.cause, "pod", b.pod.Namespace+"/"+b.pod.Name)
		}
		return err
	}
	hosts, err := r.mountHosts(b.pod, b.container)
	if err != nil {
		return err
	}
	if hosts != nil {
		b.mounts = append(b.mounts, hosts)
	}
	message, err := r.store.makeMessage(b.pod.UID, b.container.Name, b.start.Attempt)
	if err != nil {
		return fmt.Errorf("make the file for the termination message: %w", err)
	}
	b.mounts = append(b.mounts, &runtimeapi.Mount{ContainerPath: messagePath(b.container), HostPath: message})
	return nil
}

// running returns the runtime's ID of the living instance of a container, or "".
func (r *Runtime) running(of *corev1.Pod, name string) string {
	for _, i := range r.Observe(of.UID).Instances {
		if i.Container == name && i.Alive() {
			return bare(i.ID)
		}
	}
	return ""
}

// withAddresses returns a copy of a pod with its current addresses in the status.
func (r *Runtime) withAddresses(of *corev1.Pod) *corev1.Pod {
	ips := r.Observe(of.UID).Sandbox.IPs
	of = of.DeepCopy()
	if len(ips) > 0 {
		of.Status.PodIP, of.Status.PodIPs = ips[0], nil
		for _, ip := range ips {
			of.Status.PodIPs = append(of.Status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
	if len(r.hostIPs) > 0 {
		of.Status.HostIP, of.Status.HostIPs = r.hostIPs[0], nil
		for _, ip := range r.hostIPs {
			of.Status.HostIPs = append(of.Status.HostIPs, corev1.HostIP{IP: ip})
		}
	}
	return of
}

// remove removes an instance that has ended, and its log and termination message.
func (r *Runtime) remove(ctx context.Context, of *corev1.Pod, s lifecycle.Remove) error {
	instance := r.cache.instance(of.UID, s.ID)
	if err := r.containers.RemoveContainer(ctx, bare(s.ID)); err != nil && !isNotFound(err) {
		return fmt.Errorf("remove container %s: %w", s.ID, err)
	}
	if instance == nil {
		return nil
	}
	return r.store.removeLog(of.UID, instance.Container, instance.Attempt)
}

// stop ends an instance: TERM, then KILL when the grace period is over, or KILL at once if grace is
// 0.
func (r *Runtime) stop(ctx context.Context, id string, grace time.Duration) error {
	timeout := int64(math.Ceil(min(max(grace, 0), longestWait).Seconds()))
	if err := r.containers.StopContainer(ctx, bare(id), timeout); err != nil && !isNotFound(err) {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}
