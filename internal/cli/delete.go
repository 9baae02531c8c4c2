package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

func newDelete(s Streams) *cobra.Command {
	var f deleteFlags
	c := &cobra.Command{
		Use:   "delete TYPE/NAME ... | TYPE NAME ... | TYPE -l LABELS | TYPE --all | -f FILE",
		Short: "Delete objects as previewed, if nothing has changed since",
		Long: `Deletes objects if a new preview equals the one that you have seen: the same versions of the
same objects, with the same outcome. --confirm takes the digest that "coppice preview delete"
printed for the same arguments and flags. If an object that the deletion affects has changed,
the command deletes nothing: preview the deletion again. --confirm-from takes the file that
"coppice preview delete -o json" has written; then the command also lists the changes.

Each DELETE has the version that the preview has read as its precondition, so that a later
change prevents it, too. With --backup, the command first writes the objects to a file for
"coppice undo", and deletes nothing if that fails, or if the backup is incomplete; see
"coppice preview delete --help" about --backup-without.

A server with "coppice up --confirm-deletions" refuses large deletions that nobody has
confirmed. The command then confirms the deletion, which needs the rights "patch" and
"confirm" for the object, and makes it.

With --wait, the command ends when everything is gone, as "coppice wait" does, with the same
output and exit codes.

With --when-unused, the command waits until nothing needs the object any more, deletes it, and
waits for the end. Meanwhile it prints which objects need it, as "coppice wait" prints causes:
instances of a CustomResourceDefinition, contents of a namespace, and objects that name it in a
field of Kubernetes' API. No digest can confirm a deletion that happens later, so --max is
required: it bounds the objects that go then. The server must enforce protection (docs/protect.md):
the command labels the object coppice.dev/protect=unused if it has no protection, so that the
server refuses the DELETE if something needs the object at that moment, and restores the label
if nothing is deleted.

The exit code is 3 if more objects than --max would be deleted, or would wait for their
deletion. With --wait and --when-unused, it is 6 if it is proved that an object does not go
until somebody acts, and 7 at the --timeout.`,
		Example: `  # Preview a deletion, and make it
  coppice preview delete deployment/web
  coppice delete deployment/web --confirm 779e1bf0e80d778147831e860dd5c1aa25829a4ed21abf6f0f3e35900c6a86b4

  # The same, until everything is gone
  coppice delete deployment/web --wait --timeout 5m --confirm 779e1bf0e80d778147831e860dd5c1aa25829a4ed21abf6f0f3e35900c6a86b4

  # Delete a CustomResourceDefinition as soon as it has no instances
  coppice delete crd/widgets.acme.io --when-unused --max 1 --timeout 1h

  # The same with a file, which can be reviewed
  coppice preview delete -f manifests -o json >preview.json
  coppice delete -f manifests --confirm-from preview.json`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if f.unused.isSet {
				return deleteWhenUnused(c, f, args, s)
			}
			return deleteConfirmed(c, f, args, s)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.confirm.digest, "confirm", "", "digest of the preview")
	c.Flags().StringVar(&f.confirm.file, "confirm-from", "", "file with the preview as JSON, instead of its digest")
	c.MarkFlagsMutuallyExclusive("confirm", "confirm-from")
	completeWith(c, "confirm")
	c.Flags().BoolVar(&f.end.wait, "wait", false, "wait until everything is gone, as coppice wait does")
	addTimeout(c, &f.end.timeout)
	f.unused.add(c)
	return c
}

// deleteFlags are the flags of coppice delete.
type deleteFlags struct {
	previewFlags

	confirm confirmFlags
	end     endFlags
	unused  unusedFlags
}

// endFlags are about the end of the deletion.
type endFlags struct {
	wait    bool
	timeout time.Duration
}

func (f endFlags) check() error {
	switch {
	case f.timeout < 0:
		return usageError{fmt.Errorf("--timeout %s is negative", f.timeout)}
	case f.timeout > 0 && !f.wait:
		return usageError{errors.New("--timeout is for --wait")}
	}
	return nil
}

// confirmFlags name the confirmed preview, by its digest or its file.
type confirmFlags struct{ digest, file string }

