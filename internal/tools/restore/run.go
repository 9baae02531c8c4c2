package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// servedWithin is how long a server may take to serve the kind of a new definition, or to allow objects in a new namespace.
	servedWithin = 30 * time.Second
	// servedInAll is how long a server may take for all objects of such kinds; after Run.Until it is servedWithin. Without a bound,
	// each would take servedWithin.
	servedInAll = time.Minute
	// busyWithin is how long a server may put off the write of one object. Priority and fairness names up to 32 s for one try.
	busyWithin = 2 * time.Minute
	// busyInAll is how long a server may put off all writes. Without a bound, each object would take busyWithin.
	busyInAll = 5 * time.Minute
	// lateWithin is how long a server may put off a write after Run.Until, as long as it accepts others. Priority and fairness
	// names one second on a server that keeps up.
	lateWithin = 5 * time.Second
	firstRetry = 20 * time.Millisecond
	maxRetry   = time.Second
	// writeTimeout bounds a write: an API server answers within a minute.
	writeTimeout = 65 * time.Second
	// fieldManager is the field manager of all writes.
	fieldManager = "coppice-undo"
)

// Run is one execution of an undo.
type Run struct {
	Server *Server
	// Kinds are the kinds that the server served at the time of the plan.
	Kinds map[schema.GroupKind]undo.Kind
	// Status restores the status of objects, too.
	Status bool
	// Progress, if set, is called after each object, by one goroutine at a time.
	Progress func(done, all int)
	// Until, if set, is when to stop repeating writes to a server that puts off all writes. Kinds that are not served yet have
	// servedWithin nevertheless, together.
	Until time.Time

	mu       sync.Mutex
	plan     *undo.Plan // guarded by mu
	done     int        // guarded by mu
	busy     time.Time  // guarded by mu; when the server has begun to put off all writes; zero if it has not
	unserved time.Time  // guarded by mu; when it has begun not to serve the kinds of all writes; zero if it has not
}

