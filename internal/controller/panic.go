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
	stack []byte
}

func (e panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.cause, e.stack) }

// guard calls do, and returns a panic as an error. The object that has caused it would otherwise end the control plane, again
// at each start. recover works only in the goroutine that panics: whoever starts one for an object guards it.
func guard(do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = panicError{cause, debug.Stack()}
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
	report := func(err error) {
		if err != nil {
			log.ErrorContext(ctx, "event not handled", "controller", name, "error", err)
		}
	}
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
