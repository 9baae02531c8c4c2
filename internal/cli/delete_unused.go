package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

const (
	// restoreTimeout bounds the reads that restore a label, or settle a DELETE, after the command was interrupted.
	restoreTimeout = 10 * time.Second
	// longestDelay bounds the time after which a server wants to be asked again.
	longestDelay = time.Minute
)

// unusedFlags are the flags of coppice delete --when-unused.
type unusedFlags struct {
	isSet  bool
	output string
}

func (f *unusedFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&f.isSet, "when-unused", false, "wait until nothing needs the object, delete it, and wait until everything is gone")
	c.Flags().StringVarP(&f.output, "output", "o", "text", "format of the progress with --when-unused: "+strings.Join(waitFormats(), ", "))
	completeWith(c, "output", waitFormats()...)
}

// check returns an error if a flag is for --when-unused only.
func (f *unusedFlags) check() error {
	if !f.isSet && f.output != "text" {
		return usageError{errors.New("--output is for --when-unused")}
	}
	return nil
}

// checkUnused returns an error if the flags contradict --when-unused.
func (f *deleteFlags) checkUnused() error {
	switch {
	case !slices.Contains(waitFormats(), f.unused.output):
		return usageError{fmt.Errorf("--output %q is unknown: choose one of %s", f.unused.output, strings.Join(waitFormats(), ", "))}
	case f.confirm.digest != "" || f.confirm.file != "":
		return usageError{errors.New("--when-unused deletes later than the preview that --confirm and --confirm-from name: leave them out, and bound the deletion with --max")}
	case f.most <= 0:
		return usageError{errors.New("--when-unused needs --max: how many objects may go when nothing needs the object any more; 1 for the object alone")}
	}
	f.end.wait = true
	return f.end.check()
}

// unusedDeletion deletes one object when nothing needs it.
type unusedDeletion struct {
	command *cobra.Command
	flags   *deleteFlags
	args    []string
	s       Streams
	client  metadata.Interface

	clock   clock.Clock
	again   time.Time // a server that has put off the DELETE wants to be asked then
	target  *inventory.Object
	label   string          // of the object while the command waits: unused, or none if its resource has a default mode
	asked   *preview.Report // the preview of the last DELETE
	deleted *preview.Report // the preview of the deletion; nil before the DELETE has succeeded

	// lost is the error of a DELETE without an answer that decides about it, and settled is when the server has ended that
	// DELETE at the latest. Until then the object may be deleted at any moment.
	lost    error
	settled time.Time
}

func deleteWhenUnused(c *cobra.Command, f deleteFlags, args []string, s Streams) error {
	if err := f.checkUnused(); err != nil {
		return err
	}
	if err := f.check(c, args); err != nil {
		return err
	}
	if err := f.backup.checkNew(); err != nil {
		return err // before the wait
	}
	f.address = ask.NoCollector // the versions of the deleted objects have to be read
	ctx, cancel := withTimeout(c.Context(), f.end.timeout)
	defer cancel()
	c.SetContext(ctx)
	config, err := f.cluster.config()
	if err != nil {
		return err
	}
	d := &unusedDeletion{command: c, flags: &f, args: args, s: s, clock: clock.RealClock{}}
	if d.client, err = clientWithoutRepeats(config); err != nil {
		return err
	}
	first, err := f.predict(ctx, args, s)
	if err != nil {
		return err
	}
	if len(first.targets) != 1 {
		return usageError{fmt.Errorf("--when-unused is for one object, and these are %d: run the command for each", len(first.targets))}
	}
	d.target = first.targets[0]
	restore, err := d.protect(ctx)
	if err != nil {
		return err
	}
	err = d.run(ctx)
	if d.deleted == nil {
		err = errors.Join(err, restore())
	}
	return err
}

// run waits until nothing needs the object, deletes it, and waits for the end.
func (d *unusedDeletion) run(ctx context.Context) error {
	sources, err := d.flags.cluster.sources("", nil)
	if err != nil {
		return err
	}
	printer := &waitPrinter{format: d.flags.unused.output, s: d.s}
	report, err := sources.WaitUnused(ctx, d.target, d.try, printer.progress)
	if d.deleted == nil && d.lost != nil { // the DELETE may be why the wait has ended
		d.settleLast(ctx)
	}
	if d.deleted == nil {
		return d.undone(ctx, report, err, printer)
	}
	if report, err = sources.Wait(ctx, ask.Ending{Predicted: d.deleted}, printer.progress); err == nil {
		err = printer.result(report)
	}
	return endOf(ctx, report, err, d.flags.end.timeout)
}

// undone returns the error of a wait without a deletion.
func (d *unusedDeletion) undone(ctx context.Context, report cascade.Report, err error, printer *waitPrinter) error {
	isTimedOut := err == nil && report.State == cascade.TimedOut
	what := cmp.Or(d.lost, errNothing)
	switch {
	case isTimedOut:
		return errors.Join(printer.result(report), verdictError{fmt.Errorf("timed out after %s: %w", d.flags.end.timeout, what), ExitTimedOut})
	case d.lost == nil && errors.Is(ctx.Err(), context.Canceled):
		return fmt.Errorf("interrupted: %w", what)
	case err == nil, errors.Is(err, what), d.lost != nil && ctx.Err() != nil:
		return what
	case d.lost == nil:
		return fmt.Errorf("%w: %w", what, err)
	}
	return fmt.Errorf("%w; another attempt has failed: %w", d.lost, err)
}

