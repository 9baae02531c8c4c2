package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"

	"k8s.io/client-go/tools/cache"
)

// panicError is a panic, with the stack of the goroutine that it would have ended.
type panicError struct {
	cause any
	stack stack
}

// stack is the stack of a goroutine. It is no string, because pace.Failures cuts strings.
type stack string

// Error does not have the stack: controllers write errors into conditions and events, which tenants read.
func (e panicError) Error() string {
	return fmt.Sprintf("panic: %v (the log of the controllers has the stack)", e.cause)
}

// stackOf returns the attribute for the log that has the stack of a panic; nothing for other errors.
func stackOf(err error) []any {
	if panicked, ok := errors.AsType[panicError](err); ok {
		return []any{"stack", panicked.stack}
	}
	return nil
}

// guard calls do, and returns a panic as an error. The object that has caused it would otherwise end the control plane, again
// at each start. recover works only in the goroutine that panics: whoever starts one for an object guards it.
func guard(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = panicError{cause, stack(debug.Stack())}
		}
	}()
	return do()
}

func isPanic(err error) bool {
	_, ok := errors.AsType[panicError](err)
	return ok
}

// guarded returns the source with functions that log a panic: they run in goroutines of the informer. An object that Keys
// cannot read enqueues nothing.
func (s Source) guarded(ctx context.Context, log *slog.Logger, name string) Source {
	report := func(err error) { reportEvent(ctx, log, name, err) }
	keys, ignore := s.Keys, s.Ignore
	s.Keys = func(obj any) (found []cache.ObjectName) {
		report(guard(func() error {
			found = keys(obj)
			return nil
		}))
		return found
	}
	if ignore != nil {
		s.Ignore = func(before, now any) (ignored bool) {
			report(guard(func() error {
				ignored = ignore(before, now)
				return nil
			}))
			return ignored
		}
	}
	return s
}

// GuardedHandler returns a handler that logs a panic of another one: it runs in goroutines of the informer. A Source needs
// none.
func GuardedHandler(ctx context.Context, log *slog.Logger, name string, handler cache.ResourceEventHandler) cache.ResourceEventHandler {
	observe := func(do func()) {
		reportEvent(ctx, log, name, guard(func() error {
			do()
			return nil
		}))
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc:    func(obj any, isInInitialList bool) { observe(func() { handler.OnAdd(obj, isInInitialList) }) },
		UpdateFunc: func(before, now any) { observe(func() { handler.OnUpdate(before, now) }) },
		DeleteFunc: func(obj any) { observe(func() { handler.OnDelete(obj) }) },
	}
}

// reportEvent logs that a handler has not handled an event.
func reportEvent(ctx context.Context, log *slog.Logger, name string, err error) {
	if err != nil {
		log.ErrorContext(ctx, "event not handled", append([]any{"controller", name, "error", err}, stackOf(err)...)...)
	}
}
