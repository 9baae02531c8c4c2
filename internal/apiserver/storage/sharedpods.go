package storage

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
)

// sharedPods are the pods in the watch cache, for an informer in the same process: it would decode a copy of each, which
// takes as much memory again as the cache. Objects in a watch cache never change. A nil *sharedPods has no pods. It is
// safe for concurrent use.
type sharedPods struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod // guarded by mu; as the cache has them, or will have them shortly
}

func newSharedPods() *sharedPods { return &sharedPods{pods: map[types.UID]*corev1.Pod{}} }

// restart forgets all pods: a new watch does not tell which ones were deleted before it.
func (s *sharedPods) restart() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.pods)
}

// note remembers the pod of an event of the watch that fills the cache.
func (s *sharedPods) note(event watch.Event) {
	if s == nil {
		return
	}
	object := event.Object
	if timed, ok := object.(apistorage.WatchEventWithRecordTime); ok {
		object = timed.Unwrap()
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch event.Type {
	case watch.Added, watch.Modified:
		s.pods[pod.UID] = pod
	case watch.Deleted:
		delete(s.pods, pod.UID)
	case watch.Bookmark, watch.Error: // they have no pod
	}
}

// SharePod returns a pod that equals the given one, without managed fields. If the watch cache has the same state of it,
// both share their memory, and the result must not be changed.
func (s *Stack) SharePod(pod *corev1.Pod) *corev1.Pod {
	s.pods.mu.Lock()
	cached := s.pods.pods[pod.UID]
	s.pods.mu.Unlock()
	shared := pod
	if cached != nil && cached.ResourceVersion == pod.ResourceVersion {
		shared = new(*cached)
	}
	shared.ManagedFields = nil
	return shared
}
