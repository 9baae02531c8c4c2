package cri

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// describeWithin bounds each request for the status of a sandbox or a container.
	describeWithin = 30 * time.Second
	// lookWithin is how long a look waits for the pods that it refreshes. The next look returns those that take longer.
	lookWithin = 2 * time.Second
	// mostLooks is the maximum number of pods that are refreshed at the same time.
	mostLooks = 64
)

// looks are the refreshes that look has begun: at most one of each pod.
type looks struct {
	slots chan struct{} // has an element for each refresh that asks the runtime

	mu    sync.Mutex
	busy  map[types.UID]struct{} // guarded by mu; the pods that are being refreshed
	ended []types.UID            // guarded by mu; the pods that no look has returned yet
}

func newLooks() looks {
	return looks{slots: make(chan struct{}, mostLooks), busy: map[types.UID]struct{}{}}
}

// begin records that a pod is being refreshed. It returns false if that is so already.
func (l *looks) begin(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, begun := l.busy[uid]; begun {
		return false
	}
	l.busy[uid] = struct{}{}
	return true
}

// end records the end of a refresh.
func (l *looks) end(uid types.UID, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.busy, uid)
	if err == nil {
		l.ended = append(l.ended, uid)
	}
}

// take returns the pods that have been refreshed since the last call.
func (l *looks) take() []types.UID {
	l.mu.Lock()
	defer l.mu.Unlock()
	ended := l.ended
	l.ended = nil
	return ended
}

// look refreshes the pods whose listing differs from the cached one, and returns the pods that have been refreshed. It
// fails only if the runtime does not list the pods. A pod that the runtime cannot describe, or not soon, holds up no
// other: it is logged, and a later look tries again.
func (r *Runtime) look(ctx context.Context) (changed []types.UID, err error) {
	all, err := r.beginLooks(ctx)
	if err != nil {
		return r.looks.take(), err
	}
	patience := r.clock.NewTimer(lookWithin)
	defer patience.Stop()
	select {
	case <-all:
	case <-patience.C():
	}
	return r.looks.take(), nil
}

// firstLook is look when an agent starts. It waits for all pods, since a decision about a pod needs its state; each
// request is bounded.
func (r *Runtime) firstLook(ctx context.Context) error {
	all, err := r.beginLooks(ctx)
	if err != nil {
		return err
	}
	<-all
	r.looks.take()
	return ctx.Err()
}

// beginLooks begins to refresh the pods whose listing differs from the cached one. The channel is closed when they have
// been refreshed.
func (r *Runtime) beginLooks(ctx context.Context) (all <-chan struct{}, err error) {
	listings, err := r.listings(ctx, "")
	if err != nil {
		return nil, err
	}
	var begun sync.WaitGroup
	for _, uid := range r.cache.differing(listings) {
		r.beginLook(ctx, uid, &begun)
	}
	ended := make(chan struct{})
	go func() {
		begun.Wait()
		close(ended)
	}()
	return ended, nil
}

// beginLook begins to refresh a pod unless that is under way.
func (r *Runtime) beginLook(ctx context.Context, uid types.UID, begun *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped || !r.looks.begin(uid) {
		return
	}
	begun.Add(1)
	r.steps.Go(func() {
		defer begun.Done()
		r.looks.slots <- struct{}{}
		defer func() { <-r.looks.slots }()
		err := r.refresh(ctx, uid)
		r.looks.end(uid, err)
		if err != nil && ctx.Err() == nil {
			r.failures.Warn(ctx, "pod not described by the container runtime", string(uid), err, "uid", uid)
		}
	})
}

// listings returns the sandboxes and containers of all pods, or of one, with their states.
func (r *Runtime) listings(ctx context.Context, of types.UID) (map[types.UID]listing, error) {
	selector := r.store.labels()
	if of != "" {
		selector[labelPodUID] = string(of)
	}
	sandboxes, err := r.containers.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector})
	r.hear(err)
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	containers, err := r.containers.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector})
	r.hear(err)
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	return listingsOf(sandboxes, containers), nil
}

// refresh reads the state of a pod again. If the runtime fails to describe it, its state stays as it was, or unknown.
func (r *Runtime) refresh(ctx context.Context, uid types.UID) error {
	turn := r.cache.turn()
	seen, err := r.describe(ctx, uid)
	if err != nil {
		r.cache.miss(uid)
		return err
	}
	r.cache.publish(uid, turn, seen)
	return nil
}

// describe asks the runtime for the state of a pod.
func (r *Runtime) describe(ctx context.Context, uid types.UID) (seen cachedPod, err error) {
	listings, err := r.listings(ctx, uid)
	if err != nil {
		return seen, err
	}
	seen.listing = listings[uid]
	if current := seen.sandbox(); current != nil {
		status, err := r.sandboxStatus(ctx, current.GetId())
		if err != nil && !isNotFound(err) {
			return seen, fmt.Errorf("read the status of sandbox %s: %w", current.GetId(), err)
		} else if err == nil {
			seen.observed.Sandbox = observedSandbox(status, r.hostIPs)
		}
	}
	for _, c := range seen.containers {
		status, err := r.containerStatus(ctx, c.GetId())
		if isNotFound(err) {
			continue
		} else if err != nil {
			return seen, fmt.Errorf("read the status of container %s: %w", c.GetId(), err)
		}
		r.mend(ctx, status)
		if instance, ok := observedInstance(r.name, status, r.clock.Now()); ok {
			r.addMessage(ctx, uid, &instance, status.GetAnnotations())
			seen.observed.Instances = append(seen.observed.Instances, instance)
		}
	}
	return seen, nil
}

func (r *Runtime) sandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	answer, err := r.containers.PodSandboxStatus(ctx, id, false)
	r.hear(err)
	return answer.GetStatus(), err
}

func (r *Runtime) containerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, describeWithin)
	defer cancel()
	answer, err := r.containers.ContainerStatus(ctx, id, false)
	r.hear(err)
	return answer.GetStatus(), err
}

// mend stops a container in an unknown state. It does not wait for the result, which the next look shows: the runtime may
// take minutes to fail, and answers other requests meanwhile.
func (r *Runtime) mend(ctx context.Context, s *runtimeapi.ContainerStatus) {
	if s.GetState() != runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	id := s.GetId()
	if _, begun := r.mending[id]; begun || r.stopped {
		return
	}
	r.mending[id] = struct{}{}
	r.steps.Go(func() {
		err := r.containers.StopContainer(ctx, id, 0)
		r.mu.Lock()
		delete(r.mending, id)
		r.mu.Unlock()
		if err != nil {
			r.log.WarnContext(ctx, "container in an unknown state not ended", "container", s.GetMetadata().GetName(), "id", id, "error", err)
		}
	})
}