// Run executes a plan. It records failed objects in the plan; an error means that it was interrupted.
func (r *Run) Run(ctx context.Context, plan *undo.Plan) error {
	r.plan = plan
	defer plan.Interrupted() // it changes nothing after a complete run
	waves, all := plan.Waves(), 0
	for _, wave := range waves {
		all += len(wave)
	}
	for _, wave := range waves {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(parallel)
		for _, s := range wave {
			group.Go(func() error {
				err := r.create(ctx, s)
				r.advance(all)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return fmt.Errorf("interrupted: %w; run the same undo again to continue", err)
		}
	}
	if err := r.link(ctx); err != nil {
		return fmt.Errorf("interrupted: %w; run the same undo again to continue", err)
	}
	return nil
}

func (r *Run) advance(all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.Progress != nil {
		r.Progress(r.done, all)
	}
}

// create creates one object.
func (r *Run) create(ctx context.Context, s *undo.Step) error {
	kind, known := r.Kinds[s.Place().Kind]
	r.mu.Lock()
	// If this undo also creates the definition of the kind, it is unknown whether status is a subresource: if it is,
	// the server ignores the status here.
	o, why := r.plan.Object(s, known && kind.Status)
	r.mu.Unlock()
	if why != "" {
		r.failed(s, why)
		return nil
	}
	objects := r.objects(s)
	made, err := r.written(ctx, func(writing context.Context) (*unstructured.Unstructured, error) {
		return objects.Create(writing, o, metav1.CreateOptions{FieldManager: fieldManager})
	})
	switch {
	case err == nil: // also after the end of ctx: the report and the journal have every object that exists
		r.mu.Lock()
		r.plan.Made(s, made.GetUID(), made.GetOwnerReferences())
		r.mu.Unlock()
		if err := cmp.Or(r.Server.journal.add(made.GetUID(), s.Kept().UID()), ctx.Err()); err != nil {
			return err
		}
	case ctx.Err() != nil:
		return ctx.Err()
	case refusal.ServerAnswers(err, apierrors.IsAlreadyExists):
		return r.readExisting(ctx, s, objects, err)
	default:
		r.failed(s, oneLine(err))
		return nil
	}
	if r.Status {
		return r.writeStatus(ctx, s, objects)
	}
	return nil
}

func (r *Run) objects(s *undo.Step) dynamic.ResourceInterface {
	return r.Server.dynamic.Resource(s.Kept().Resource).Namespace(s.Place().Namespace)
}

func (r *Run) failed(s *undo.Step, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan.Failed(s, why)
}

// written makes a write that the server may put off: it is busy, or does not serve a new kind yet. A request that was sent is
// not cancelled: the next undo would not recognize an object whose answer was lost.
func (r *Run) written(ctx context.Context, write func(context.Context) (*unstructured.Unstructured, error)) (o *unstructured.Unstructured, err error) {
	err = Repeat(ctx, r.patience, func() error {
		writing, cancel, err := forWrite(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		o, err = write(writing)
		r.answered(err)
		return err
	})
	return o, err
}

// answered records whether the server puts off writes, or does not serve kinds. An answer that is neither, and no decision about
// the write, changes nothing: a load balancer in front of a dead server also breaks connections.
func (r *Run) answered(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case IsPutOff(err):
		r.busy = earliest(r.busy)
	case isUnserved(err):
		r.unserved = earliest(r.unserved)
	case isDecision(err):
		r.busy, r.unserved = time.Time{}, time.Time{}
	}
}

// earliest returns the beginning of something that lasts: now if it has not begun.
func earliest(began time.Time) time.Time {
	if began.IsZero() {
		return clock.RealClock{}.Now()
	}
	return began
}

// patience is the Patience with the server. As long as the server accepts some writes, others may wait.
func (r *Run) patience(err error, since time.Duration) time.Duration {
	if !isLater(err) {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := clock.RealClock{}.Now()
	busy, unserved := lasting(r.busy, now), lasting(r.unserved, now)
	left, late := min(busyWithin-since, busyInAll-busy), lateWithin-max(since, busy)
	if !IsPutOff(err) {
		left, late = min(servedWithin-since, servedInAll-unserved), servedWithin-unserved
	}
	if r.Until.IsZero() {
		return left
	}
	return min(left, max(r.Until.Sub(now), late))
}

// lasting returns how long something lasts; 0 if it has not begun.
func lasting(began, now time.Time) time.Duration {
	if began.IsZero() {
		return 0
	}
	return now.Sub(began)
}

// forWrite returns a context for one write, unless ctx has ended. It does not end with ctx: the server may have made a
// write that was cancelled.
func forWrite(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	writing, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	return writing, cancel, nil
}

// isInterrupted reports whether an error is the end of ctx, and no answer to a write.
func isInterrupted(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, ctx.Err())
}

// isLater reports whether the same creation may succeed soon. An answer in doubt counts only if the server asks to repeat the
// request: a creation that was made after all occupies the name.
func isLater(err error) bool {
	if !IsPutOff(err) {
		return isUnserved(err)
	}
	return Delay(err) > 0 || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

// isDecision reports whether the server has made a write, or has decided not to make it. A 500 is no decision: a server without
// its storage gives that answer, too.
func isDecision(err error) bool {
	if err == nil {
		return true
	}
	var answer apierrors.APIStatus
	return errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError && !refusal.IsUnanswered(err)
}

// isUnserved reports whether the server does not serve the kind, yet.
func isUnserved(err error) bool {
	var answer apierrors.APIStatus
	if _, refused := refusal.Of(err); refused || !apierrors.IsNotFound(err) || !errors.As(err, &answer) {
		return false
	}
	details := answer.Status().Details
	return details == nil || details.Name == ""
}

// readExisting reads the object that has taken the place of another in the meantime, because of which the creation has failed.
// An earlier try of this undo may have created the object: nothing proves that.
func (r *Run) readExisting(ctx context.Context, s *undo.Step, objects dynamic.ResourceInterface, failed error) error {
	there, err := objects.Get(ctx, s.Place().Name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.failed(s, "another object has the name, and could not be read: "+oneLine(err))
		return nil
	}
	r.mu.Lock()
	r.plan.Found(s, r.Server.existing(there))
	if doubt, isDoubt := errors.AsType[*DoubtError](failed); isDoubt {
		r.plan.Doubted(s, oneLine(doubt.Earlier))
	}
	isRemade := s.Outcome == undo.Remade
	r.mu.Unlock()
	if isRemade && s.IsDefaultAccount() {
		return r.restoreAccount(ctx, s, objects)
	}
	return nil
}

// restoreAccount writes the content of the deleted service account to the default one that the new namespace has.
func (r *Run) restoreAccount(ctx context.Context, s *undo.Step, objects dynamic.ResourceInterface) error {
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		there, err := objects.Get(ctx, s.Place().Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		r.mu.Lock()
		o, why := r.plan.Object(s, false)
		r.mu.Unlock()
		if why != "" {
			return errors.New(why)
		}
		o.SetUID(there.GetUID())
		o.SetResourceVersion(there.GetResourceVersion())
		_, err = r.written(ctx, func(writing context.Context) (*unstructured.Unstructured, error) {
			return objects.Update(writing, o, metav1.UpdateOptions{FieldManager: fieldManager})
		})
		return err
	})
	if err != nil && !isInterrupted(ctx, err) {
		r.failed(s, "it was created again, and its old contents could not be written: "+oneLine(err))
	}
	return ctx.Err()
}
