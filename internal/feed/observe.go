package feed

import (
	"fmt"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// ObjectOf is the observation that the metadata of an object stands for. The
// kind is the one under which it was read: what the metadata say of their own
// type is true of the answer (PartialObjectMetadata), not of the object.
func ObjectOf(kind ownership.Kind, meta *metav1.PartialObjectMetadata) ownership.Object {
	object := ownership.Object{
		UID:             ownership.UID(meta.UID),
		Kind:            kind,
		Namespace:       meta.Namespace,
		Name:            meta.Name,
		ResourceVersion: meta.ResourceVersion,
		Phase:           ownership.PhaseOf(meta.DeletionTimestamp != nil, meta.Finalizers),
		Finalizers:      meta.Finalizers,
	}
	if len(meta.OwnerReferences) > 0 {
		object.Owners = make([]ownership.Reference, len(meta.OwnerReferences))
	}
	for i, r := range meta.OwnerReferences {
		object.Owners[i] = ownership.Reference{
			APIVersion:         r.APIVersion,
			Kind:               r.Kind,
			Name:               r.Name,
			UID:                ownership.UID(r.UID),
			Controller:         flagOf(r.Controller),
			BlockOwnerDeletion: flagOf(r.BlockOwnerDeletion),
		}
	}
	return object
}

func flagOf(b *bool) ownership.Flag {
	switch {
	case b == nil:
		return ownership.Unset
	case *b:
		return ownership.True
	default:
		return ownership.False
	}
}

// store is what a Reflector takes for its store: it keeps nothing and passes
// each observation on to the sink.
type store struct {
	kind    ownership.Kind
	sink    Sink
	monitor *monitor
	history *history

	mu     sync.Mutex // held while the sink is called, so that close is final
	closed bool       // guarded by mu
	event  string     // guarded by mu; resourceVersion of the last event
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

// Add takes in an ADDED event.
func (s *store) Add(object any) error { return s.observe(object) }

// Update takes in a MODIFIED event.
func (s *store) Update(object any) error { return s.observe(object) }

func (s *store) observe(object any) error {
	meta, err := metadataOf(object)
	if err != nil || meta.UID == "" {
		return err
	}
	s.pass(func() {
		s.event = meta.ResourceVersion
		if s.history.hasTurned(s.kind, meta.ResourceVersion) || s.history.isAnother(s.kind, meta) {
			s.sink.NewEpoch()
		}
		s.sink.Observe(ObjectOf(s.kind, meta))
		s.announce()
	})
	return nil
}

// Delete takes in a DELETED event. A Reflector calls it for nothing else: what
// is missing from a list it leaves to Replace.
func (s *store) Delete(object any) error {
	meta, err := metadataOf(object)
	if err != nil || meta.UID == "" {
		return err
	}
	s.pass(func() {
		s.event = meta.ResourceVersion
		s.sink.Forget(ownership.UID(meta.UID), meta.ResourceVersion)
		s.announce()
	})
	return nil
}

// Replace takes in a complete list.
func (s *store) Replace(list []any, resourceVersion string) error {
	objects := make([]ownership.Object, 0, len(list))
	another := false
	for _, object := range list {
		meta, err := metadataOf(object)
		if err != nil {
			return err
		}
		if meta.UID != "" {
			objects = append(objects, ObjectOf(s.kind, meta))
			another = s.history.isAnother(s.kind, meta) || another
		}
	}
	s.pass(func() {
		// The new epoch first: what is in the list must not be judged by the old one.
		turned := s.history.beginsAnew(s.kind, resourceVersion)
		if turned {
			s.history.alarm(s.kind)
		}
		if turned || another || s.monitor.hasLost() {
			s.sink.NewEpoch()
		}
		s.sink.Replace(s.kind, objects)
		s.monitor.listed(resourceVersion)
		s.announce()
	})
	return nil
}

// Resync has no meaning for a store that keeps nothing.
func (s *store) Resync() error { return nil }

// UpdateResourceVersion takes in how far the watch has come: after each event, and
// when a bookmark says so.
func (s *store) UpdateResourceVersion(resourceVersion string) {
	s.pass(func() {
		if resourceVersion != s.event && s.history.hasTurned(s.kind, resourceVersion) {
			s.history.alarm(s.kind)
			s.sink.NewEpoch()
		}
	})
	s.monitor.progressed(resourceVersion)
}

// Transformer strips what the feed never looks at from the objects that a
// Reflector gathers while a list by watch is under way.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if meta, ok := object.(*metav1.PartialObjectMetadata); ok {
			meta.ManagedFields, meta.Labels, meta.Annotations = nil, nil, nil
		}
		return object, nil
	}
}

// pass calls the sink, unless the store is closed.
func (s *store) pass(tell func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	tell()
}

// breakOff takes in that the server's history is another one now.
func (s *store) breakOff() {
	s.pass(func() {
		s.history.alarm(s.kind)
		s.sink.NewEpoch()
	})
}

// announce hints at other kinds, if objects of this kind stand for some.
func (s *store) announce() {
	if announcesKinds(s.kind) {
		s.monitor.announce()
	}
}

// close keeps everything that still arrives from the sink.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// metadataOf is the metadata that the Reflector hands over. They may lack a
// UID: some aggregated servers compute their objects on the fly. Such objects
// are passed over, for without a UID there is no identity (R1).
func metadataOf(object any) (*metav1.PartialObjectMetadata, error) {
	meta, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("unexpected %T in place of object metadata", object)
	}
	return meta, nil
}
