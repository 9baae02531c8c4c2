package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

// inputFlag makes a command stop when its standard input ends. If a parent process holds the other end
// of a pipe, the command stops with it, even if the parent crashes.
type inputFlag bool

func (f *inputFlag) add(c *cobra.Command) {
	c.Flags().BoolVar((*bool)(f), "stop-with-stdin", false, "stop when standard input ends, such as a pipe from a process that has ended")
}

// follow returns a context that, if the flag is set, also ends when the input ends.
func (f inputFlag) follow(ctx context.Context, input io.Reader) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if f && input != nil {
		go func() {
			defer cancel()
			_, _ = io.Copy(io.Discard, input) // an error ends the input, too
		}()
	}
	return ctx, cancel
}
