package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// inputFlag has a command stop when its standard input ends. A process that starts this one and
// keeps the other end of a pipe need not live to stop it: the pipe ends with it, however it ends.
type inputFlag bool

func (f *inputFlag) add(c *cobra.Command) {
	c.Flags().BoolVar((*bool)(f), "stop-with-stdin", false, "stop when standard input ends, as a pipe does when the process at its other end has ended")
}

// follow returns a context that also ends with the input, if the flag is set.
func (f inputFlag) follow(ctx context.Context, input io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if f && input != nil {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, input) // an error is an end, too
		}()
	}
	return ctx, cancel
}
