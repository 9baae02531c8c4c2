package crowd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

const (
	// bookmarkInterval is the time between two bookmarks of a watch.
	bookmarkInterval = time.Minute
	// batch is the most events that are sent together.
	batch = 256
	// minTimeout is the time of a watch that asks for none.
	minTimeout = time.Hour
)

// watcher is one watch.
type watcher struct {
	request
	where    selection
	revision uint64 // of the last event, or where the watch began
	position int    // in the history
	bookmark bool   // the client accepts bookmarks

	w        http.ResponseWriter
	flush    func()
	encoder  encoder
	envelope envelope
	buffer   []byte
	binary   bool
}

// watch answers a watch: initial events if the client asks for them, and then the changes.
func (q request) watch(w http.ResponseWriter) error {
	query := q.r.URL.Query()
	where, err := q.selection()
	if err != nil {
		return err
	}
	o := &watcher{
		request: q, where: where, bookmark: query.Get("allowWatchBookmarks") == "true", w: w, binary: wantsProtobuf(q.r),
		encoder: encoder{population: q.store.Population}, envelope: envelopeOf("meta.k8s.io/v1", "PartialObjectMetadata"),
	}
	if !isPartial(q.r) {
		o.envelope = envelopeOf(q.kind.APIVersion(), q.kind.Kind)
	}
	isInitial, err := o.begin(query.Get("resourceVersion"), query.Get("sendInitialEvents") == "true")
	if err != nil {
		return err
	}
	timeout := minTimeout
	if seconds, err := strconv.Atoi(query.Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	mediaType := jsonType
	if o.binary {
		mediaType = runtime.ContentTypeProtobuf + ";stream=watch"
	}
	w.Header().Set("Content-Type", mediaType)
	w.WriteHeader(http.StatusOK)
	o.flush = func() {}
	if flusher, ok := w.(http.Flusher); ok {
		o.flush = flusher.Flush
	}
	o.flush()
	if !isInitial || o.initial(query.Get("sendInitialEvents") == "true") == nil {
		o.follow(timeout)
	}
	return nil // a client that is gone needs no answer
}

// begin sets where the watch begins. It reports whether the objects that exist come first.
func (o *watcher) begin(version string, isStreamed bool) (isInitial bool, err error) {
	o.revision, o.position = o.store.snapshot(o.kind)
	if isStreamed || version == "" || version == "0" {
		return true, nil
	}
	from, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return false, apierrors.NewBadRequest(fmt.Sprintf("resourceVersion %q is not a number", version))
	}
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	position, known := o.store.histories[o.kind.index].after(from)
	if !known {
		return false, apierrors.NewResourceExpired(fmt.Sprintf("the history of revision %d is not kept", from))
	}
	o.revision, o.position = from, position
	return false, nil
}

// initial sends the objects that exist, and the bookmark that ends them if the client asked for it.
func (o *watcher) initial(isStreamed bool) error {
	objects := o.walk(o.where, o.revision)
	var err error
	objects.from(0, func(_ int, meta []byte) bool {
		if o.add(apiwatch.Added, meta); len(o.buffer) >= chunk {
			err = o.send()
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if isStreamed {
		o.addBookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	if err := o.send(); err != nil {
		return err
	}
	o.flush()
	return nil
}

// follow sends changes until the client is gone or the time is over.
func (o *watcher) follow(timeout time.Duration) {
	over := time.NewTimer(timeout)
	defer over.Stop()
	tick := time.NewTicker(bookmarkInterval)
	defer tick.Stop()
	events := make([]event, 0, batch)
	for {
		copied, more, known := o.next(events)
		for _, e := range copied {
			o.addEvent(e)
		}
		switch {
		case !known:
			return // the client does not keep up, and has to list again
		case len(copied) > 0:
			if o.send() != nil {
				return
			}
			o.flush()
			continue
		}
		select {
		case <-more:
		case <-tick.C:
			if o.bookmark {
				o.addBookmark(nil)
			}
			if o.send() != nil {
				return
			}
			o.flush()
		case <-over.C:
			return
		case <-o.r.Context().Done():
			return
		}
	}
}

// next returns the next events; if there are none, more is closed when there are. The revision of the watch is then that
// of the store.
func (o *watcher) next(events []event) (copied []event, more <-chan struct{}, known bool) {
	o.store.mu.Lock()
	defer o.store.mu.Unlock()
	h := &o.store.histories[o.kind.index]
	copied, known = h.from(o.position, events)
	o.position += len(copied)
	if len(copied) > 0 {
		o.revision = copied[len(copied)-1].revision
		return copied, nil, known
	}
	o.revision = o.store.revision
	return nil, h.waiting(), known
}

func (o *watcher) addEvent(e event) {
	c, i := o.store.at(e.number)
	if o.where.namespace != "" && o.store.namespaceName(c, i) != o.where.namespace {
		return
	}
	if o.where.name != "" && string(o.store.appendName(nil, c, i)) != o.where.name {
		return
	}
	meta := o.encoder.meta(c, i, e.revision)
	if patched := o.store.patchedAt(e.number, e.revision); patched != nil {
		meta = encodedMeta(patched)
	}
	if e.kind == deleted {
		o.add(apiwatch.Deleted, meta)
		return
	}
	o.add(apiwatch.Modified, meta)
}

// patchedAt returns the metadata of a patched object for an event, or nil.
func (s *Store) patchedAt(n Number, revision uint64) *metav1.ObjectMeta {
	if !s.isTouched(n) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	meta := s.patched[n]
	if meta == nil {
		return nil
	}
	at := *meta
	at.ResourceVersion = formatRevision(revision)
	return &at
}

func (o *watcher) addBookmark(annotations map[string]string) {
	meta := metav1.ObjectMeta{ResourceVersion: formatRevision(o.revision), Annotations: annotations}
	o.add(apiwatch.Bookmark, encodedMeta(&meta))
}

// add appends an event to the buffer.
func (o *watcher) add(kind apiwatch.EventType, meta []byte) {
	if o.binary {
		o.buffer = o.envelope.appendEvent(o.buffer, string(kind), meta)
		return
	}
	object, err := o.json(meta)
	if err != nil {
		return
	}
	text, err := json.Marshal(metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: object}})
	if err != nil {
		return
	}
	o.buffer = append(append(o.buffer, text...), '\n')
}

func (o *watcher) send() error {
	_, err := o.w.Write(o.buffer)
	o.buffer = o.buffer[:0]
	return err
}
