// Package cri runs real containers by containerd, CRI-O, or any other runtime that serves the
// Container Runtime Interface on a socket.
//
//	lifecycle.Step ──▶ Do: one goroutine per step ──▶ requests to the socket
//	                                                        │
//	Observe ◀── cached state (podCache) ◀── refreshed after each step, and when the list that
//	                                        is read once a second differs
//
// No state is lost at a restart: sandboxes and containers are found again by their labels
// (labels.go), which also name the agent that they belong to. An agent is identified by the
// directory in which it keeps logs and volumes, so that two agents can share a socket.
//
// sandbox.go, container.go and environment.go translate a pod for the CRI, and observed.go
// translates the CRI's responses for package lifecycle, all of them without I/O.
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

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

const (
	// answerWithin bounds the request for the runtime's version when an agent starts.
	answerWithin = 15 * time.Second
	// requestWithin bounds each request, in addition to the time of the operation itself.
	requestWithin = 2 * time.Minute
	// longestWait bounds the time for an operation: the client adds requestWithin, and more than 292 years would overflow.
	longestWait = 100 * 365 * 24 * time.Hour
	// lookEvery is the interval at which the agent looks for containers that have exited on their own.
	lookEvery = time.Second
	// downAfter is how long the runtime may fail to answer before it counts as down, as for the kubelet.
	downAfter = 30 * time.Second
)

// Config configures a runtime. All fields are required except Clock, Capacity and Objects.
type Config struct {
	// Socket is the CRI endpoint: unix:///run/containerd/containerd.sock, or a path.
	Socket string
	// Dir is the directory of the logs and volumes of pods, and of seccomp profiles. It identifies the agent: with another
	// directory, the agent does not find its sandboxes and containers.
	Dir string
	// HostIPs are the addresses of the node, the primary one first. Pods in the host network have
	// them.
	HostIPs []string
	// Capacity is the capacity of the node.
	Capacity corev1.ResourceList
	// Objects reads the objects that volumes and variables of pods refer to. Nil: the agent cannot read them.
	Objects Objects
	Clock   clock.WithTicker // default: the system clock
	Logger  *slog.Logger
}

// Runtime runs containers. Create one with Connect.
type Runtime struct {
	services
	name, version string // as reported on the socket
	store         *store
	objects       Objects
	hostIPs       []string
	capacity      corev1.ResourceList
	cgroups       string               // the parent of the sandboxes' cgroups
	features      *corev1.NodeFeatures // as reported on the socket
	clock         clock.WithTicker
	log           *slog.Logger
	failures      *pace.Failures
	cache         *podCache

	issuers issuers
	records *imageRecords

	mu       sync.Mutex
	stopped  bool                               // guarded by mu; no further step may begin
	steps    sync.WaitGroup                     // the steps that are under way
	pods     map[types.UID]*corev1.Pod          // guarded by mu; as last seen in the API
	notify   func(*corev1.Pod, lifecycle.Event) // guarded by mu; nil before Notify
	pulls    map[startKey]context.CancelFunc    // guarded by mu; they end the pulls of starts that are under way
	troubles map[types.UID]trouble              // guarded by mu; why the volumes of a pod are not up to date
	mending  map[string]struct{}                // guarded by mu; the containers that mend stops
	looks    looks
	asked    bool      // guarded by mu; Run asks the runtime once a second
	answered time.Time // guarded by mu; when the runtime last answered, at the earliest the begin of Run

	files podLocks // held while the files of a pod are written or removed
}

// services are the two services of the CRI.
type services struct {
	containers internalapi.RuntimeService
	images     internalapi.ImageManagerService
}

// Connect returns a runtime, and reads the state that an earlier one has left. If nothing serves
// the socket, the error names it.
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

// connect returns clients of the socket, once it is served.
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
		return services{}, fmt.Errorf("%s is not served by a container runtime: %w", socket, err)
	}
	images, err := remote.NewRemoteImageServiceBuilder().WithEndpoint(endpoint).
		WithConnectionTimeout(requestWithin).WithTracerProvider(nil).Build(ctx)
	if err != nil {
		return services{}, fmt.Errorf("%s does not serve the image service: %w", socket, err)
	}
	return services{containers, images}, nil
}

