// Package earlysignal catches SIGTERM and Ctrl-C from the first moments of the process on. The packages
// of Kubernetes take a while to initialize, and commands that catch signals do so only after they have read
// their flags: until then a signal would kill the process, with the exit code of a failure. This package
// imports only packages of the standard library, so that it is initialized before those of Kubernetes.
package earlysignal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

var caught = catch() //nolint:gochecknoglobals // of the process, from its first moments on

func catch() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c
}

// Context returns a context that ends with the first signal since the process started. Later signals are
// not caught here.
func Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-caught
		cancel()
		signal.Stop(caught)
	}()
	return ctx
}

// Release stops catching signals: the command catches its own, and the system handles the others. It reports
// whether a signal has already arrived.
func Release() (stopped bool) {
	signal.Stop(caught)
	select {
	case <-caught:
		return true
	default:
		return false
	}
}
