package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

const (
	// answerWithin bounds each request of VerifyHistory, as all others: the server's own limit is not longer.
	answerWithin = 60 * time.Second
	// nextAfter is how long VerifyHistory waits for the revision of one kind before it requests that of another one, too.
	nextAfter = 5 * time.Second
	// foreignWithin bounds the requests for kinds of other servers, unless the server is slow.
	foreignWithin = 3 * time.Second
	// verifiedAtOnce is the number of its concurrent requests.
	verifiedAtOnce = 8
	// mostUnreadable is the number of kinds that are tried until the server gives the revision of one.
	mostUnreadable = 4
)

var (
	// errRelisted means that a kind was listed anew while its history was compared.
	errRelisted = errors.New("the kind is listed anew")
	// errNoFormerLists means that the server has no lists of former revisions.
	errNoFormerLists = errors.New("the server has no lists of former revisions")
	// errOpaque means that the revisions of a kind have no order.
	errOpaque = errors.New("its revisions are no numbers")
)

// VerifyHistory compares the server with what was observed, after an outage (R4): a backup may have been restored, and
// the watches continue only after a back-off. If the server does not know the history up to the last observation,
// another epoch begins. An error means that the server gave no answer, or is not ready to give one. The last answer is
// one that shows the history.
//
// One kind is enough if no other was observed up to a higher revision: most servers count the changes of all kinds
// together. A kind with a higher revision is of another server, behind an APIService, or of one that was put back. If it
// gives no answer, it holds nothing up: its history is doubted, with another epoch.
//
// A refusal is no answer: the kinds were listed before. While the server refuses all kinds that are tried, VerifyHistory
// returns an error. Kinds that it refuses for ever hold nothing up if another one can be read; if that may be of another
// server, the kinds of the core group are doubted, too.
func (f *Feed) VerifyHistory(ctx context.Context) error {
	all, isListing := f.observed()
	if len(all) == 0 {
		return isListing.beginEpoch() // there is nothing to compare the server with
	}
	began := f.clock.Now()
	reference, err := f.reference(ctx, all)
	if err != nil {
		return err
	}
	uncovered := slices.DeleteFunc(slices.Clone(all), reference.covers)
	if err := compareOthers(ctx, min(answerWithin, max(foreignWithin, 2*f.clock.Since(began))), uncovered); err != nil {
		return err
	}
	if reference.now == 0 {
		return nil // all kinds were doubted
	}
	return reference.of.from.verify(ctx, highestOf(all, reference.now), reference.now)
}

// observed is a kind that was observed up to a revision; 0 if the revision is no number.
type observed struct {
	from     *source
	revision uint64
	refusals int // of its comparisons, since the last one that succeeded
}

// observed returns the kinds of which there was a complete list, the most suitable ones for a comparison first, and one of
// those that are listed.
func (f *Feed) observed() (all []observed, isListing *source) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, kind := range sortedKinds(f.monitors) {
		m := f.monitors[kind]
		m.mu.Lock()
		if m.complete {
			all = append(all, observed{m.source, numberOf(m.revision), m.refusals})
		} else {
			isListing = m.source
		}
		m.mu.Unlock()
	}
	slices.SortStableFunc(all, func(a, b observed) int {
		return cmp.Or(cmp.Compare(max(a.rank(), rankCore), max(b.rank(), rankCore)), cmp.Compare(a.refusals, b.refusals), cmp.Compare(a.rank(), b.rank()))
	})
	return all, isListing
}

// Ranks of kinds as references for a comparison.
const (
	rankNamespaces = iota
	rankCore       // no other server has kinds of the core group
	rankForeign    // an APIService may lead to another server, and many clusters keep Events in a store of their own
)

func (o observed) rank() int {
	switch kind := o.from.store.kind; {
	case kind == namespaceKind:
		return rankNamespaces
	case kind.Group == "" && kind.Kind != "Event":
		return rankCore
	}
	return rankForeign
}

// isForeign reports whether the kind may be one of another server.
func (o observed) isForeign() bool { return o.rank() == rankForeign }

// reading is the current revision of a kind.
type reading struct {
	of  observed
	now uint64 // 0: it cannot be compared
	err error
}

