package feed

import (
	"fmt"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// ObjectOf converts the metadata of an object to an observation. The kind is the one under which it was read: the
// type in the metadata is the type of the answer (PartialObjectMetadata), not of the object.
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
	object.Protected = protection.IsMarked(meta.Labels)
	if meta.DeletionTimestamp != nil {
		object.Due = meta.DeletionTimestamp.Unix()
	}
	if len(meta.OwnerReferences) > 0 {
		object.Owners = make([]ownership.Reference, len(meta.OwnerReferences))
	}
	for i := range meta.OwnerReferences {
		object.Owners[i] = referenceOf(&meta.OwnerReferences[i])
	}
	return object
}

func referenceOf(r *metav1.OwnerReference) ownership.Reference {
	return ownership.Reference{
		APIVersion:         r.APIVersion,
		Kind:               r.Kind,
		Name:               r.Name,
		UID:                ownership.UID(r.UID),
		Controller:         flagOf(r.Controller),
		BlockOwnerDeletion: flagOf(r.BlockOwnerDeletion),
	}
}

// Observation converts the metadata of an object to an observation within the collector's bounds, even if the object
// exceeds them.
func Observation(kind ownership.Kind, meta *metav1.PartialObjectMetadata) ownership.Object {
	return ownership.Bounded(ObjectOf(kind, meta))
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

// store implements the store of a Reflector. It keeps nothing and passes each observation
// on to the sink.
type store struct {
	kind    ownership.Kind
	sink    Sink
	monitor *monitor
	epochs  *epochDetector

	mu     sync.Mutex // held while the sink is called, so that close is final
	closed bool       // guarded by mu
	event  string     // guarded by mu; resourceVersion of the last event
	// inParts means that the sink has got all objects of the list that ends next. Guarded by mu.
	inParts bool
	// renewed means that this list has begun another epoch. Guarded by mu.
	renewed bool

	unnamed sync.Once // logs once that an object with an overlong name was ignored
}

var (
	_ cache.TransformingStore      = (*store)(nil)
	_ cache.ResourceVersionUpdater = (*store)(nil)
)

// Add handles an ADDED event.
func (s *store) Add(object any) error { return s.observe(object) }

// Update handles a MODIFIED event.
func (s *store) Update(object any) error { return s.observe(object) }

func (s *store) observe(object any) error {
	meta, err := metadataOf(object)
	if err != nil {
		return err
	}
	o := Observation(s.kind, meta)
	if !s.observable(&o) {
		return nil
	}
	s.pass(func() {
		s.event = o.ResourceVersion
		if s.epochs.wentBackwards(s.kind, o.ResourceVersion) || s.epochs.isOtherServer(&o) {
			s.sink.NewEpoch()
		}
		s.sink.Observe(o)
		s.announce()
	})
	return nil
}

// Delete handles a DELETED event. A Reflector calls it for nothing else: for objects that are missing from a list it
// calls Replace.
func (s *store) Delete(object any) error {
	meta, err := metadataOf(object)
	if err != nil || meta.UID == "" {
		return err
	}
	s.pass(func() {
		s.event = meta.ResourceVersion
		s.epochs.deleted(s.kind, meta.ResourceVersion)
		s.sink.Forget(Observation(s.kind, meta).UID, meta.ResourceVersion)
		s.announce()
	})
	return nil
}

// Replace handles a complete list, or the end of one whose objects have come in parts.
func (s *store) Replace(list []any, resourceVersion string) error {
	if s.monitor.resumed() {
		return nil // it is the source that has answered, with nothing
	}
	objects := make([]ownership.Object, 0, len(list))
	other := false
	for _, object := range list {
		meta, err := metadataOf(object)
		if err != nil {
			return err
		}
		if o := Observation(s.kind, meta); s.observable(&o) {
			objects = append(objects, o)
			other = s.epochs.isOtherServer(&o) || other
		}
	}
	s.pass(func() {
		// The new epoch first: the listed objects must not be compared with the old one. If they have come in parts, they
		// were; but then all kinds are listed again.
		backwards := s.epochs.listWentBackwards(s.kind, resourceVersion)
		if backwards {
			s.epochs.relistAll(s.kind)
		}
		if !s.inParts {
			s.renewed = false
		}
		if backwards || other || s.monitor.hasExpired() {
			s.renewLocked()
		}
		if !s.inParts {
			s.sink.StartList(s.kind)
			s.sink.Listed(s.kind, objects)
		}
		s.inParts = false
		s.sink.EndList(s.kind)
		s.monitor.listed(resourceVersion)
		s.announce()
	})
	return nil
}

// takesParts reports whether a list may come in parts. It may not if the server sends lists with revisions that
// are unrelated: such a list begins another epoch, and is compared with nothing.
func (s *store) takesParts() bool { return !s.epochs.isUnrelated(s.kind) }

// startList handles the start of a list whose objects come in parts. Replace handles its end, after divert.
func (s *store) startList() {
	s.pass(func() {
		s.inParts, s.renewed = false, false
		if s.monitor.hasExpired() {
			s.renewLocked()
		}
		s.sink.StartList(s.kind)
	})
}

// renewLocked begins another epoch, unless the list that is under way has begun one.
func (s *store) renewLocked() {
	if !s.renewed {
		s.renewed = true
		s.sink.NewEpoch()
	}
}

// listed handles a part of a list.
func (s *store) listed(objects []ownership.Object) {
	objects = slices.DeleteFunc(objects, func(o ownership.Object) bool { return !s.observable(&o) })
	other := false
	for i := range objects {
		other = s.epochs.isOtherServer(&objects[i]) || other
	}
	s.pass(func() {
		if other {
			s.renewLocked()
		}
		s.sink.Listed(s.kind, objects)
		s.monitor.hears()
	})
}

// divert makes Replace the end of a list in parts.
func (s *store) divert() { s.pass(func() { s.inParts = true }) }

// Resync has no meaning for a store that keeps nothing.
func (s *store) Resync() error { return nil }

// UpdateResourceVersion records how far the watch has come: after each event and bookmark.
func (s *store) UpdateResourceVersion(resourceVersion string) {
	s.pass(func() {
		if resourceVersion != s.event && s.epochs.wentBackwards(s.kind, resourceVersion) {
			s.epochs.relistAll(s.kind)
			s.sink.NewEpoch()
		}
		// A revision that is dropped because the store is closed was not reached.
		s.monitor.progressed(resourceVersion)
	})
}

// Transformer strips the fields that the feed does not use from the objects that a Reflector
// collects while a list by watch is under way.
func (s *store) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if meta, ok := object.(*metav1.PartialObjectMetadata); ok {
			value, isProtected := meta.Labels[protection.Label]
			meta.ManagedFields, meta.Labels, meta.Annotations = nil, nil, nil
			boundMetadata(meta)
			if isProtected {
				meta.Labels = map[string]string{protection.Label: value}
			}
		}
		return object, nil
	}
}