// errNothing is the error of a wait that has ended before the object was deleted.
var errNothing = errors.New("nothing is deleted")

// try deletes the object if a new preview has no more objects than --max. It is an ask.Attempt.
func (d *unusedDeletion) try() (refused string, err error) {
	ctx := d.command.Context()
	if err := d.awaitServer(ctx); err != nil {
		return "", err
	}
	if refused, err := d.settle(ctx); d.deleted != nil || refused != "" || err != nil {
		return refused, err
	}
	predicted, err := d.flags.predict(ctx, d.args, d.s)
	if err != nil {
		return "", err
	}
	if len(predicted.targets) != 1 || predicted.targets[0].UID != d.target.UID {
		return "", fmt.Errorf("%s is gone: another object may have its name now", d.name())
	}
	if predicted.targets[0].Labels.Get(protection.Label) != d.label {
		return "", fmt.Errorf("%s: %w", d.name(), errRelabelled)
	}
	if root := rootOf(predicted.report); root != nil && root.Refused != "" {
		if strings.Contains(root.Refused, protection.Label) {
			return root.Refused, nil
		}
		return "", verdictOf(predicted.report)
	}
	if err := d.flags.allows(predicted.report); err != nil {
		return "", err
	}
	d.flags.backup.isNeeded = d.lost != nil
	if err := d.flags.keep(ctx, predicted.report, d.args, d.s); err != nil {
		return "", err
	}
	d.asked = &predicted.report
	line, err := predicted.delete(ctx, d.client, predicted.targets[0])
	if err != nil {
		return d.refusal(err)
	}
	d.done(line)
	return "", nil
}

// done records that a DELETE has deleted the object, and prints a line about that.
func (d *unusedDeletion) done(line string) {
	d.deleted, d.lost = d.asked, nil
	if d.flags.unused.output == "text" {
		terminal.Fprintf(d.s.Out, "%s\n", line)
	}
}

// settle finds out whether a DELETE without an answer that decides about it has deleted the object after all. An object that is
// there proves nothing yet: the server may still work on the DELETE.
func (d *unusedDeletion) settle(ctx context.Context) (refused string, err error) {
	if d.lost == nil {
		return "", nil
	}
	isSettled := !d.clock.Now().Before(d.settled) // before the read
	now, err := d.objects().Get(ctx, d.target.Name, metav1.GetOptions{})
	switch {
	case refusal.IsGone(err, d.target.Name), err == nil && string(now.UID) != string(d.target.UID):
		d.done(d.name() + " is gone")
	case restore.IsPutOff(err):
		return d.putOff(err), nil
	case err != nil:
		return "", err
	case now.DeletionTimestamp != nil:
		d.done(d.name() + " is being deleted")
	case isSettled:
		d.lost = nil
	}
	return "", nil
}

// settleLast is settle at the end of a wait, also after Ctrl-C or the timeout. If the read fails, the object may be deleted.
func (d *unusedDeletion) settleLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
	defer cancel()
	_, _ = d.settle(ctx)
}

// putOff records when to ask the server again, and returns its answer for the user.
func (d *unusedDeletion) putOff(err error) string {
	d.again = d.clock.Now().Add(min(restore.Delay(err), longestDelay))
	return "the server is asked again: " + err.Error()
}

// awaitServer waits until the time that a busy server has named.
func (d *unusedDeletion) awaitServer(ctx context.Context) error {
	wait := d.again.Sub(d.clock.Now())
	if wait <= 0 {
		return nil
	}
	select {
	case <-d.clock.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rootOf returns the requested object of a preview of one object.
func rootOf(r preview.Report) *preview.ObjectReport {
	for n := range r.Objects {
		if r.Objects[n].Requested {
			return &r.Objects[n]
		}
	}
	return nil
}

// refusal returns the refusal in the error of a DELETE, if the DELETE may succeed later. It keeps the error if the object may
// be deleted.
func (d *unusedDeletion) refusal(err error) (refused string, failed error) {
	if errors.Is(err, errUnanswered) {
		d.lost, d.settled = err, d.clock.Now().Add(writeTimeout)
	}
	switch r, isRefusal := refusal.Of(err); {
	case restore.IsPutOff(err):
		return d.putOff(err), nil
	case refusal.ServerAnswers(err, apierrors.IsConflict):
		return "it has changed since it was read", nil
	case isRefusal && r.By == refusal.ByProtection && strings.Contains(r.Message, "a policy cannot look up"):
		return "", fmt.Errorf("the policy of this server refuses mode %s whether the object is in use or not: it needs the webhook, see docs/protect.md: %w", protection.Unused, err)
	case isRefusal && r.By == refusal.ByProtection:
		return r.Message, nil
	}
	return "", err
}
