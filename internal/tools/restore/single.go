package restore

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// futileGets is the number of failures without an object between them after which the other objects of a kind are not read.
	futileGets = 20
	// futileTime is how long all failed reads of a kind may take together, if objects are read between them.
	futileTime = time.Minute
	// parallelOfKind is the number of concurrent reads of single objects of a kind.
	parallelOfKind = 8
)

// Whole reads objects whole. unread maps those that could not be read to the reason; an object in neither result is gone.
func (s *Server) Whole(ctx context.Context, kinds map[schema.GroupKind]undo.Kind, places []undo.Place) (whole map[undo.Place]*unstructured.Unstructured, unread map[undo.Place]string, err error) {
	survey := s.survey(kinds)
	if err := survey.readWhole(ctx, places); err != nil {
		return nil, nil, err
	}
	return survey.whole, survey.found.Unread, nil
}

// single is an object that is read by itself.
type single struct {
	place undo.Place
	get   func(context.Context) (metav1.Object, error)
}

// metadataOf returns the read of the metadata of an object.
func metadataOf(objects metadata.ResourceInterface, p undo.Place) single {
	return single{p, func(ctx context.Context) (metav1.Object, error) { return objects.Get(ctx, p.Name, metav1.GetOptions{}) }}
}

// wholeOf returns the read of a whole object.
func (s *survey) wholeOf(p undo.Place) single {
	objects := s.server.dynamic.Resource(s.found.Kinds[p.Kind].Resource).Namespace(p.Namespace)
	return single{p, func(ctx context.Context) (metav1.Object, error) { return objects.Get(ctx, p.Name, metav1.GetOptions{}) }}
}

// tries are the reads of single objects of a kind, or its lists.
type tries struct {
	failures int           // since an object was read; of lists, all
	took     time.Duration // all failures, together
	last     error         // the last failure
}

func (t *tries) fail(err error, took time.Duration) {
	t.failures++
	t.took += took
	t.last = err
}

// areFutile reports whether more reads of the kind would fail, too, or take too long. A 404 about an object says nothing about the
// others: the server answers it at once, where a webhook that it needs for an existing object is away.
func (t *tries) areFutile() bool { return t.failures >= futileGets || t.took >= futileTime }

func triesLocked(all map[schema.GroupKind]*tries, kind schema.GroupKind) *tries {
	if all[kind] == nil {
		all[kind] = &tries{}
	}
	return all[kind]
}

// readSingles reads objects one by one: the few objects of a kind, and all of a kind that could not be listed. The user may have
// the right to get them only, or one object that cannot be converted has failed the list. After some failures the other objects
// of the kind are not read, because each may take as long as the list did. A kind that hangs leaves slots to the others.
func (s *survey) readSingles(ctx context.Context, singles []single) error {
	kinds := map[schema.GroupKind][]single{}
	for _, one := range singles {
		kinds[one.place.Kind] = append(kinds[one.place.Kind], one)
	}
	slots := make(chan struct{}, parallel)
	group, ctx := errgroup.WithContext(ctx)
	for _, ofKind := range kinds {
		group.Go(func() error { return s.readKind(ctx, ofKind, slots) })
	}
	return group.Wait()
}

// readKind reads objects of a kind, several at a time.
func (s *survey) readKind(ctx context.Context, singles []single, slots chan struct{}) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelOfKind)
	for _, one := range singles {
		group.Go(func() error {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return ctx.Err()
			}
			defer func() { <-slots }()
			if s.givesUp(one.place) {
				return nil
			}
			return s.readSingle(ctx, one)
		})
	}
	return group.Wait()
}

// givesUp records why a place is not read if the reads of other objects of its kind fail. It reports whether they do.
func (s *survey) givesUp(p undo.Place) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	tries := triesLocked(s.tries, p.Kind)
	if !tries.areFutile() {
		return false
	}
	s.unreadLocked(p, tries.last)
	return true
}

func (s *survey) readSingle(ctx context.Context, one single) error {
	began := clock.RealClock{}.Now()
	o, err := one.get(ctx)
	if err == nil {
		s.add(one.place, o)
		return nil
	}
	return s.failed(ctx, one.place, err, clock.RealClock{}.Since(began))
}
