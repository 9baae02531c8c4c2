package apimodel

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

var _ client.Interface = (*Server)(nil)

// Get implements client.Interface.
func (s *Server) Get(ctx context.Context, ref client.Ref) (ownership.Object, error) {
	return s.request(ctx, Request{Verb: "get", Ref: ref}, func(o stored) (stored, error) { return o, nil })
}

// Delete implements client.Interface.
func (s *Server) Delete(ctx context.Context, observed ownership.Object, propagation verdict.Propagation) error {
	r := conditioned("delete", observed)
	r.Propagation = propagation
	_, err := s.request(ctx, r, func(o stored) (stored, error) { return deleted(o, propagation), nil })
	return err
}

// PatchOwners implements client.Interface.
func (s *Server) PatchOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) (ownership.Object, error) {
	return s.request(ctx, conditioned("patch owners", observed), func(o stored) (stored, error) {
		for _, r := range owners {
			if !slices.ContainsFunc(o.Owners, func(old ownership.Reference) bool { return old.UID == r.UID }) {
				return o, errors.New("apimodel: the collector adds an owner reference (R16)")
			}
		}
		if !s.keepsOwners.Load() {
			o.Owners = slices.Clone(owners)
		}
		return o, nil
	})
}

// PatchFinalizers implements client.Interface.
func (s *Server) PatchFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) (ownership.Object, error) {
	return s.request(ctx, conditioned("patch finalizers", observed), func(o stored) (stored, error) {
		foreign := func(f string) bool { return f != ownership.FinalizerOrphan && f != ownership.FinalizerForeground }
		for _, f := range o.Finalizers {
			if foreign(f) && !slices.Contains(finalizers, f) {
				return o, errors.New("apimodel: the collector removes a finalizer of somebody else (R16)")
			}
		}
		o.Finalizers = slices.Clone(finalizers)
		return o, nil
	})
}

func conditioned(verb string, observed ownership.Object) Request {
	return Request{Verb: verb, Ref: client.RefOf(observed), UID: observed.UID, ResourceVersion: observed.ResourceVersion}
}

// request runs a request for one object through hooks, faults and rules.
func (s *Server) request(ctx context.Context, r Request, write func(stored) (stored, error)) (ownership.Object, error) {
	defer s.deliver()
	return answered(ctx, s, r, func() (ownership.Object, error) { return s.execute(r, write) })
}

// answered runs a request through hooks and faults.
func answered[T any](ctx context.Context, s *Server, r Request, execute func() (T, error)) (answer T, err error) {
	for _, hook := range s.arrive(r) {
		hook(r)
	}
	fault := s.nextFault(r)
	if fault.Wait != nil {
		select {
		case <-fault.Wait:
		case <-ctx.Done():
			return answer, ctx.Err()
		}
	}
	if fault.Err != nil && !fault.Committed {
		return answer, fault.Err
	}
	executed, err := execute()
	if fault.Err != nil {
		return answer, fault.Err // carried out, but the answer is lost
	}
	return executed, err
}

// arrive records a request, and returns the hooks to run.
func (s *Server) arrive(r Request) []func(Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	return slices.Clone(s.before)
}

// execute carries out a request in one transaction.
func (s *Server) execute(r Request, write func(stored) (stored, error)) (ownership.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scopes[r.Ref.Kind] == ownership.ScopeUnknown {
		return ownership.Object{}, apierrors.NewServiceUnavailable(r.Ref.Kind.String() + " is not served")
	}
	object, ok := s.objects[r.Ref]
	resource := schema.GroupResource{Group: r.Ref.Kind.Group, Resource: strings.ToLower(r.Ref.Kind.Kind)}
	switch {
	case !ok:
		return ownership.Object{}, apierrors.NewNotFound(resource, r.Ref.Name)
	case r.Verb == "get":
		return clone(object.Object), nil
	case r.UID == "" || r.ResourceVersion == "":
		return ownership.Object{}, errors.New("apimodel: the collector writes without condition (R12)")
	case r.UID != object.UID || r.ResourceVersion != object.ResourceVersion:
		return ownership.Object{}, apierrors.NewConflict(resource, r.Ref.Name, errors.New("precondition failed"))
	}
	object.Object = clone(object.Object)
	object, err := write(object)
	if err != nil {
		return ownership.Object{}, err
	}
	return s.commitLocked(object).Object, nil
}

// deleted returns an object after a DELETE: an explicit policy overrides the existing finalizers
// (R17).
func deleted(o stored, propagation verdict.Propagation) stored {
	o.deleting = true
	o.Finalizers = slices.DeleteFunc(o.Finalizers, func(f string) bool {
		return f == ownership.FinalizerOrphan || f == ownership.FinalizerForeground
	})
	switch propagation {
	case verdict.Foreground:
		o.Finalizers = append(o.Finalizers, ownership.FinalizerForeground)
	case verdict.Orphan:
		o.Finalizers = append(o.Finalizers, ownership.FinalizerOrphan)
	case verdict.Background:
	}
	return o
}

// Fault replaces the normal handling of some requests.
type Fault struct {
	Verb string         // which requests; "" all
	Ref  client.Ref     // which requests; zero all
	Kind ownership.Kind // the kind of the requested objects; zero all
	// Times is the number of requests that it affects; 0 means all later requests.
	Times int
	// Wait blocks the request until it is closed.
	Wait <-chan struct{}
	// Err is the answer, if not nil.
	Err error
	// Committed: the request is carried out before it is answered with Err.
	Committed bool
}

// Inject adds a fault. If several match a request, the first one takes effect.
func (s *Server) Inject(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// Heal removes all faults.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// KeepOwners makes the server answer writes of owner references, and keep the references, as with an admission webhook
// that restores them.
func (s *Server) KeepOwners() { s.keepsOwners.Store(true) }

// Before adds a hook that runs when a request arrives, before it is handled. The hook may use the
// server.
func (s *Server) Before(hook func(Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = append(s.before, hook)
}

func (s *Server) nextFault(r Request) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if f.Verb != "" && f.Verb != r.Verb || f.Ref != (client.Ref{}) && f.Ref != r.Ref ||
			f.Kind != (ownership.Kind{}) && f.Kind != r.Ref.Kind {
			continue
		}
		if f.Times == 1 {
			s.faults = slices.Delete(s.faults, i, i+1)
		} else if f.Times > 1 {
			f.Times--
		}
		return *f
	}
	return Fault{}
}
