package feed

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/pace"
)

const (
	// verifyWithin bounds VerifyHistory.
	verifyWithin = 15 * time.Second
	// verifiedAtOnce is the number of its concurrent requests.
	verifiedAtOnce = 8
	// mostUnreadable is the number of kinds that are tried until the server gives the revision of one.
	mostUnreadable = 4
)

// errRelisted means that a kind was listed anew while its history was compared.
var errRelisted = errors.New("the kind is listed anew")

// VerifyHistory compares the server with what was observed, after an outage (R4): a backup may have been restored, and
// the watches continue only after a back-off. If the server does not know the history up to the last observation,
// another epoch begins. An error means that the server gave no answer, or is not ready to give one.
//
// One kind is enough if no other was observed up to a higher revision: most servers count the changes of all kinds
// together.
func (f *Feed) VerifyHistory(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyWithin)
	defer cancel()
	all, isListing := f.observed()
	if len(all) == 0 {
		return isListing.beginEpoch() // there is nothing to compare the server with
	}
	reference, now, err := firstReadable(ctx, all)
	if err != nil || now == 0 {
		return err
	}
	if err := reference.from.verify(ctx, highestOf(all, now), now); err != nil {
		return err
	}
	return pace.Each(verifiedAtOnce, all, func(o observed) error {
		if o.revision <= now {
			return nil
		}
		if _, err := o.from.compare(ctx, o.revision); err != nil && (pace.IsUnreachable(err) || ctx.Err() != nil || errors.Is(err, errRelisted)) {
			return err
		}
		return nil // the server behind an APIService may be away for long
	})
}

// observed is a kind that was observed up to a revision; 0 if the revision is no number.
type observed struct {
	from     *source
	revision uint64
}

// observed returns the kinds of which there was a complete list, namespaces first, and one of those that are listed.
func (f *Feed) observed() (all []observed, isListing *source) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, kind := range sortedKinds(f.monitors) {
		m := f.monitors[kind]
		m.mu.Lock()
		if m.complete {
			all = append(all, observed{m.source, numberOf(m.revision)})
		} else {
			isListing = m.source
		}
		m.mu.Unlock()
	}
	if i := slices.IndexFunc(all, func(o observed) bool { return o.from.store.kind == namespaceKind }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return all, isListing
}

// firstReadable returns a kind whose current revision the server gives; the revision is 0 if it gives none of the first kinds.
func firstReadable(ctx context.Context, all []observed) (_ observed, now uint64, err error) {
	var failed error
	for _, o := range all[:min(len(all), mostUnreadable)] {
		now, err := o.from.compare(ctx, o.revision)
		switch {
		case err == nil && now > 0:
			return o, now, nil
		case pace.IsUnreachable(err) || ctx.Err() != nil || errors.Is(err, errRelisted):
			return observed{}, 0, err
		case err != nil:
			failed = err
		}
	}
	return observed{}, 0, failed
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
// 0 if it cannot be compared. An error means that the server gave no answer, or is not ready to give one.
func (s *source) compare(ctx context.Context, before uint64) (now uint64, err error) {
	list, err := s.client.List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case isRefused(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	now = numberOf(list.ResourceVersion)
	if now > 0 && now < before {
		s.log.WarnContext(ctx, "the server was put back in time", "kind", s.store.kind.String(), "from", before, "to", now)
		return now, s.beginEpoch()
	}
	return now, nil
}

// verify begins another epoch if the server no longer knows an observed revision, as after a backup that was restored with
// its revisions raised.
func (s *source) verify(ctx context.Context, observed, now uint64) error {
	hasForgotten, err := s.hasForgotten(ctx, strconv.FormatUint(observed, 10))
	if !hasForgotten {
		return err
	}
	s.log.WarnContext(ctx, "the server does not know the observed history", "kind", s.store.kind.String(), "from", observed, "to", now)
	return s.beginEpoch()
}

// hasForgotten reports whether the server no longer knows a revision. An error means that it gave no answer, or is not
// ready to give one.
func (s *source) hasForgotten(ctx context.Context, revision string) (bool, error) {
	if revision == "0" {
		return false, nil
	}
	_, err := s.client.List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	switch {
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		return true, nil
	case isRefused(err), apierrors.IsInternalError(err):
		return false, nil // not all servers have lists of a former revision
	}
	return false, err
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