// covers reports whether the reading also shows the history of a kind.
func (r reading) covers(o observed) bool {
	isKnown := r.now > 0 && o.revision > 0 && o.revision <= r.now
	return r.now > 0 && o.from == r.of.from || isKnown && (o.isForeign() || !r.of.isForeign())
}

// reference returns a kind whose current revision the server gives. If the server refuses the first kinds, the others of
// the core group have their turns in the next verifications. When it has refused all of them, a kind that may be of another
// server will do.
func (f *Feed) reference(ctx context.Context, all []observed) (reading, error) {
	first, rest := all[:min(len(all), mostUnreadable)], all[min(len(all), mostUnreadable):]
	found, err := f.firstReadable(ctx, first)
	isUntried := slices.ContainsFunc(rest, func(o observed) bool { return !o.isForeign() && o.refusals == 0 })
	rest = slices.DeleteFunc(slices.Clone(rest), func(o observed) bool { return !o.isForeign() })
	if !isRefused(err) || apierrors.IsUnauthorized(err) || isUntried || len(rest) == 0 {
		return found, err
	}
	return f.firstReadable(ctx, rest[:min(len(rest), mostUnreadable)])
}

// firstReadable returns the first of the kinds whose current revision the server gives; the revision is 0 if it gives none
// that is a number. It requests the revision of the next kind when one has failed, and also while one hangs if both are of
// the same server. A refusal is its error only if it is that of all kinds.
func (f *Feed) firstReadable(ctx context.Context, kinds []observed) (found reading, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	readings, pending := make(chan reading, len(kinds)), 0
	start := func() {
		go func(o observed) { readings <- o.read(ctx) }(kinds[0])
		kinds = kinds[1:]
		pending++
	}
	for len(kinds) > 0 || pending > 0 {
		if pending == 0 {
			start()
		}
		select {
		case <-f.isLate(kinds):
			start()
		case r := <-readings:
			pending--
			switch {
			case r.err == nil && r.now > 0:
				return r, nil
			case r.err == nil:
				found = r
			case endsReading(r.err) || ctx.Err() != nil:
				return reading{}, r.err
			case err == nil || isRefused(err):
				err = r.err
			}
		}
	}
	if found.of.from != nil {
		return found, nil
	}
	return reading{}, err
}

// endsReading reports whether the error of a comparison would be that of other kinds, too, or needs no other comparison.
func endsReading(err error) bool {
	return pace.IsUnreachable(err) || apierrors.IsUnauthorized(err) || errors.Is(err, errRelisted)
}

// isLate returns a channel that gets an element when the next kind is read beside those that hang; nil if none is.
func (f *Feed) isLate(next []observed) <-chan time.Time {
	if len(next) == 0 || next[0].isForeign() {
		return nil
	}
	return f.clock.After(nextAfter)
}

// read compares the revision of a kind.
func (o observed) read(ctx context.Context) reading {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	now, err := o.from.compare(ctx, o.revision)
	o.from.monitor.compared(err)
	return reading{o, now, err}
}

// doubt is a kind that gave no answer, or one that cannot be compared.
type doubt struct {
	of     *source
	before reached
	err    error
}

// compareOthers compares kinds whose history the reference does not show, all of them within a time. Another epoch begins if
// one gives no answer that can be compared, unless nothing of it was believed since the last time.
func compareOthers(ctx context.Context, within time.Duration, kinds []observed) error {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var mu sync.Mutex
	var doubts []doubt // guarded by mu
	err := pace.Each(verifiedAtOnce, kinds, func(o observed) error {
		before := o.from.reached(ctx)
		if o.from.monitor.isDoubted(before) {
			return nil
		}
		now, err := o.from.compare(limited, o.revision)
		if err == nil && (now == 0 || o.revision == 0) {
			err = errOpaque
		}
		switch {
		case ctx.Err() != nil || errors.Is(err, errRelisted):
			return err
		case err != nil:
			mu.Lock()
			defer mu.Unlock()
			doubts = append(doubts, doubt{o.from, before, err})
		}
		return nil
	})
	if err != nil || len(doubts) == 0 {
		return err
	}
	return beginDoubting(ctx, doubts)
}