// preview returns the confirmed preview; with --confirm it has only the digest.
func (f confirmFlags) preview() (preview.Report, error) {
	switch {
	case f.digest != "":
		return preview.Report{Digest: f.digest}, nil
	case f.file == "":
		return preview.Report{}, usageError{errors.New("--confirm is missing: \"coppice preview delete\" with the same arguments prints it")}
	}
	text, err := os.ReadFile(f.file)
	if err != nil {
		return preview.Report{}, fmt.Errorf("--confirm-from: %w", err)
	}
	var confirmed preview.Report
	if err := json.Unmarshal(text, &confirmed); err != nil || confirmed.Digest == "" {
		return preview.Report{}, fmt.Errorf("--confirm-from: %s is not a preview: \"coppice preview delete -o json\" writes one", f.file)
	}
	return confirmed, nil
}

// printChanges lists the changes since the confirmed preview. A preview that is only a digest has no objects to
// compare.
func printChanges(w io.Writer, confirmed, now preview.Report) {
	if len(confirmed.Objects) == 0 {
		return
	}
	for _, change := range preview.Changes(confirmed, now) {
		terminal.Fprintf(w, "%s\n", change)
	}
}

// deletePreviewed deletes the objects that arguments and flags name, if a new preview equals the confirmed one, and
// returns that preview. After an error, objects whose lines it has printed are deleted.
func deletePreviewed(ctx context.Context, f *previewFlags, confirmed preview.Report, args []string, s Streams) (prediction, error) {
	f.address = ask.NoCollector // the versions of the deleted objects have to be read
	predicted, err := f.predict(ctx, args, s)
	if err != nil {
		return predicted, err
	}
	if predicted.report.Digest != confirmed.Digest {
		printChanges(s.Err, confirmed, predicted.report)
		return predicted, fmt.Errorf("nothing is deleted: the cluster has changed since the preview, the digest is %s now; preview the deletion again", predicted.report.Digest)
	}
	if err := f.allows(predicted.report); err != nil {
		return predicted, err
	}
	if err := f.keep(ctx, predicted.report, args, s); err != nil {
		return predicted, fmt.Errorf("nothing is deleted: %w", err)
	}
	config, err := f.cluster.config()
	if err != nil {
		return predicted, err
	}
	client, err := clientWithoutRepeats(config)
	if err != nil {
		return predicted, err
	}
	predicted.patience = f.patience
	for _, target := range predicted.targets {
		line, err := predicted.delete(ctx, client, target)
		if err != nil {
			return predicted, err
		}
		terminal.Fprintf(s.Out, "%s\n", line)
	}
	return predicted, nil
}

func deleteConfirmed(c *cobra.Command, f deleteFlags, args []string, s Streams) error {
	if err := errors.Join(f.end.check(), f.unused.check()); err != nil {
		return err
	}
	if err := f.check(c, args); err != nil {
		return err
	}
	confirmed, err := f.confirm.preview()
	if err != nil {
		return err
	}
	f.patience = restore.WhilePutOff(busyTimeout)
	predicted, err := deletePreviewed(c.Context(), &f.previewFlags, confirmed, args, s)
	if err != nil || !f.end.wait {
		return err
	}
	sources, err := f.cluster.sources("", nil)
	if err != nil {
		return err
	}
	return waitFor(c.Context(), sources, ask.Ending{Predicted: &predicted.report}, f.end.timeout, &waitPrinter{format: "text", s: s})
}

// delete deletes an object as previewed, and confirms that on a server that demands it.
func (p prediction) delete(ctx context.Context, client metadata.Interface, target *inventory.Object) (string, error) {
	line, err := p.deleteSeen(ctx, client, target)
	if closure, needs := protection.NeedsConfirmation(err); needs {
		return confirmSeen(ctx, client, target, p, closure)
	}
	return line, err
}

// confirmManager is the field manager of confirmations.
const confirmManager = "coppice-delete"

// confirmSeen confirms the deletion of an object on a server that demands that (R32), and makes it. The server's count must
// not exceed that of the preview which the user has seen.
func confirmSeen(ctx context.Context, client metadata.Interface, o *inventory.Object, predicted prediction, closure protection.Closure) (string, error) {
	name := fmt.Sprintf("%s/%s", o.Resource.GroupResource(), o.Name)
	if seen := predicted.report.CountDeleted(); closure.Objects > seen {
		return "", fmt.Errorf("%s is not deleted: the server counts %s, and the preview %d; preview the deletion again", name, english.Plural(closure.Objects, "object that would go", "objects that would go"), seen)
	}
	confirmation := protection.Confirmation{UID: types.UID(o.UID), Digest: closure.Digest, At: clock.RealClock{}.Now()}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.UID, "resourceVersion": o.ResourceVersion, "annotations": map[string]string{protection.Confirmed: confirmation.String()},
	}})
	if err != nil {
		return "", err
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s is not deleted: interrupted before its turn: %w", name, ctx.Err())
	}
	after := *o
	err = restore.Repeat(ctx, predicted.patience, func() error {
		writing, cancel := forWrite(ctx)
		defer cancel()
		confirmed, err := client.Resource(o.Resource.GroupVersionResource).Namespace(o.Namespace).Patch(writing, o.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: confirmManager})
		if err == nil {
			after.ResourceVersion = confirmed.ResourceVersion
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("%s is not deleted: confirm the deletion: %w", name, err)
	}
	return predicted.deleteSeen(ctx, client, &after)
}

