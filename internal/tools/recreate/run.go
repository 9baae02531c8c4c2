package recreate

import (
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

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	// servedWithin is how long a server may take to serve a kind whose definition was just created, or to let
	// objects into a namespace that was.
	servedWithin = 30 * time.Second
	firstRetry   = 20 * time.Millisecond
	maxRetry     = time.Second
	// fieldManager is under which objects are written.
	fieldManager = "coppice-undo"
)

// Run is one undo that is carried out.
type Run struct {
	Server *Server
	// Kinds are those that the server served when the plan was made.
	Kinds map[schema.GroupKind]undo.Kind
	// Status has the status of objects written, too.
	Status bool
	// Progress, if set, is called after each object, by one goroutine at a time.
	Progress func(done, all int)

	mu   sync.Mutex
	plan *undo.Plan // guarded by mu
	done int        // guarded by mu
}

// Run carries a plan out. What cannot be made is noted in the plan; an error means that it was interrupted.
func (r *Run) Run(ctx context.Context, plan *undo.Plan) error {
	r.plan = plan
	defer plan.Interrupted() // nothing is left, if it was not
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
			return fmt.Errorf("interrupted: %w; undo the same again, and it goes on", err)
		}
	}
	if err := r.link(ctx); err != nil {
		return fmt.Errorf("interrupted: %w; undo the same again, and it goes on", err)
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
	// Of a kind that is defined by this undo, it is not known whether its status is a subresource: if it is,
	// the server ignores it here.
	o, why := r.plan.Object(s, known && kind.Status)
	r.mu.Unlock()
	if why != "" {
		r.failed(s, why)
		return nil
	}
	objects := r.objects(s)
	made, err := createServed(ctx, objects, o)
	if err == nil {
		if err := r.Server.journal.add(made.GetUID(), s.Kept().UID()); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case apierrors.IsAlreadyExists(err):
		return r.meet(ctx, s, objects)
	case err != nil:
		r.failed(s, oneLine(err))
		return nil
	}
	r.mu.Lock()
	r.plan.Made(s, made.GetUID(), made.GetOwnerReferences())
	r.mu.Unlock()
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

// createServed creates an object. A kind that was defined just now may not be served yet. A request that was sent is not
// cancelled: an object without an answer would not be recognized by the next undo.
func createServed(ctx context.Context, objects dynamic.ResourceInterface, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, servedWithin)
	defer cancel()
	for wait := firstRetry; ; wait = min(2*wait, maxRetry) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		made, err := objects.Create(context.WithoutCancel(ctx), o, metav1.CreateOptions{FieldManager: fieldManager})
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

// isLater reports whether the same request may succeed in a moment.
func isLater(err error) bool {
	var status apierrors.APIStatus
	isUnserved := apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == "")
	return isUnserved || apierrors.IsTooManyRequests(err) || apierrors.IsServerTimeout(err) || apierrors.IsServiceUnavailable(err)
}

// meet finds out what has taken the place of an object meanwhile.
func (r *Run) meet(ctx context.Context, s *undo.Step, objects dynamic.ResourceInterface) error {
	there, err := objects.Get(ctx, s.Place().Name, metav1.GetOptions{})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		r.failed(s, "another object has had its name: "+oneLine(err))
		return nil
	}
	r.mu.Lock()
	r.plan.Met(s, r.Server.existing(there))
	isRemade := s.Outcome == undo.Remade
	r.mu.Unlock()
	if isRemade && s.IsDefaultAccount() {
		return r.restoreAccount(ctx, s, objects)
	}
	return nil
}

// restoreAccount gives the service account that a namespace has by itself what it had.
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
		_, err = objects.Update(ctx, o, metav1.UpdateOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil && ctx.Err() == nil {
		r.failed(s, "it was made anew, and could not be given what it had: "+oneLine(err))
	}
	return ctx.Err()
}