// open returns a runtime that uses the services.
func open(ctx context.Context, c Config, s services) (*Runtime, error) {
	version, err := s.containers.Version(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", c.Socket, err)
	}
	status, err := s.containers.Status(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its features: %w", c.Socket, err)
	}
	kept, err := openStore(c.Dir)
	if err != nil {
		return nil, err
	}
	records, err := openImageRecords(kept.images())
	if err != nil {
		return nil, err
	}
	records.resolvesNames = version.RuntimeName == crio
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	r := &Runtime{
		services: s, name: version.RuntimeName, version: version.RuntimeVersion, store: kept, objects: c.Objects, hostIPs: c.HostIPs, capacity: c.Capacity,
		cgroups: cgroupParent(ctx, s.containers), features: featuresOf(status), clock: c.Clock, log: c.Logger, failures: pace.NewFailures(c.Logger, c.Clock), cache: newPodCache(),
		issuers: issuers{newTokens(c.Objects, c.Clock), newCertificates(c.Objects, c.Clock)}, pods: map[types.UID]*corev1.Pod{}, pulls: map[startKey]context.CancelFunc{}, troubles: map[types.UID]trouble{}, mending: map[string]struct{}{}, looks: newLooks(), records: records,
	}
	if err := r.firstLook(ctx); err != nil {
		return nil, err
	}
	if err := records.resume(c.Clock.Now()); err != nil {
		r.failures.Warn(ctx, "records of interrupted pulls of images not read", "images", err)
	}
	return r, nil
}

// Name implements agent.Runtime.
func (r *Runtime) Name() string { return r.name }

// Version implements agent.Runtime.
func (r *Runtime) Version() string { return r.version }

// Features returns the optional features of the runtime, as it reported them to Connect; nil if it reports none.
func (r *Runtime) Features() *corev1.NodeFeatures { return r.features }

func featuresOf(status *runtimeapi.StatusResponse) *corev1.NodeFeatures {
	reported := status.GetFeatures()
	if reported == nil {
		return nil
	}
	return &corev1.NodeFeatures{SupplementalGroupsPolicy: new(reported.SupplementalGroupsPolicy)}
}

// Healthy returns an error if the runtime has not answered for some time. Before Run, which asks it, there is none: the
// agent may start long after Connect.
func (r *Runtime) Healthy() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asked && r.clock.Now().Sub(r.answered) >= downAfter {
		return errors.New("container runtime is down")
	}
	return nil
}

// beginAsking begins the time in which the runtime must answer.
func (r *Runtime) beginAsking() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked, r.answered = true, r.clock.Now()
}

// hear notes that the runtime has answered a request, unless err says that it has not.
func (r *Runtime) hear(err error) {
	if err != nil && !isNotFound(err) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answered = r.clock.Now()
}

// Adopt implements agent.Runtime. All state is stored with the containers, but the first pull must know the names of images
// that the adopted pods use.
func (r *Runtime) Adopt(pod *corev1.Pod) { r.Update(pod) }

// Observe implements agent.Runtime.
func (r *Runtime) Observe(uid types.UID) lifecycle.Observed { return r.cache.observe(uid) }

// Known implements agent.Runtime.
func (r *Runtime) Known() []types.UID { return append(r.cache.known(), r.store.known()...) }

// Forget implements agent.Runtime.
func (r *Runtime) Forget(uid types.UID) {
	r.cache.forget(uid)
	if err := r.removeFiles(uid); err != nil {
		r.log.Warn("files of a pod not removed", "uid", uid, "error", err)
	}
}

// Run implements agent.Runtime. Containers keep running when it returns.
func (r *Runtime) Run(ctx context.Context, changed func(types.UID)) error {
	ctx = quiet(ctx)
	r.beginAsking()
	ticker := r.clock.NewTicker(lookEvery)
	defer ticker.Stop()
	var background sync.WaitGroup
	background.Go(func() { r.keepFollowing(ctx) })
	background.Go(func() { r.keepRotating(ctx) })
	background.Go(func() { r.every(ctx, followEvery, r.clean) }) // a large volume delays no update
	background.Go(func() { r.every(ctx, pruneEvery, r.pruneImages) })
	defer background.Wait()
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

// quiet keeps gRPC from logging errors that its callers report.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// Clear kills and removes all containers, and all other resources of pods.
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
