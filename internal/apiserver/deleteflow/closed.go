package deleteflow

import (
	"context"
	"errors"
	"path"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
)

// Closer closes the object with a name, a namespace or a CustomResourceDefinition: until it is open again, nothing is created
// in it, by any server.
type Closer func(ctx context.Context, name string) (Closed, error)

// Closed is an object that is closed.
type Closed interface {
	// Writing returns a context in which writes of the object fail unless it is still closed.
	Writing(ctx context.Context) context.Context
	// Open opens the object, even if ctx has ended.
	Open(ctx context.Context)
}

// errOpen ends a storage call that depends on the contents of an object. The call is made again while the object is closed.
var errOpen = errors.New("the object is not closed")

// closing is the state of a storage call that deletes an object which others are created in.
type closing struct {
	wanted bool // the call has to be made again, closed
	closed bool
}

// whileClosed is the storage of objects that others are created in. If a deletion depends on the contents of an object (mode
// unused of R28), whileClosed closes the object, and makes the call again. So nothing is created between the look and the
// write.
type whileClosed struct {
	storage.Interface
	close Closer
}

// GuaranteedUpdate implements storage.Interface.
func (w whileClosed) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, tryUpdate storage.UpdateFunc, cached runtime.Object,
) error {
	return w.call(ctx, key, func(ctx context.Context) error {
		return w.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, tryUpdate, cached)
	})
}

// Delete implements storage.Interface.
func (w whileClosed) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	return w.call(ctx, key, func(ctx context.Context) error {
		return w.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	})
}

func (w whileClosed) call(ctx context.Context, key string, call func(context.Context) error) error {
	r := requestFrom(ctx)
	if r == nil || !r.deletes {
		return call(ctx)
	}
	name := path.Base(key)
	state := &closing{}
	r.setClosing(name, state)
	defer r.setClosing(name, nil)
	err := call(ctx)
	if err == nil || !state.wanted { // the storage may have called the decision for an old state of the object first
		return err
	}
	closed, err := w.close(ctx, name)
	if err != nil {
		return err
	}
	defer closed.Open(ctx)
	state.closed = true
	return call(closed.Writing(ctx))
}

// setClosing sets the state of the storage call for an object; nil when it has ended.
func (r *request) setClosing(name string, state *closing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closings == nil {
		r.closings = map[string]*closing{}
	}
	if r.closings[name] = state; state == nil {
		delete(r.closings, name)
	}
}

// needClosed returns errOpen if the storage call for an object has to be made while the object is closed, and is not. Outside
// of storage calls, as in admission and in a dry run, a look at the open object is enough.
func (r *request) needClosed(name string) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.closings[name]
	if state == nil || state.closed {
		return nil
	}
	state.wanted = true
	return errOpen
}
