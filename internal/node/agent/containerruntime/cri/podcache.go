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

// cachedPod is the state of a pod. Its observed state is unknown if it has never been described.
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

	endings map[types.UID]map[*ending]struct{} // who waits for the ends of instances
}

func newPodCache() *podCache {
	return &podCache{pods: map[types.UID]cachedPod{}, endings: map[types.UID]map[*ending]struct{}{}}
}

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
		c.tellLocked(uid)
	}
}

// ending waits for the end of an instance.
type ending struct {
	id   string
	tell func()
}

// onEnd calls tell once when an instance has ended or is gone, at once if that is so already. tell must not block. The
// caller calls stop when it waits no longer. The instance of a pod that has not been described yet counts as alive.
func (c *podCache) onEnd(uid types.UID, id string, tell func()) (stop func()) {
	e := &ending{id, tell}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endings[uid] == nil {
		c.endings[uid] = map[*ending]struct{}{}
	}
	c.endings[uid][e] = struct{}{}
	if s, known := c.pods[uid]; known && !s.observed.Unknown {
		c.tellLocked(uid)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.dropLocked(uid, e)
	}
}

// tellLocked tells who waits for instances of a pod that are not alive.
func (c *podCache) tellLocked(uid types.UID) {
	for e := range c.endings[uid] {
		if !slices.ContainsFunc(c.pods[uid].observed.Instances, func(i lifecycle.Instance) bool { return i.ID == e.id && i.Alive() }) {
			e.tell()
			c.dropLocked(uid, e)
		}
	}
}

func (c *podCache) dropLocked(uid types.UID, e *ending) {
	if delete(c.endings[uid], e); len(c.endings[uid]) == 0 {
		delete(c.endings, uid)
	}
}

// miss records that the runtime has failed to describe a pod. The last published state stays.
func (c *podCache) miss(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.pods[uid]; !known {
		c.pods[uid] = cachedPod{observed: lifecycle.Observed{Unknown: true}}
	}
}

func (c *podCache) forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pods, uid)
	c.tellLocked(uid)
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

// known returns the pods that have a sandbox or containers, or may have.
func (c *podCache) known() []types.UID {
	c.mu.Lock()
	defer c.mu.Unlock()
	var uids []types.UID
	for uid, s := range c.pods {
		if !s.empty() || s.observed.Unknown {
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
		if _, listed := listings[uid]; !listed && (!s.empty() || s.observed.Unknown) {
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
