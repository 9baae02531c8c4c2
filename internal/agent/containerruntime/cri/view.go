package cri

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/coppice-dev/coppice/internal/agent/lifecycle"
)

// head is what lists tell of a pod, oldest first.
type head struct {
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

// headsOf sorts lists by pod.
func headsOf(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) map[types.UID]head {
	heads := map[types.UID]head{}
	for _, s := range sandboxes {
		uid := types.UID(s.GetLabels()[labelPodUID])
		h := heads[uid]
		h.sandboxes = append(h.sandboxes, s)
		heads[uid] = h
	}
	for _, c := range containers {
		uid := types.UID(c.GetLabels()[labelPodUID])
		h := heads[uid]
		h.containers = append(h.containers, c)
		heads[uid] = h
	}
	for _, h := range heads {
		slices.SortFunc(h.sandboxes, func(a, b *runtimeapi.PodSandbox) int { return compare(a, b) })
		slices.SortFunc(h.containers, func(a, b *runtimeapi.Container) int { return compare(a, b) })
	}
	return heads
}

// dated is what lists are made of.
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

// sandbox is the one that counts, the newest; nil if there is none.
func (h head) sandbox() *runtimeapi.PodSandbox {
	if len(h.sandboxes) == 0 {
		return nil
	}
	return h.sandboxes[len(h.sandboxes)-1]
}

// sameAs tells whether two lists tell the same.
func (h head) sameAs(other head) bool {
	return slices.EqualFunc(h.sandboxes, other.sandboxes, func(a, b *runtimeapi.PodSandbox) bool {
		return a.GetId() == b.GetId() && a.GetState() == b.GetState()
	}) && slices.EqualFunc(h.containers, other.containers, func(a, b *runtimeapi.Container) bool {
		return a.GetId() == b.GetId() && a.GetState() == b.GetState()
	})
}

func (h head) empty() bool { return len(h.sandboxes) == 0 && len(h.containers) == 0 }

// sight is what was seen of a pod.
type sight struct {
	head
	observed lifecycle.Observed
	turn     uint64
}

// view is what was seen of all pods last. It is safe for concurrent use.
//
// To see takes several requests, and a pod may be looked at by several at a time. Each
// takes a turn before its first request, and what is seen counts unless a later turn has
// been published already: that one has seen all that was done before any earlier turn.
type view struct {
	mu    sync.Mutex
	turns uint64              // guarded by mu, and so is all below
	pods  map[types.UID]sight // those of which nothing is left too, until they are forgotten
}

func newView() *view { return &view{pods: map[types.UID]sight{}} }

// turn begins to look at a pod.
func (v *view) turn() uint64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.turns++
	return v.turns
}

// publish takes in what was seen.
func (v *view) publish(uid types.UID, turn uint64, s sight) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if turn > v.pods[uid].turn {
		s.turn = turn
		v.pods[uid] = s
	}
}

// forget is about a pod that will not be asked about again.
func (v *view) forget(uid types.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.pods, uid)
}

// find is what was seen of a pod last.
func (v *view) find(uid types.UID) sight {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.pods[uid]
}

// observe is what there is of a pod.
func (v *view) observe(uid types.UID) lifecycle.Observed {
	o := v.find(uid).observed
	o.Instances = slices.Clone(o.Instances)
	return o
}

// known are the pods of which there is something.
func (v *view) known() []types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	var uids []types.UID
	for uid, s := range v.pods {
		if !s.empty() {
			uids = append(uids, uid)
		}
	}
	return uids
}

// differing are the pods of which lists tell something else than was seen.
func (v *view) differing(heads map[types.UID]head) []types.UID {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := map[types.UID]struct{}{}
	for uid, h := range heads {
		if !h.sameAs(v.pods[uid].head) {
			found[uid] = struct{}{}
		}
	}
	for uid, s := range v.pods {
		if _, listed := heads[uid]; !listed && !s.empty() {
			found[uid] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// instance finds an instance of a pod; nil if there is none.
func (v *view) instance(uid types.UID, id string) *lifecycle.Instance {
	seen := v.observe(uid)
	for i := range seen.Instances {
		if seen.Instances[i].ID == id {
			return &seen.Instances[i]
		}
	}
	return nil
}
