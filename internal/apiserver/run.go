package apiserver

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Run serves until ctx ends, then finishes the requests in flight.
func (s *Server) Run(ctx context.Context) error {
	defer s.faults.Conclude()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	var ending sync.WaitGroup
	ending.Go(func() { s.faults.EndConnections(ctx) })
	defer ending.Wait()
	served := make(chan error, 1)
	go func() { served <- s.prepared(serving) }()
	stopping := true
	defer func() {
		if stopping {
			stop()
		}
	}()
	select {
	case err := <-served:
		return ended(err)
	case <-ctx.Done():
	}
	if !s.hasStarted() {
		stopping = false // the goroutine ends with the process
		return fmt.Errorf("serve the API: stopped while it was starting, and the start has not ended within %s", startPatience)
	}
	stop()
	return ended(<-served)
}

func ended(err error) error {
	if err != nil {
		return fmt.Errorf("serve the API: %w", err)
	}
	return nil
}

// hasStarted waits until the server may be stopped. k8s.io/apiserver exits the process with 255, and leaves its
// temporary files behind, if a post-start hook fails because the server stops. Our hooks do not fail then
// (untilStopped); the hook of k8s.io/apiextensions-apiserver, which waits for its informer, does.
func (s *Server) hasStarted() bool {
	patience := time.NewTimer(startPatience)
	defer patience.Stop()
	for _, started := range s.generic.MuxAndDiscoveryCompleteSignals() {
		select {
		case <-started:
		case <-patience.C:
			return false
		}
	}
	return true
}