// deleteSeen deletes an object if its version is still the one that was read, and returns a line about the result. It asks a
// server that puts off the deletion again, as long as the prediction has patience. An object that is gone already, or is being
// deleted, is no error: it may be a dependent of another one. A refusal is an error, whatever its code: webhooks choose their
// codes, also those of an object that is gone or has changed. The end of ctx prevents the DELETE, and does not cancel it.
func (p prediction) deleteSeen(ctx context.Context, client metadata.Interface, o *inventory.Object) (string, error) {
	name := fmt.Sprintf("%s/%s", o.Resource.GroupResource(), o.Name)
	uid := types.UID(o.UID)
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s is not deleted: interrupted before its turn: %w", name, ctx.Err())
	}
	objects := client.Resource(o.Resource.GroupVersionResource).Namespace(o.Namespace)
	err := restore.Repeat(ctx, p.patience, func() error {
		writing, cancel := forWrite(ctx)
		defer cancel()
		return objects.Delete(writing, o.Name, metav1.DeleteOptions{
			Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &o.ResourceVersion},
			PropagationPolicy: &p.policy,
		})
	})
	isMissing, isChanged := refusal.ServerAnswers(err, apierrors.IsNotFound), refusal.ServerAnswers(err, apierrors.IsConflict)
	switch {
	case err == nil:
		return name + " deleted", nil
	case isMissing, isChanged:
		reading, cancel := forWrite(ctx)
		defer cancel()
		now, failed := objects.Get(reading, o.Name, metav1.GetOptions{})
		if p.isGoneWithDefinition(reading, client, o, failed) {
			return name + " is gone already", nil
		}
		return lineOf(o, err, now, failed)
	case !restore.IsInDoubt(err) && refusal.ServerAnswers(err, apierrors.IsTooManyRequests):
		return "", fmt.Errorf("%s is not deleted, the server is busy: %w", name, err)
	}
	return "", fmt.Errorf("delete %s: %w", name, answerOf(err))
}

// lineOf returns the line about an object whose DELETE has found it missing or changed, or an error. now is the object as it
// was read after that, unless the read has failed.
func lineOf(o *inventory.Object, err error, now *metav1.PartialObjectMetadata, failed error) (string, error) {
	name := fmt.Sprintf("%s/%s", o.Resource.GroupResource(), o.Name)
	doubt, isDoubt := errors.AsType[*restore.DoubtError](err)
	// An object that has changed needs a new preview, and so does one that was replaced before the DELETE, but not one that an
	// earlier try of the DELETE has removed.
	mayBeReplaced := isDoubt || refusal.ServerAnswers(err, apierrors.IsNotFound)
	isThere := failed == nil && string(now.UID) == string(o.UID)
	switch {
	case isThere && now.DeletionTimestamp != nil:
		return name + " is being deleted already", nil
	case refusal.IsGone(failed, o.Name), failed == nil && !isThere && mayBeReplaced:
		return name + " is gone already", nil
	case failed != nil && !refusal.ServerAnswers(err, apierrors.IsConflict), failed != nil && isDoubt:
		return "", fmt.Errorf("delete %s: %w: %w; whether it is gone could not be read: %w; preview the deletion again", name, errUnanswered, err, failed)
	case isDoubt && now.ResourceVersion == o.ResourceVersion:
		return "", fmt.Errorf("delete %s: %w; preview the deletion again", name, answerOf(err))
	case isDoubt:
		err = doubt.Last // an earlier try cannot succeed any more: its precondition is another version
	}
	if refusal.ServerAnswers(err, apierrors.IsConflict) {
		return "", fmt.Errorf("%s has changed since it was read, and is not deleted: %w", name, err)
	}
	return "", fmt.Errorf("delete %s: the server answers that it does not exist, but it does: %w; preview the deletion again", name, err)
}
