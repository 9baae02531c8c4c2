// Command steady runs the tests of packages many times, each time in another order, with and without the race detector,
// two packages at once, on free cores and beside processes that keep the cores busy, on all processors and on one. It
// prints each failure with its seeds, and the tests that once took much longer than in most runs. A test that fails once
// in many runs hides a defect, of the product or of the test.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == burn {
		burnUntilEOF()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "steady:", err)
		stop()
		os.Exit(1)
	}
}

// run is the command. It returns an error if a test has failed.
func run(ctx context.Context, args []string, out io.Writer) error {
	c := &campaign{out: out, now: time.Now}
	flags := flag.NewFlagSet("steady", flag.ContinueOnError)
	flags.IntVar(&c.runs, "runs", 20, "run the tests of each package this many times, a quarter of them with the race detector")
	flags.IntVar(&c.streams, "streams", 2, "number of packages whose tests run at once")
	flags.DurationVar(&c.timeout, "timeout", 20*time.Minute, "time that one run of a package may take")
	flags.StringVar(&c.output, "o", "", "directory for the output of runs that failed")
	tests := flags.String("run", "", "run only tests whose name matches this expression")
	modules := flags.String("modules", ".", "directories of the modules, separated by spaces")
	unraced := flags.String("unraced", "^$", "expression of packages that are not run with the race detector")
	record := flags.String("record", "", "file that keeps how runs have ended: they are not made again until the tests, or what they test, have changed")
	flags.IntVar(&c.load.burners, "burners", 2, "number of processes that keep the cores busy during every second run")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if c.unraced, err = regexp.Compile(*unraced); err != nil {
		return fmt.Errorf("-unraced: %w", err)
	}
	if c.record, err = openRecord(*record); err != nil {
		return err
	}
	defer c.record.close()
	c.tests, c.modules, c.patterns = *tests, strings.Fields(*modules), flags.Args()
	if len(c.patterns) == 0 {
		c.patterns = []string{"./..."}
	}
	return c.run(ctx)
}
