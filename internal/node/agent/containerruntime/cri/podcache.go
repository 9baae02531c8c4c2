package cri

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// listing is the part of the runtime's lists that belongs to one pod, oldest first.
type listing struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

// listingsOf groups lists by pod.
func listingsOf(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) map[types.UID]listing {
	listings := map[types.UID]listing{}
	for _, s := range sandboxes {
		uid := types.UID(s.GetLabels()[labelPodUID])
		h := listings[uid]
		h.sandboxes = append(h.sandboxes, s)
		listings[uid] = h
	}
	for _, c := range containers {
		uid := types.UID(c.GetLabels()[labelPodUID])
		h := listings[uid]
		h.containers = append(h.containers, c)
		listings[uid] = h
	}
	for _, h := range listings {
		slices.SortFunc(h.sandboxes, func(a, b *runtimeapi.PodSandbox) int { return compare(a, b) })
		slices.SortFunc(h.containers, func(a, b *runtimeapi.Container) int { return compare(a, b) })
	}
	return listings
}

type dated interface {
	GetCreatedAt() int64
	GetId() string
}

func compare(a, b dated) int {
	switch {
	case a.GetCreatedAt() != b.GetCreatedAt():
		if a.GetCreatedAt() < b.GetCreatedAt() {
			return -1
		}
		return 1
	case a.GetId() < b.GetId():
		return -1
	case a.GetId() > b.GetId():
		return 1
	}
	return 0
}

// sandbox returns the newest sandbox, or nil.
func (h listing) sandbox() *runtimeapi.PodSandbox {
	if len(h.sandboxes) == 0 {
		return nil
	}
	return h.sandboxes[len(h.sandboxes)-1]
}

func (h listing) sameAs(other listing) bool {
	return slices.EqualFunc(h.sandboxes, other.sandboxes, func(a, b *runtimeapi.PodSandbox) bool {
		return a.GetId() == b.GetId() && a.GetState() == b.GetState()
	}) && slices.EqualFunc(h.containers, other.containers, func(a, b *runtimeapi.Container) bool {
		return a.GetId() == b.GetId() && a.GetState() == b.GetState()
	})
}

func (h listing) empty() bool { return len(h.sandboxes) == 0 && len(h.containers) == 0 }

type cachedPod struct {
	listing
	observed lifecycle.Observed
	turn     uint64
}

// podCache is the last known state of all pods in the runtime. It is safe for concurrent use.
//
// Reading the state of a pod takes several requests, and several goroutines may do so at the same
// time. Each takes a turn before its first request, and its result is kept unless a later turn has
// been published already: the later one saw everything that had been done before it began.
type podCache struct {
	mu    sync.Mutex
	turns uint64                  // guarded by mu, like all fields below
	pods  map[types.UID]cachedPod // including pods without sandbox and containers, until they are forgotten
}

func newPodCache() *podCache { return &podCache{pods: map[types.UID]cachedPod{}} }

// turn is called before the state of a pod is read.
func (c *podCache) turn() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns++
	return c.turns
}

// publish stores the result of a turn.
func (c *podCache) publish(uid types.UID, turn uint64, s cachedPod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if turn > c.pods[uid].turn {
		s.turn = turn
		c.pods[uid] = s
	}
}

func (c *podCache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, uid)
}

func (c *podCache) find(uid types.UID) cachedPod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pods[uid]
}

func (c *podCache) observe(uid types.UID) lifecycle.Observed {
	o := c.find(uid).observed
	o.Instances = slices.Clone(o.Instances)
	return o
}

// known returns the pods that have a sandbox or containers.
func (c *podCache) known() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var uids []types.UID
	for uid, s := range c.pods {
		if !s.empty() {
			uids = append(uids, uid)
		}
	}
	return uids
}

// differing returns the pods whose listing differs from the cached one.
func (c *podCache) differing(listings map[types.UID]listing) []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[types.UID]struct{}{}
	for uid, h := range listings {
		if !h.sameAs(c.pods[uid].listing) {
			found[uid] = struct{}{}
		}
	}
	for uid, s := range c.pods {
		if _, listed := listings[uid]; !listed && !s.empty() {
			found[uid] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// instance returns an instance of a pod, or nil.
func (c *podCache) instance(uid types.UID, id string) *lifecycle.Instance {
	seen := c.observe(uid)
	for i := range seen.Instances {
		if seen.Instances[i].ID == id {
			return &seen.Instances[i]
		}
	}
	return nil
}
