// Package cli is the command line. Each command is a function over io.Writers, so that tests can run it. The files of a
// command begin with its name: preview.go has its flags and its output, preview_backup.go the backup. A test compares
// the names with the commands. Package ask has the sources of answers, a running collector and the cluster. The other
// files are shared:
//
//	root.go        the root command, exit codes, streams
//	flags*.go      flags of several commands
//	log*.go        the log of commands that run controllers
//	cluster.go     the flags for a cluster and a running collector to ask
//	targets*.go    the objects to delete, as kubectl delete names them
//	server.go      the API server of a command that runs controllers
//	kubeconfig.go  where that server is
//
// main calls Run. Its exit codes are 0 for success, 1 for a failure, which one line on
// stderr explains, 2 for an invalid command line, and 3 if a command has findings, as an audit has. Previews and waits
// have more.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// Exit codes.
const (
	ExitOK     = 0
	ExitFailed = 1
	ExitUsage  = 2
	ExitFound  = 3
	// ExitRefused and ExitUndecided are for previews of a deletion that is refused, or that something decides which
	// cannot be foreseen.
	ExitRefused   = 4
	ExitUndecided = 5
	// ExitStuck and ExitTimedOut are for waits that end before the deletion.
	ExitStuck    = 6
	ExitTimedOut = 7
)

// Streams are the input and output of a command.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
}

// shown returns streams that escape control characters, for a command that prints text from a cluster. A command
// writes its own escape sequences to terminal.Own.
func (s Streams) shown() Streams {
	return Streams{In: s.In, Out: terminal.NewWriter(s.Out), Err: terminal.NewWriter(s.Err)}
}

// usageError is the error for an invalid command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }
func (e usageError) exitCode() int { return ExitUsage }

// foundError is the error of a command that has findings.
type foundError struct{ error }

func (e foundError) Unwrap() error { return e.error }
func (e foundError) exitCode() int { return ExitFound }

// Run executes the command line args, which do not include the program's name, and returns the exit
// code. When ctx ends, long-running commands stop.
func Run(ctx context.Context, args []string, s Streams) int { return RunNamed(ctx, "coppice", args, s) }

// RunNamed is Run for a program that was called by a path. If that is the name of a kubectl plugin, the help names
// the commands of "kubectl coppice".
func RunNamed(ctx context.Context, program string, args []string, s Streams) int {
	root := newRoot(s) //nolint:contextcheck // commands take theirs from cobra
	s = s.shown()      // for the error
	if isPlugin(program) {
		asPlugin(root)
		args = pluginArguments(program, args)
	}
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err = flagGroupError(c, err); err != nil {
		terminal.Fprintf(s.Err, "coppice: %s\n", oneLine(err))
	}
	return exitCodeOf(err)
}

// flagGroupError returns the error of a command, as a usage error if its flags exclude each other: then cobra has not run
// the command, and has not asked the root's function for errors of flags.
func flagGroupError(c *cobra.Command, err error) error {
	if err == nil || exitCodeOf(err) == ExitUsage {
		return err
	}
	if invalid := c.ValidateFlagGroups(); invalid != nil {
		return usageError{fmt.Errorf("%w; see %s --help", invalid, c.CommandPath())}
	}
	return err
}

// exitCodeOf returns the exit code of a command that has ended with an error, or nil.
func exitCodeOf(err error) int {
	if err == nil {
		return ExitOK
	}
	if _, ok := errors.AsType[ask.InvalidError](err); ok {
		return ExitUsage
	}
	var coded interface{ exitCode() int }
	if errors.As(err, &coded) {
		return coded.exitCode()
	}
	return ExitFailed
}

// oneLine formats an error of several parts on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// newRoot returns the root with all commands. Their streams escape control characters, except kubectl's: it escapes
// output for terminals itself.
func newRoot(all Streams) *cobra.Command {
	s := all.shown()
	root := &cobra.Command{
		Use:   "coppice",
		Short: "Garbage collection for Kubernetes-style APIs",
		Long: `Coppice is garbage collection for Kubernetes-style APIs: the whole path that a
deletion takes, from the DELETE request to the last object that is deleted with it.`,
		Example: `  # Watch the main kinds of deletion
  coppice demo

  # Run a control plane, and kubectl against it
  coppice up
  coppice kubectl get namespaces

  # Run the garbage collector against the cluster of the current kubeconfig context
  coppice collect --observe-only`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see coppice --help", args[0])}
			}
			return c.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	})
	root.AddCommand(newUp(s), newDemo(s), newKubectl(all), newCollect(s), newNode(s), newGraph(s), newPreview(s), newDelete(s), newWait(s), newUndo(s), newProtect(s), newUnprotect(s), newExplain(s), newAudit(s), newConformance(s), newRecords(s), newStories(s), newStatus(s), newWeb(s), newMCP(s), newSnapshot(s), newAssets(s), newVersion(s))
	return root
}

// noArguments rejects arguments with the exit code of a usage error.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q; see %s --help", c.CommandPath(), args[0], c.CommandPath())}
	}
	return nil
}