// beginDoubting begins another epoch because kinds gave no answer. One is enough for all of them.
func beginDoubting(ctx context.Context, doubts []doubt) error {
	if !slices.ContainsFunc(doubts, func(d doubt) bool { return d.of.store.doubt() }) {
		return errRelisted
	}
	for _, d := range doubts {
		d.of.monitor.doubt(d.before)
		d.of.log.WarnContext(ctx, "a kind cannot be compared after an outage; what was known of absent owners is verified again",
			"kind", d.of.store.kind.String(), "error", pace.Brief(d.err))
	}
	return nil
}

// reached returns how much is known of the kind. The number of answers is 0 outside of a verification of package pace.
func (s *source) reached(ctx context.Context) reached {
	gvr := s.monitor.resource.gvr
	return reached{s.monitor.reached(), pace.Answers(ctx, gvr.Group, gvr.Resource)}
}

// highestOf returns the highest observed revision that the server may know.
func highestOf(all []observed, now uint64) (highest uint64) {
	for _, o := range all {
		if o.revision <= now {
			highest = max(highest, o.revision)
		}
	}
	return highest
}

// compare reads the server's current revision. If it is lower than an observed one, another epoch begins. The revision is
// 0 if it is no number. An error means that the server gave no answer, is not ready to give one, or refuses it: it was
// observed before, so something in front of the server may refuse it, or a server without its rights.
func (s *source) compare(ctx context.Context, before uint64) (now uint64, err error) {
	list, err := s.client.List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case isRefused(err):
		return 0, fmt.Errorf("the server refuses to list %s, which it has listed before: %w", s.store.kind, err)
	case err != nil:
		return 0, fmt.Errorf("read the revision of %s: %w", s.store.kind, err)
	}
	now = numberOf(list.ResourceVersion)
	if now > 0 && now < before {
		s.log.WarnContext(ctx, "the server was put back in time", "kind", s.store.kind.String(), "from", before, "to", now)
		return now, s.beginEpoch()
	}
	return now, nil
}

// verify begins another epoch if the server no longer knows an observed revision, as after a backup that was restored with
// its revisions raised. Its last answer shows the history, whether the server has lists of former revisions or not.
func (s *source) verify(ctx context.Context, observed, now uint64) error {
	limited, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	hasForgotten, err := s.hasForgotten(limited, strconv.FormatUint(observed, 10), s.client.List)
	switch {
	case errors.Is(err, errNoFormerLists):
		again, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		_, err = s.compare(again, now)
		return err
	case !hasForgotten:
		return err
	}
	s.log.WarnContext(ctx, "the server does not know the observed history", "kind", s.store.kind.String(), "from", observed, "to", now)
	return s.beginEpoch()
}

// hasForgotten reports whether the server no longer knows a revision. An error means that it gave no answer, is not ready
// to give one, or has no lists of former revisions.
func (s *source) hasForgotten(ctx context.Context, revision string, list lister) (bool, error) {
	if revision == "0" {
		return false, errNoFormerLists
	}
	_, err := list(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return true, nil
	case lacksFormerLists(err):
		return false, errNoFormerLists
	case err != nil:
		return false, fmt.Errorf("list %s at an observed revision: %w", s.store.kind, err)
	}
	return false, nil
}

// lister requests a list.
type lister func(ctx context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error)

// lacksFormerLists reports whether the error of a list at a former revision means that the server has none. The server has
// listed the current state a moment before, and its rights and kinds are the same for both: another instance that starts, or
// something in front of it, gives answers that each list would get. A failure that ends by itself shows nothing, either.
func lacksFormerLists(err error) bool {
	if refusal.IsUnanswered(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return false
	}
	_, lasts := refusal.Of(err)
	return isRefused(err) || lasts && apierrors.IsInternalError(err)
}

// beginEpoch begins another epoch.
func (s *source) beginEpoch() error {
	if s == nil || s.store.newEpoch() {
		return nil
	}
	return errRelisted
}

// isRefused reports whether an answer will be the same at the next try, such as 403.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err)
}

// numberOf returns a revision as a number, or 0 if it is none.
func numberOf(revision string) uint64 {
	n, err := strconv.ParseUint(revision, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