// boundMetadata replaces the parts of metadata that Observation would not keep.
func boundMetadata(meta *metav1.PartialObjectMetadata) {
	meta.Finalizers = ownership.BoundedFinalizers(meta.Finalizers)
	for i := range meta.OwnerReferences {
		r := &meta.OwnerReferences[i]
		b := referenceOf(r).Bounded()
		r.APIVersion, r.Kind, r.Name, r.UID = b.APIVersion, b.Kind, b.Name, types.UID(b.UID)
	}
}

// pass makes a call to the sink, and reports whether the store is open: a closed one makes none.
func (s *store) pass(call func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	call()
	return true
}

// newEpoch begins another epoch: the server's history has changed. It reports whether the store is open.
func (s *store) newEpoch() bool {
	return s.pass(func() {
		s.epochs.relistAll(s.kind)
		s.sink.NewEpoch()
	})
}

// doubt begins another epoch, without lists: the history may have changed. It reports whether the store is open.
func (s *store) doubt() bool { return s.pass(s.sink.NewEpoch) }

// announce requests a new discovery, if objects of this kind define other kinds.
func (s *store) announce() {
	if definesKinds(s.kind) {
		s.monitor.announce()
	}
}

// close makes the store drop all later observations.
func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

// observable reports whether an object takes part in garbage collection. One without a UID has no identity (R1). An
// object with an overlong name is ignored, because the name cannot be shortened: the object stays, and only its
// DELETED event can cause deletions.
func (s *store) observable(o *ownership.Object) bool {
	if len(o.Name) > ownership.MaxName {
		s.unnamed.Do(func() {
			s.epochs.log.Warn("objects with names of more than 1024 bytes are not collected",
				"kind", s.kind.String(), "namespace", o.Namespace, "name", ownership.Excerpt(o.Name, 64))
		})
		return false
	}
	return o.UID != ""
}

// metadataOf returns the metadata that the Reflector has passed. They may lack a UID: some
// aggregated servers compute their objects on the fly. Such objects are skipped: without a
// UID there is no identity (R1).
func metadataOf(object any) (*metav1.PartialObjectMetadata, error) {
	meta, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return nil, fmt.Errorf("unexpected %T in place of object metadata", object)
	}
	return meta, nil
}
