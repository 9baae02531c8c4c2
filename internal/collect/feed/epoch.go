package feed

import (
	"log/slog"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// epochDetector detects that the server's history is no longer the watched one (R4): a backup was
// restored, or another server answers. Then objects that were proven absent may exist again. The
// signs:
//
//   - A list, an event or a bookmark of a kind has a resourceVersion lower than one seen before.
//     Before a watch is resumed, the feed reads the server's resourceVersion.
//   - The server no longer knew the revision that a watch had reached, so that the kind had to be
//     listed without one. The usual cause is a watch that was interrupted for long. But it is
//     also the only sign of a backup that was restored with its revisions raised.
//   - The namespace kube-system, which cannot be deleted, has another UID.
//
// One sign suffices, and a false one costs a few live reads. After a sign from a list, a bookmark
// or the namespace there may be objects that no watch has shown or will show, so all kinds are
// listed again. After the second sign its kind has just been listed. Some servers send events out
// of order, or lists with unrelated revisions: maxRelists prevents endless relists there,
// until the kind has been quiet for relistsAfter.
type epochDetector struct {
	log    *slog.Logger
	clock  clock.PassiveClock
	relist chan struct{} // has an element when all kinds have to be listed again

	mu       sync.Mutex
	progress map[ownership.Kind]progress // guarded by mu, and so is all below
	relists  map[ownership.Kind]relists  // how often each kind has asked for that
	system   ownership.UID               // of the namespace kube-system
}

type progress struct {
	highest  uint64 // resourceVersion
	reported bool   // something lower was seen since, and reported
}

type relists struct {
	count int
	last  time.Time
}

func newEpochDetector(log *slog.Logger, clock clock.PassiveClock) *epochDetector {
	return &epochDetector{
		log:      log,
		clock:    clock,
		relist:   make(chan struct{}, 1),
		progress: make(map[ownership.Kind]progress),
		relists:  make(map[ownership.Kind]relists),
	}
}

// A kind that has caused all kinds to be listed again maxRelists times can do so again after it has not tried for
// relistsAfter.
const (
	maxRelists   = 2
	relistsAfter = 10 * time.Minute
)

// relistAll requests that all kinds are listed again, on behalf of one kind.
func (h *epochDetector) relistAll(kind ownership.Kind) {
	if !h.mayRelist(kind) {
		return
	}
	select {
	case h.relist <- struct{}{}:
	default: // already under way
	}
}

// mayRelist records that a kind asks for a relist, and reports whether it has not asked too often.
func (h *epochDetector) mayRelist(kind ownership.Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.relists[kind]
	if h.clock.Since(asked.last) > relistsAfter {
		asked.count = 0
	}
	h.relists[kind] = relists{asked.count + 1, h.clock.Now()}
	return asked.count < maxRelists
}

// wentBackwards records a resourceVersion of an event or a bookmark. It reports whether that is
// lower than an earlier one and the first such one in a row.
func (h *epochDetector) wentBackwards(kind ownership.Kind, resourceVersion string) bool {
	version, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return false // it cannot be compared
	}
	h.mu.Lock()
	p := h.progress[kind]
	before := p.highest
	backwards := version < p.highest && !p.reported
	if version < p.highest {
		p.reported = true
	} else {
		p = progress{highest: version}
	}
	h.progress[kind] = p
	h.mu.Unlock()
	if backwards {
		h.log.Warn("revisions of the server went backwards", "kind", kind.String(), "from", before, "to", version)
	}
	return backwards
}

// deleted records the resourceVersion of a DELETED event. A lower one is no sign: some servers send the version that the
// object had.
func (h *epochDetector) deleted(kind ownership.Kind, resourceVersion string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.progress[kind]
	p.highest = max(p.highest, numberOf(resourceVersion))
	h.progress[kind] = p
}

// listWentBackwards is wentBackwards for the resourceVersion of a list. Later versions are
// compared with the list, even if it went backwards.
func (h *epochDetector) listWentBackwards(kind ownership.Kind, resourceVersion string) bool {
	backwards := h.wentBackwards(kind, resourceVersion)
	h.mu.Lock()
	defer h.mu.Unlock()
	version, _ := strconv.ParseUint(resourceVersion, 10, 64)
	h.progress[kind] = progress{highest: version}
	return backwards
}

// isOtherServer records an object, and reports whether it shows that another server answers.
func (h *epochDetector) isOtherServer(o *ownership.Object) bool {
	if o.Name != metav1.NamespaceSystem || o.Kind != namespaceKind {
		return false
	}
	h.mu.Lock()
	before := h.system
	h.system = o.UID
	h.mu.Unlock()
	other := before != "" && before != o.UID
	if other {
		h.relistAll(o.Kind)
		h.log.Warn("another server answers", "uid", string(o.UID), "before", string(before))
	}
	return other
}

// isUnrelated reports whether the revisions of the lists of a kind have gone backwards more often than a restored backup
// explains.
func (h *epochDetector) isUnrelated(kind ownership.Kind) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	asked := h.relists[kind]
	return asked.count >= maxRelists && h.clock.Since(asked.last) <= relistsAfter
}

// forget drops the progress of a kind whose monitor has ended.
func (h *epochDetector) forget(kind ownership.Kind) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.progress, kind)
}
