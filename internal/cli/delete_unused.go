package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

const (
	// restoreTimeout bounds the reads that restore a label after the command was interrupted.
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
	lost    error           // of a DELETE without an answer that decides about it: the object may be deleted
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
	switch {
	case d.lost != nil && err == nil && report.State == cascade.TimedOut:
		return errors.Join(printer.result(report), verdictError{fmt.Errorf("timed out after %s: %w", d.flags.end.timeout, d.lost), ExitTimedOut})
	case d.lost != nil:
		return d.lost // also after Ctrl-C
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return errors.New("interrupted: nothing is deleted")
	case err == nil && report.State == cascade.TimedOut:
		return errors.Join(printer.result(report), verdictError{fmt.Errorf("timed out after %s: nothing is deleted", d.flags.end.timeout), ExitTimedOut})
	}
	return err
}

// try deletes the object if a new preview has no more objects than --max. It is an ask.Attempt.
func (d *unusedDeletion) try() (refused string, err error) {
	if err := d.awaitServer(d.command.Context()); err != nil {
		return "", err
	}
	if refused, err := d.settle(d.command.Context()); d.deleted != nil || refused != "" || err != nil {
		return refused, err
	}
	predicted, err := d.flags.predict(d.command.Context(), d.args, d.s)
	if err != nil {
		return "", err
	}
	if len(predicted.targets) != 1 || predicted.targets[0].UID != d.target.UID {
		return "", fmt.Errorf("%s is gone, and nothing is deleted: another object may have its name now", d.name())
	}
	if predicted.targets[0].Labels.Get(protection.Label) != d.label {
		return "", fmt.Errorf("%s: %w: nothing is deleted", d.name(), errRelabelled)
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
	if err := d.flags.keep(d.command.Context(), predicted.report, d.args, d.s); err != nil {
		return "", fmt.Errorf("nothing is deleted: %w", err)
	}
	d.asked = &predicted.report
	line, err := predicted.delete(d.command.Context(), d.client, predicted.targets[0])
	if err != nil {
		return d.refusal(err)
	}
	d.done(line)
	return "", nil
}

// done records that the last DELETE has deleted the object, and prints a line about that.
func (d *unusedDeletion) done(line string) {
	d.deleted, d.lost = d.asked, nil
	if d.flags.unused.output == "text" {
		terminal.Fprintf(d.s.Out, "%s\n", line)
	}
}

// settle finds out whether a DELETE without an answer that decides about it has deleted the object after all.
func (d *unusedDeletion) settle(ctx context.Context) (refused string, err error) {
	if d.lost == nil {
		return "", nil
	}
	now, err := d.objects().Get(ctx, d.target.Name, metav1.GetOptions{})
	switch {
	case refusal.ServerAnswers(err, apierrors.IsNotFound), err == nil && string(now.UID) != string(d.target.UID):
		d.done(d.name() + " is gone")
	case restore.IsPutOff(err):
		return d.putOff(err), nil
	case err != nil:
		return "", err
	case now.DeletionTimestamp != nil:
		d.done(d.name() + " is being deleted")
	default:
		d.lost = nil
	}
	return "", nil
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
		d.lost = err
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

func (d *unusedDeletion) name() string {
	return fmt.Sprintf("%s/%s", d.target.Resource.GroupResource(), d.target.Name)
}

// protect makes the server refuse the deletion while the object is in use. It returns a function that undoes this.
func (d *unusedDeletion) protect(ctx context.Context) (restore func() error, err error) {
	config, err := d.flags.cluster.config()
	if err != nil {
		return nil, err
	}
	facts, err := reader.NewFacts(config)
	if err != nil {
		return nil, err
	}
	enforces, err := facts.Enforces(ctx)
	if err != nil {
		return nil, fmt.Errorf("nothing is deleted: it is unknown whether this server protects labelled objects, and without that it would delete the object although something begins to need it: %w", err)
	}
	if !enforces {
		return nil, errors.New("this server does not protect labelled objects, and would delete the object although something begins to need it: docs/protect.md has the webhook that it needs")
	}
	before := d.target.Labels.Get(protection.Label)
	p, err := facts.Protection(ctx, d.target)
	switch {
	case err != nil:
		return nil, err
	case p.Mode == protection.Unused && p.Enforced:
		d.label = before
		return func() error { return nil }, nil
	case p.Enforced:
		return nil, fmt.Errorf("%s is protected in mode %s: \"coppice unprotect\" it first, or \"coppice protect --mode=unused\"", d.name(), p.Label)
	}
	restore = func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreTimeout)
		defer cancel()
		if err := d.relabel(ctx, string(protection.Unused), before); err != nil && !refusal.ServerAnswers(err, apierrors.IsNotFound) && !errors.Is(err, errRelabelled) {
			return fmt.Errorf("%s keeps the label %s=%s, which the command has set: %w", d.name(), protection.Label, protection.Unused, err)
		}
		return nil
	}
	if err := d.relabel(ctx, before, string(protection.Unused)); err != nil {
		err = fmt.Errorf("label %s, so that the server refuses to delete it while it is in use: %w", d.name(), err)
		if errors.Is(err, errUnanswered) {
			err = errors.Join(err, restore())
		}
		return nil, err
	}
	d.label = string(protection.Unused)
	d.target.Labels = inventory.LabelsOf(map[string]string{protection.Label: d.label})
	return restore, nil
}

// errRelabelled is the error for an object that somebody else has labelled, deleted or replaced meanwhile.
var errRelabelled = errors.New("somebody else has changed its protection, or has deleted it")

// relabel changes the label of the object from one value to another; an empty value stands for no label.
func (d *unusedDeletion) relabel(ctx context.Context, from, to string) error {
	for try := range protectTries {
		now, err := d.objects().Get(ctx, d.target.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case try > 0 && string(now.UID) == string(d.target.UID) && now.Labels[protection.Label] == to:
			return nil // the server had done it before it put it off
		case string(now.UID) != string(d.target.UID) || now.Labels[protection.Label] != from || now.DeletionTimestamp != nil:
			return errRelabelled
		case ctx.Err() != nil:
			return ctx.Err()
		}
		if err := d.patch(ctx, now.ResourceVersion, to); !refusal.ServerAnswers(err, apierrors.IsConflict) {
			return err
		}
	}
	return errors.New("it changes all the time")
}

// patch sets the label of the object, or removes it if the value is empty, on the condition that the object has a version.
func (d *unusedDeletion) patch(ctx context.Context, version, to string) error {
	var value any
	if to != "" {
		value = to
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": d.target.UID, "resourceVersion": version, "labels": map[string]any{protection.Label: value},
	}})
	if err != nil {
		return err
	}
	return answerOf(restore.Repeat(ctx, busyTimeout, restore.IsPutOff, func() error {
		writing, cancel := forWrite(ctx)
		defer cancel()
		_, err := d.objects().Patch(writing, d.target.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: protectManager})
		return err
	}))
}

func (d *unusedDeletion) objects() metadata.ResourceInterface {
	return d.client.Resource(d.target.Resource.GroupVersionResource).Namespace(d.target.Namespace)
}
