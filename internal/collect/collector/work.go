package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/queue"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// work counts the steps of the workers, and remembers the objects that come back after a while. They
// are not in the queue meanwhile. Protected objects are not among them: they need no work until a
// user lifts the protection.
type work struct {
	mu      sync.Mutex
	begun   int                     // without attempts that were refused like the one before; guarded by mu, like all fields below
	retries map[ownership.UID]retry // nil before the first
}

// retry is why an object comes back.
type retry struct {
	reason string
	// refused is the object that the server refuses to delete or to change, if that is why: the object itself, or a
	// dependent that cannot be detached from it.
	refused ownership.UID
}

func (w *work) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun++
}

func (w *work) end(uid ownership.UID, outcome Outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if outcome.Next == Settled || isProtected(outcome.Err) {
		delete(w.retries, uid)
		return
	}
	if w.retries == nil {
		w.retries = make(map[ownership.UID]retry)
	}
	again := retry{reason: ownership.Excerpt(outcome.Err.Error(), maxText)}
	if refused, ok := errors.AsType[refusedError](outcome.Err); ok && refused.after == 0 {
		again.refused = refused.uid
		if w.retries[uid].refused == refused.uid {
			w.begun-- // nothing has changed
		}
	}
	w.retries[uid] = again
}

// forget forgets the objects that come back.
func (w *work) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.retries)
}

// Work returns how many objects were taken out of the queue so far, but for those that the server refused once more, and
// describes the unfinished work: none if the collector has decided about everything that it has observed. An object that the
// server refuses to delete or to change until somebody acts is no unfinished work, although it is
// tried again. Work needs a queue with a method Busy.
func (c *Collector) Work() (taken int, unfinished []string) {
	if q, ok := c.queue.(interface{ Busy() int }); ok {
		if n := q.Busy(); n > 0 {
			unfinished = append(unfinished, fmt.Sprintf("objects to be reconsidered: %d", n))
		}
	}
	if c.isSearching() {
		unfinished = append(unfinished, "the graph is being searched for objects to be reconsidered")
	}
	for _, wait := range c.barrier.Status() {
		if c.isRefused(ownership.UID(wait.UID)) {
			continue // the proof is there, and the server refuses the removal of the finalizer
		}
		reasons := []string{wait.Owner + ": " + wait.Finalizer + " stays until it is proven that no dependent was missed"}
		for _, hold := range wait.Holds {
			reasons = append(reasons, fmt.Sprintf("%s: %s", hold.What, hold.Why))
		}
		unfinished = append(unfinished, strings.Join(reasons, "; "))
	}
	for _, p := range c.breaker.pauses() {
		unfinished = append(unfinished, "deletions of "+p.Kind+" are paused")
	}
	unfinished = append(unfinished, c.places.describe()...)
	c.work.mu.Lock()
	defer c.work.mu.Unlock()
	var retries []string
	for uid, again := range c.work.retries {
		if !c.staysRefused(again) {
			retries = append(retries, fmt.Sprintf("object %s is tried again: %s", uid, again.reason))
		}
	}
	slices.Sort(retries)
	return c.work.begun, append(unfinished, retries...)
}

// isRefused reports whether an object comes back only because the server refuses a request until somebody acts.
func (c *Collector) isRefused(uid ownership.UID) bool {
	c.work.mu.Lock()
	defer c.work.mu.Unlock()
	return c.staysRefused(c.work.retries[uid])
}

func (c *Collector) staysRefused(r retry) bool { return r.refused != "" && c.state.stays(r.refused) }

// AtRest returns the count of Work, and whether the collector is idle:
// nothing waits in the queue, in back-off or at the barrier, and no kind is paused. It needs
// Config.Restartable.
func (c *Collector) AtRest() (taken int, isAtRest bool) {
	taken, unfinished := c.Work()
	if q, ok := c.queue.(*queue.Reopening); !ok || q.Delayed() > 0 {
		return taken, false
	}
	return taken, len(unfinished) == 0
}

