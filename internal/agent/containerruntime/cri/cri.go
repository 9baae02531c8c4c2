// Package cri is a runtime of real containers: those of containerd, CRI-O, or whatever
// else serves the Container Runtime Interface on a socket.
//
//	lifecycle.Step ──▶ Do: one goroutine per step ──▶ requests to the socket
//	                                                        │
//	Observe ◀── what was seen last (view) ◀── read anew: after each step, and when a list,
//	                                          once a second, tells of something else
//
// Nothing is kept in memory that would be missed after a restart: sandboxes and containers
// are found again by their labels (labels.go), which also tell which agent they belong to.
// An agent is known by the directory in which it keeps logs and volumes, so that two of
// them may share a socket.
//
// What a pod becomes for the CRI is decided in sandbox.go, container.go and environment.go,
// and what the CRI tells becomes what package lifecycle knows in observed.go: all of them
// without I/O.
package cri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/agent/containerruntime"
	"github.com/coppice-dev/coppice/internal/agent/lifecycle"
)

const (
	// answerWithin is how long a runtime may take to say its version when an agent starts.
	answerWithin = 15 * time.Second
	// requestWithin is how long it may take for a request, beyond what is asked for.
	requestWithin = 2 * time.Minute
	// lookEvery is how often it is looked for containers that have ended by themselves.
	lookEvery = time.Second
)

// Config is what a runtime needs. All fields are required but Clock, Capacity and Objects.
type Config struct {
	// Socket is where the CRI is served: unix:///run/containerd/containerd.sock, or a path.
	Socket string
	// Dir is where the agent keeps logs and volumes of pods. It stands for the agent: with
	// another directory, it does not find what it has made.
	Dir string
	// HostIPs are the addresses of the node, the main one first: pods in its network have them.
	HostIPs []string
	// Capacity is what the node has.
	Capacity corev1.ResourceList
	// Objects reads what volumes and variables of pods refer to; nil if that cannot be read.
	Objects Objects
	Clock   clock.WithTicker // default: the system's
	Logger  *slog.Logger
}

// Runtime runs containers. Make one with Connect.
type Runtime struct {
	services
	name, version string // the runtime's, as the socket tells
	store         *store
	objects       Objects
	hostIPs       []string
	capacity      corev1.ResourceList
	cgroups       string // above those of the sandboxes
	clock         clock.WithTicker
	log           *slog.Logger
	cache         *podCache

	mu      sync.Mutex
	stopped bool           // guarded by mu; no step begins any more
	steps   sync.WaitGroup // of those that are under way
}

var _ containerruntime.Runtime = (*Runtime)(nil)

// services are the two halves of the CRI.
type services struct {
	containers internalapi.RuntimeService
	images     internalapi.ImageManagerService
}

// Connect makes a runtime, and sees what there is of an earlier one. An error names the
// socket, if nobody serves it.
func Connect(ctx context.Context, c Config) (*Runtime, error) {
	ctx = quiet(ctx)
	if c.Socket == "" || c.Dir == "" || c.Logger == nil {
		return nil, errors.New("cri: Socket, Dir and Logger are required")
	}
	s, err := connect(ctx, c.Socket)
	if err != nil {
		return nil, err
	}
	return open(ctx, c, s)
}

// connect makes the clients of a socket that is served.
func connect(ctx context.Context, socket string) (services, error) {
	path := strings.TrimPrefix(socket, "unix://")
	connection, err := (&net.Dialer{Timeout: answerWithin}).DialContext(ctx, "unix", path)
	if err != nil {
		return services{}, fmt.Errorf("no container runtime serves %s: %w", socket, err)
	}
	connection.Close()
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	endpoint := "unix://" + path
	containers, err := remote.NewRemoteRuntimeServiceBuilder().WithEndpoint(endpoint).
		WithConnectionTimeout(requestWithin).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return services{}, fmt.Errorf("what serves %s is no container runtime: %w", socket, err)
	}
	images, err := remote.NewRemoteImageServiceBuilder().WithEndpoint(endpoint).
		WithConnectionTimeout(requestWithin).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return services{}, fmt.Errorf("what serves %s has no images: %w", socket, err)
	}
	return services{containers, images}, nil
}

