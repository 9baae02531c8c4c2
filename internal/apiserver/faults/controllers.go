package faults

import (
	"context"
	"errors"
	"fmt"
)

// Controllers runs the controllers of the control plane until ctx ends, or they do. As the plan says, it stops them, and
// starts them again after a pause, as if another process had become their leader: work must be able to run again.
func (i *Injector) Controllers(ctx context.Context, work func(context.Context) error) error {
	for {
		working, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			defer stop()
			ended <- work(working)
		}()
		pause, due := i.due(working, ControllersLate)
		stop()
		if err := <-ended; !due || ctx.Err() != nil || err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		i.journal.add(Entry{Time: i.clock.Now(), Other: fmt.Sprintf("the controllers of the control plane stopped for %s, and begin from lists", pause)})
		rest := after(i.clock, pause)
		select {
		case <-rest.rings:
		case <-ctx.Done():
		}
		rest.stop()
	}
}
