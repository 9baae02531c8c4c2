package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// servedWithin is how long a server may take to serve the kind of a new definition, or to allow objects in a new
	// namespace.
	servedWithin = 30 * time.Second
	firstRetry   = 20 * time.Millisecond
	maxRetry     = time.Second
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

	mu   sync.Mutex
	plan *undo.Plan // guarded by mu
	done int        // guarded by mu
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
	made, err := createServed(ctx, objects, o)
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
		return r.readExisting(ctx, s, objects)
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

// createServed creates an object. The server may not serve a new kind yet. A request that was sent is not cancelled:
// the next undo would not recognize an object whose answer was lost.
func createServed(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, servedWithin)
	defer cancel()
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		made, err := create(ctx, objects, o)
		if !isLater(err) {
			return made, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait): //nolint:forbidigo // nothing depends on the exact delay
		}
	}
}

// create makes one attempt to create an object.
func create(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	writing, cancel, err := forWrite(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	return objects.Create(writing, o, metav1.CreateOptions{FieldManager: fieldManager})
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

// isLater reports whether the same request may succeed soon.
func isLater(err error) bool {
	if _, refused := refusal.Of(err); refused {
		return false
	}
	var status apierrors.APIStatus
	isUnserved := apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
	return isUnserved || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

// readExisting reads the object that has taken the place of another in the meantime.
func (r *Run) readExisting(ctx context.Context, s *undo.Step, objects dynamic.ResourceInterface) error {
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
		writing, cancel, err := forWrite(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		_, err = objects.Update(writing, o, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil && !isInterrupted(ctx, err) {
		r.failed(s, "it was created again, and its old contents could not be written: "+oneLine(err))
	}
	return ctx.Err()
}