// open makes a runtime of what answers.
func open(ctx context.Context, c Config, s services) (*Runtime, error) {
	version, err := s.containers.Version(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", c.Socket, err)
	}
	kept, err := openStore(c.Dir)
	if err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	r := &Runtime{
		services: s, name: version.RuntimeName, version: version.RuntimeVersion, store: kept, objects: c.Objects, hostIPs: c.HostIPs, capacity: c.Capacity,
		cgroups: cgroupParent(ctx, s.containers), clock: c.Clock, log: c.Logger, cache: newPodCache(),
	}
	if _, err := r.look(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

// Name implements runtime.Runtime.
func (r *Runtime) Name() string { return r.name }

// Version implements runtime.Runtime.
func (r *Runtime) Version() string { return r.version }

// Adopt implements runtime.Runtime. All that it needs to know is with the containers.
func (r *Runtime) Adopt(*corev1.Pod) {}

// Observe implements runtime.Runtime.
func (r *Runtime) Observe(uid types.UID) lifecycle.Observed { return r.cache.observe(uid) }

// Known implements runtime.Runtime.
func (r *Runtime) Known() []types.UID { return append(r.cache.known(), r.store.known()...) }

// Forget implements runtime.Runtime.
func (r *Runtime) Forget(uid types.UID) {
	r.cache.forget(uid)
	if err := r.store.remove(uid); err != nil {
		r.log.Warn("files of a pod not removed", "uid", uid, "error", err)
	}
}

// Run implements runtime.Runtime. Containers go on when it returns.
func (r *Runtime) Run(ctx context.Context, changed func(types.UID)) error {
	ctx = quiet(ctx)
	ticker := r.clock.NewTicker(lookEvery)
	defer ticker.Stop()
	answers := true
	for {
		select {
		case <-ctx.Done():
			r.mu.Lock()
			r.stopped = true
			r.mu.Unlock()
			r.steps.Wait()
			return nil
		case <-ticker.C():
		}
		found, err := r.look(ctx)
		if ctx.Err() == nil && (err == nil) != answers {
			answers = err == nil
			if answers {
				r.log.InfoContext(ctx, "container runtime answers again")
			} else {
				r.log.ErrorContext(ctx, "container runtime does not answer", "error", err)
			}
		}
		for _, uid := range found {
			changed(uid)
		}
	}
}

// look reads anew the pods of which the runtime tells something else than was seen last.
func (r *Runtime) look(ctx context.Context) (changed []types.UID, err error) {
	listings, err := r.listings(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, uid := range r.cache.differing(listings) {
		if err := r.refresh(ctx, uid); err != nil {
			return changed, err
		}
		changed = append(changed, uid)
	}
	return changed, nil
}

// listings returns what lists tell: of each pod, or of one, its sandboxes and containers with their states.
func (r *Runtime) listings(ctx context.Context, of types.UID) (map[types.UID]listing, error) {
	selector := r.store.labels()
	if of != "" {
		selector[labelPodUID] = string(of)
	}
	sandboxes, err := r.containers.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	containers, err := r.containers.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	return listingsOf(sandboxes, containers), nil
}

// refresh reads anew what there is of a pod.
func (r *Runtime) refresh(ctx context.Context, uid types.UID) error {
	turn := r.cache.turn()
	listings, err := r.listings(ctx, uid)
	if err != nil {
		return err
	}
	seen := cachedPod{listing: listings[uid]}
	if current := seen.sandbox(); current != nil {
		answer, err := r.containers.PodSandboxStatus(ctx, current.Id, false)
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("read the status of sandbox %s: %w", current.Id, err)
		} else if err == nil {
			seen.observed.Sandbox = observedSandbox(answer.GetStatus(), r.hostIPs)
		}
	}
	for _, c := range seen.containers {
		answer, err := r.containers.ContainerStatus(ctx, c.Id, false)
		if isNotFound(err) {
			continue
		} else if err != nil {
			return fmt.Errorf("read the status of container %s: %w", c.Id, err)
		}
		r.mend(ctx, answer.GetStatus())
		if instance, ok := observedInstance(r.name, answer.GetStatus(), r.clock.Now()); ok {
			r.store.addMessage(uid, &instance)
			seen.observed.Instances = append(seen.observed.Instances, instance)
		}
	}
	r.cache.publish(uid, turn, seen)
	return nil
}

// mend ends a container of which the runtime itself does not know how it is: it has lost
// it. What comes of that is seen next time.
func (r *Runtime) mend(ctx context.Context, s *runtimeapi.ContainerStatus) {
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		return
	}
	if err := r.containers.StopContainer(ctx, s.GetId(), 0); err != nil {
		r.log.WarnContext(ctx, "container in an unknown state not ended", "container", s.GetMetadata().GetName(), "id", s.GetId(), "error", err)
	}
}

// quiet keeps gRPC from logging errors that its callers report.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// Clear ends all containers at once, and removes them and whatever else there is of pods.
func (r *Runtime) Clear(ctx context.Context) error {
	ctx = quiet(ctx)
	listings, err := r.listings(ctx, "")
	if err != nil {
		return err
	}
	var failed []error
	for uid, h := range listings {
		if err := r.removeSandboxes(ctx, h); err != nil {
			failed = append(failed, err)
			continue
		}
		r.Forget(uid)
	}
	return errors.Join(failed...)
}
