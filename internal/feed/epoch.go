package feed

import (
	"log/slog"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// history notices when the server's history is not any more the one that was
// watched so far (R4): a backup was restored, or another server answers. Then all
// absence that is known may be of a world that is not there any more. The signs:
//
//   - A list, an event or a bookmark of a kind has a resourceVersion lower than one
//     seen before. Each time that a watch is resumed the server is asked for that.
//   - The server did not know the revision any more that a watch had come to, so
//     that the kind had to be listed without one. Mostly that is a watch that was
//     interrupted for long. But it is also all that can be seen of a backup that
//     was restored with its revisions raised.
//   - The namespace kube-system, which nobody can delete, has another UID.
//
// One sign suffices, and a false one costs a few live reads. When a list, a
// bookmark or the namespace has given it there may be objects that no watch has
// shown or will show, so that all kinds are listed anew. After the second sign the
// kind that it concerns just was. And some servers send events out of order, or
// lists with revisions of another kind: that must not have everything listed again
// and again.
type history struct {
	log    *slog.Logger
	broken chan struct{} // holds a token when all kinds have to be listed anew

	mu     sync.Mutex
	marks  map[ownership.Kind]mark // guarded by mu, and so is all below
	alarms map[ownership.Kind]int  // how often each kind has given the alarm
	system types.UID               // of the namespace kube-system
}

// mark is how far a kind has come.
type mark struct {
	highest uint64 // resourceVersion
	doubted bool   // something lower was seen since, and the alarm was given
}

func newHistory(log *slog.Logger) *history {
	return &history{
		log:    log,
		broken: make(chan struct{}, 1),
		marks:  make(map[ownership.Kind]mark),
		alarms: make(map[ownership.Kind]int),
	}
}

// maxAlarms bounds how often one kind has everything listed anew.
const maxAlarms = 2

// alarm has all kinds listed anew, because of one.
func (h *history) alarm(kind ownership.Kind) {
	h.mu.Lock()
	h.alarms[kind]++
	ignored := h.alarms[kind] > maxAlarms
	h.mu.Unlock()
	if ignored {
		return
	}
	select {
	case h.broken <- struct{}{}:
	default: // they will be
	}
}

// hasTurned takes in a resourceVersion of an event or a bookmark, and tells
// whether it is a sign, the first of its series.
func (h *history) hasTurned(kind ownership.Kind, resourceVersion string) bool {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return false // nothing can be said of it
	}
	h.mu.Lock()
	m := h.marks[kind]
	turned := version < m.highest && !m.doubted
	if version < m.highest {
		m.doubted = true
	} else {
		m = mark{highest: version}
	}
	before := h.marks[kind].highest
	h.marks[kind] = m
	h.mu.Unlock()
	if turned {
		h.log.Warn("revisions of the server went backwards", "kind", kind.String(), "from", before, "to", version)
	}
	return turned
}

// beginsAnew takes in the resourceVersion of a list, and tells whether it is a
// sign. From here the count begins anew.
func (h *history) beginsAnew(kind ownership.Kind, resourceVersion string) bool {
	turned := h.hasTurned(kind, resourceVersion)
	h.mu.Lock()
	defer h.mu.Unlock()
	version, _ := strconv.ParseUint(resourceVersion, 10, 64)
	h.marks[kind] = mark{highest: version}
	return turned
}

// isAnother takes in an object and tells whether it shows that another server answers.
func (h *history) isAnother(kind ownership.Kind, meta *metav1.PartialObjectMetadata) bool {
	if kind != (ownership.Kind{Kind: "Namespace"}) || meta.Name != metav1.NamespaceSystem {
		return false
	}
	h.mu.Lock()
	before := h.system
	h.system = meta.UID
	h.mu.Unlock()
	another := before != "" && before != meta.UID
	if another {
		h.alarm(kind)
		h.log.Warn("another server answers", "uid", string(meta.UID), "before", string(before))
	}
	return another
}

// forget drops what was noted of a kind whose monitor has ended.
func (h *history) forget(kind ownership.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.marks, kind)
}
