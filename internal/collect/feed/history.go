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
)

// VerifyHistory compares the server with what was observed, after an outage (R4): a backup may have been restored, and
// the watches continue only after a back-off. If the server does not know the history up to the last observation,
// another epoch begins. An error means that the server gave no answer, or is not ready to give one.
//
// One kind is enough if no other was observed up to a higher revision: most servers count the changes of all kinds
// together.
func (f *Feed) VerifyHistory(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, verifyWithin)
	defer cancel()
	all := f.observed()
	if len(all) == 0 {
		return nil
	}
	now, err := all[0].from.verify(ctx, all[0].revision)
	if err != nil {
		return err
	}
	return pace.Each(verifiedAtOnce, all[1:], func(o observed) error {
		if numberOf(o.revision) <= now {
			return nil
		}
		if _, err := o.from.compare(ctx, o.revision); pace.IsUnreachable(err) {
			return err
		}
		return nil // the server behind an APIService may be away for long
	})
}

// observed is a kind that was observed up to a revision.
type observed struct {
	from     *source
	revision string
}

// observed returns the kinds of which there was a complete list, namespaces first.
func (f *Feed) observed() (all []observed) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for _, kind := range sortedKinds(f.monitors) {
		m := f.monitors[kind]
		m.mu.Lock()
		if m.complete {
			all = append(all, observed{m.source, m.revision})
		}
		m.mu.Unlock()
	}
	if i := slices.IndexFunc(all, func(o observed) bool { return o.from.store.kind == namespaceKind }); i > 0 {
		all[0], all[i] = all[i], all[0]
	}
	return all
}

// compare reads the server's current revision. If it is lower than an observed one, another epoch begins. The revision is
// 0 if it cannot be compared. An error means that the server gave no answer, or is not ready to give one.
func (s *source) compare(ctx context.Context, observed string) (now uint64, err error) {
	list, err := s.client.List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case isRefused(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	now = numberOf(list.ResourceVersion)
	if before := numberOf(observed); now > 0 && now < before {
		s.log.WarnContext(ctx, "the server was put back in time", "kind", s.store.kind.String(), "from", before, "to", now)
		s.store.newEpoch()
	}
	return now, nil
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

// verify is compare. Another epoch also begins if the server no longer knows the observed revision, as after a backup
// that was restored with its revisions raised.
func (s *source) verify(ctx context.Context, observed string) (now uint64, err error) {
	if now, err = s.compare(ctx, observed); err != nil || now == 0 {
		return now, err
	}
	hasForgotten, err := s.hasForgotten(ctx, observed)
	if hasForgotten {
		s.log.WarnContext(ctx, "the server does not know the observed history", "kind", s.store.kind.String(), "from", observed, "to", now)
		s.store.newEpoch()
	}
	return now, err
}

// hasForgotten reports whether the server no longer knows a revision. An error means that it gave no answer.
func (s *source) hasForgotten(ctx context.Context, revision string) (bool, error) {
	_, err := s.client.List(ctx, metav1.ListOptions{Limit: 1, ResourceVersion: revision, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if pace.IsUnreachable(err) {
		return false, err
	}
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err), nil // not all servers have lists of a former revision
}