// Compare reads the objects of the server and compares them with the graph. It returns the objects
// that are being deleted, sorted by UID, and the kinds that were not observed up to the present. It
// is for test suites: it lists everything.
func (c *Collector) Compare(ctx context.Context) (terminating []ownership.Object, behind []string, err error) {
	watched, err := c.api.Survey(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read discovery: %w", err)
	}
	for _, version := range watched.Unknown {
		behind = append(behind, version+" cannot be discovered")
	}
	stored, failures := readStored(ctx, c.api, slices.Concat(watched.Namespaced, watched.Cluster))
	behind = append(behind, failures...)
	lagging := make(map[ownership.Kind]bool)
	terminating = stored.compare(c.View, lagging)
	for kind := range lagging {
		behind = append(behind, "not all changes of "+kind.String()+" were observed yet")
	}
	slices.Sort(behind)
	return terminating, behind, nil
}

// stored has the objects of the server.
type stored struct {
	mu      sync.Mutex
	objects map[ownership.UID]ownership.Object // guarded by mu while kinds are read, like listed
	listed  map[ownership.Kind]uint64          // the revision of each complete list
}

// listsAtOnce is the number of kinds that are read at once: the answer about hundreds of small kinds takes as long as
// their round trips.
const listsAtOnce = 8

func newStored() *stored {
	return &stored{objects: make(map[ownership.UID]ownership.Object), listed: make(map[ownership.Kind]uint64)}
}

// readStored reads the objects of kinds, and describes the failures.
func readStored(ctx context.Context, api client.Interface, kinds []ownership.Kind) (s *stored, failures []string) {
	s = newStored()
	errs := make([]error, len(kinds))
	slots := make(chan struct{}, listsAtOnce)
	var running sync.WaitGroup
	for i, kind := range kinds {
		slots <- struct{}{}
		running.Go(func() {
			errs[i] = s.read(ctx, api, kind)
			<-slots
		})
	}
	running.Wait()
	for i, err := range errs {
		if err != nil {
			failures = append(failures, fmt.Sprintf("%s cannot be listed: %v", kinds[i], err))
		}
	}
	return s, failures
}

// read lists the objects of a kind.
func (s *stored) read(ctx context.Context, api client.Interface, kind ownership.Kind) error {
	for after := ""; ; {
		page, err := api.List(ctx, kind, "", client.PageSize, after)
		if err != nil {
			return err
		}
		s.add(kind, page)
		if after = page.Continue; after == "" {
			return nil
		}
	}
}

// add notes a page of the list of a kind.
func (s *stored) add(kind ownership.Kind, page client.Page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range page.Objects {
		s.objects[o.UID] = o
	}
	if page.Continue == "" {
		s.listed[kind], _ = client.Revision(page.ResourceVersion)
	}
}

// compare adds the kinds whose listed objects the graph does not show. It returns the objects of the
// graph that are being deleted, sorted by UID. It locks the graph again and again: the caller makes sure that nothing has
// changed meanwhile.
func (s *stored) compare(view func(func(g *ownership.Graph)), lagging map[ownership.Kind]bool) (terminating []ownership.Object) {
	for uids := range slices.Chunk(slices.Collect(maps.Keys(s.objects)), ownership.Piece/8) {
		view(func(g *ownership.Graph) {
			for _, uid := range uids {
				listed := s.objects[uid]
				if observed, known := g.Object(uid); !known || isOlder(observed, listed) {
					lagging[listed.Kind] = true
				}
			}
		})
	}
	for uids := range slices.Chunk(ownership.All(view, (*ownership.Graph).Observed), ownership.Piece/8) {
		view(func(g *ownership.Graph) {
			for _, uid := range uids {
				if observed, known := g.Object(uid); known {
					terminating = s.compareObserved(observed, lagging, terminating)
				}
			}
		})
	}
	return terminating
}

// compareObserved adds the kind of an observed object if its deletion was not observed, and the object if it is being
// deleted.
func (s *stored) compareObserved(observed ownership.Object, lagging map[ownership.Kind]bool, terminating []ownership.Object) []ownership.Object {
	revision, isListed := s.listed[observed.Kind]
	if _, exists := s.objects[observed.UID]; isListed && !exists && revisionOf(observed) <= revision {
		lagging[observed.Kind] = true
	}
	if observed.Phase != ownership.Active {
		terminating = append(terminating, observed)
	}
	return terminating
}

func revisionOf(o ownership.Object) uint64 {
	revision, _ := client.Revision(o.ResourceVersion)
	return revision
}
