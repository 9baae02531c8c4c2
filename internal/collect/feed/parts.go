package feed

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// partSize is the number of objects in a part of a list.
const partSize = 512

// parts passes the initial events of a watch to a store, in parts, as they arrive. So a list of millions of objects is
// never held. The Reflector gets the bookmark that ends the initial events, and all that follows.
type parts struct {
	store   *store
	began   bool // the sink knows of the list: something of it has arrived
	decoder decoder
	part    []ownership.Object
}

func newParts(s *store) *parts { return &parts{store: s} }

// add adds an object to the list.
func (p *parts) add(o ownership.Object) {
	if p.part = append(p.part, o); len(p.part) == partSize {
		p.flush()
	}
}

// addEncoded adds an object whose metadata is encoded, without its resourceVersion.
func (p *parts) addEncoded(metadata []byte, resourceVersion string) error {
	o, err := p.decoder.object(p.store.kind, metadata)
	if err != nil {
		return err
	}
	o.ResourceVersion = resourceVersion
	p.add(o)
	return nil
}

// flush passes the objects on.
func (p *parts) flush() {
	if !p.began {
		p.began = true
		p.store.startList()
	}
	if len(p.part) > 0 {
		p.store.listed(p.part)
	}
	clear(p.part)
	p.part = p.part[:0]
	p.decoder.reset()
}

// take takes an initial event. It returns false for the one that ends the initial events, and for an error.
func (p *parts) take(event watch.Event) (isTaken bool, err error) {
	switch event.Type {
	case watch.Added, watch.Modified:
		meta, err := metadataOf(event.Object)
		if err != nil {
			return false, err
		}
		p.add(Observation(p.store.kind, meta))
		return true, nil
	case watch.Deleted:
		// The object was deleted after the state of the list, and before its end was sent.
		p.flush()
		return true, p.store.Delete(event.Object)
	case watch.Bookmark:
		if !endsList(event.Object) {
			return true, nil
		}
		p.flush()
		p.store.divert()
		return false, nil
	case watch.Error:
	}
	return false, nil
}

// endsList reports whether a bookmark is the end of the initial events.
func endsList(bookmark runtime.Object) bool {
	m, err := meta.Accessor(bookmark)
	return err == nil && m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}
