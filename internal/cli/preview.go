package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/restore"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

func newPreview(s Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "preview",
		Short: "Predict the outcome of a command, and change nothing",
		Long:  "Predicts the outcome of a deletion, in any cluster, and changes nothing.",
		Example: `  # All objects that are deleted with a Deployment
  coppice preview delete deployment/web`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newPreviewDelete(s))
	return c
}

// previewFlags are the flags of coppice preview delete.
type previewFlags struct {
	cluster  clusterFlags
	targets  targetFlags
	cascade  string
	output   string
	most     int
	released bool
	order    string
	address  string // of a running collector
	asks     bool   // the server, by dry runs
	backup   backupFlags

	patience restore.Patience // of a deletion, with a server that puts it off
}

func previewFormats() []string { return []string{"text", "json", "yaml", "name", "tree", "dot", "svg"} }

func newPreviewDelete(s Streams) *cobra.Command {
	var f previewFlags
	c := &cobra.Command{
		Use:   "delete TYPE/NAME ... | TYPE NAME ... | TYPE -l LABELS | TYPE --all | -f FILE",
		Short: "Predict the outcome of a deletion, in any cluster",
		Long: `Lists the objects that would be deleted with the named ones, in order, and who deletes each;
the objects that would stay, and the owner that keeps each; and the objects that would hang,
with the reason. A namespace is previewed with its contents, a CustomResourceDefinition with
its instances.

The command reads the metadata of objects in the cluster that kubectl would use, and pods,
and changes nothing. For an object in a namespace it reads that namespace, and more if
necessary; for other objects it reads all namespaces. A control plane of "coppice up", or a
collector at --address, answers from memory instead, in milliseconds.

Finalizers of other controllers are assumed to stay. The preview names the controller that
serves each finalizer, whether it works, and whether the deletion removes the controller as
well. With --assume-released, these controllers are assumed to remove their finalizers. The
preview does not predict objects that controllers of workloads create in the meantime.

--namespace-deletion-order is the order in which the contents of a namespace are deleted, as
for "coppice collect". On a server of "coppice up" the default is its own order, on other
servers the order of kube-controller-manager.

With --backup, the command writes all objects that would be deleted to a file, whole and
encrypted, for "coppice undo". It exits with 1 if the backup is incomplete, and lists what is
missing: objects that have changed since the preview, and resources that it cannot read and
of which the deletion may remove objects. --backup-without names resources whose objects, with
what depends on them, the backup may lack in that case. The value "forbidden" stands for all
resources that you may not list; others are named one by one. Output, backup and "coppice undo"
list what may be missing.

Admission policies are evaluated as the API server evaluates them, with the object, the
user and the options of each DELETE. A webhook that fails closed and has no endpoints refuses;
of one that answers, the preview says that it decides.

With --ask-server, the command also asks the API server whether it accepts the requests, by a
dry run of each: with the same policy, and the version that was read as its precondition. That
needs the right to delete the objects, and changes nothing. The server asks its webhooks, too.

The exit code is 3 if more objects than --max would be deleted, or would wait for their
deletion; else 4 if the server refuses to delete one of the objects, and 5 if a webhook, or
a policy about facts that the preview does not know, decides whether it does. If you may not
list policies and webhooks, the preview says so, and the exit code does not count them.`,
		Example: `  # All objects that are deleted with a Deployment
  coppice preview delete deployment/web

  # The contents of a namespace, and the objects that may hold it
  coppice preview delete namespace shop

  # All objects of a release, as a tree
  coppice preview delete -f manifests -R -o tree
  coppice preview delete deployments,services,configmaps -l app=web -o svg >web.svg

  # Back up the objects, so that "coppice undo shop.backup" can restore them
  coppice preview delete namespace shop --backup shop.backup

  # Whether the server accepts the DELETE, without making it
  coppice preview delete deployment/web --ask-server

  # In a pipeline: fail if more than 20 objects would be deleted
  coppice preview delete -n shop deployment/web --max 20 -o name`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return previewDelete(c, f, args, s) },
	}
	f.add(c)
	f.addOwn(c)
	return c
}

// addOwn adds the flags that only a preview has.
func (f *previewFlags) addOwn(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "text", "format: "+strings.Join(previewFormats(), ", "))
	flags.StringVar(&f.address, "address", "", orReadUsage)
	flags.BoolVar(&f.asks, "ask-server", false, "also ask the server, by a dry run of each DELETE")
	completeWith(c, "output", previewFormats()...)
}

// add adds the common flags of a deletion and its preview.
func (f *previewFlags) add(c *cobra.Command) {
	f.cluster.add(c)
	f.targets.add(c)
	flags := c.Flags()
	flags.StringVar(&f.cascade, "cascade", "background", "propagation policy of the deletion: background, foreground, orphan")
	flags.IntVar(&f.most, "max", 0, "limit of objects that are deleted or wait for it; 0 for none")
	flags.BoolVar(&f.released, "assume-released", false, "assume that controllers remove all finalizers")
	flags.StringVar(&f.order, "namespace-deletion-order", "",
		"order in which the contents of a namespace are deleted (default: the order of the server)")
	completeWith(c, "cascade", "background", "foreground", "orphan")
	f.backup.add(c)
}

func previewDelete(c *cobra.Command, f previewFlags, args []string, s Streams) error {
	if !slices.Contains(previewFormats(), f.output) {
		return usageError{fmt.Errorf("--output %q is unknown: choose one of %s", f.output, strings.Join(previewFormats(), ", "))}
	}
	if err := f.check(c, args); err != nil {
		return err
	}
	predicted, err := f.predict(c.Context(), args, s)
	if err != nil {
		return err
	}
	if f.asks {
		if err := f.askServer(c, &predicted, s); err != nil {
			return err
		}
	}
	text, err := predicted.encode(f.output)
	if err != nil {
		return err
	}
	if _, err := s.Out.Write(text); err != nil {
		return fmt.Errorf("write the preview: %w", err)
	}
	if err := f.keep(c.Context(), predicted.report, args, s); err != nil {
		return err
	}
	if err := f.allows(predicted.report); err != nil {
		return err
	}
	return verdictOf(predicted.report)
}

// askServer adds the server's answers to dry runs to a prediction.
func (f *previewFlags) askServer(c *cobra.Command, predicted *prediction, s Streams) error {
	sources, err := f.cluster.sources(f.address, readingOn(s))
	if err != nil {
		return err
	}
	return sources.DryRun(c.Context(), &predicted.report, predicted.policy)
}

// verdictError is the error of a preview of a deletion that does not happen as a whole, for sure.
type verdictError struct {
	error
	code int
}

func (e verdictError) Unwrap() error { return e.error }
func (e verdictError) exitCode() int { return e.code }

// verdictOf returns an error if the server refuses a part of the deletion, or may do so.
func verdictOf(r preview.Report) error {
	switch {
	case r.Refused > 0:
		return verdictError{fmt.Errorf("objects whose deletion is refused: %d", r.Refused), ExitRefused}
	case r.Undecided > 0:
		return verdictError{fmt.Errorf("objects whose deletion may be refused: %d", r.Undecided), ExitUndecided}
	}
	return nil
}

// allows returns an error if the deletion would remove more objects than --max.
func (f *previewFlags) allows(r preview.Report) error {
	if count := r.CountDeleted(); f.most > 0 && count > f.most {
		return foundError{fmt.Errorf("%d objects would be deleted, more than the %d of --max", count, f.most)}
	}
	return nil
}

// prediction is the preview of a deletion.
type prediction struct {
	targets []*inventory.Object
	policy  metav1.DeletionPropagation
	report  preview.Report

	patience restore.Patience // with a server that puts off the deletion; nil to ask once
}

// check returns an error if flags and arguments do not name the objects of a deletion.
func (f *previewFlags) check(c *cobra.Command, args []string) error {
	if f.most < 0 {
		return usageError{fmt.Errorf("--max %d is negative", f.most)}
	}
	if err := f.backup.without.check("backup", f.backup.file); err != nil {
		return err
	}
	if err := f.targets.check(args, f.cluster.allNamespaces); err != nil {
		return usageError{fmt.Errorf("%w; see %s --help", err, c.CommandPath())}
	}
	return nil
}

// predict predicts the deletion of the objects that flags and arguments name.
func (f *previewFlags) predict(ctx context.Context, args []string, s Streams) (prediction, error) {
	policies := map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
	}
	policy, known := policies[f.cascade]
	if !known {
		return prediction{}, usageError{fmt.Errorf("--cascade %q is unknown: choose background, foreground or orphan", f.cascade)}
	}
	order, err := f.deletionOrder()
	if err != nil {
		return prediction{}, err
	}
	sources, err := f.cluster.sources(f.address, readingOn(s))
	if err != nil {
		return prediction{}, err
	}
	outcome, err := sources.Preview(ctx, ask.Deletion{
		Targets: &targets{&f.targets, &f.cluster, args}, Policy: policy, AssumeReleased: f.released, Order: order,
	})
	printUnread(s.Err, outcome.Unread)
	_, _ = io.WriteString(s.Err, outcome.Notes)
	return prediction{targets: outcome.Targets, policy: policy, report: outcome.Report}, err
}

// deletionOrder returns the order of the flag; nil without the flag.
func (f *previewFlags) deletionOrder() (*namespaces.Order, error) {
	if f.order == "" {
		return nil, nil // the order of the server
	}
	order, err := namespaces.NewOrder(namespaces.ParseStages(f.order))
	if err != nil {
		return nil, usageError{fmt.Errorf("--namespace-deletion-order: %w", err)}
	}
	return &order, nil
}

// encode formats a preview.
func (f *prediction) encode(format string) ([]byte, error) {
	switch format {
	case "json":
		text, err := json.MarshalIndent(f.report, "", "  ")
		return append(text, '\n'), err
	case "yaml":
		return yaml.Marshal(f.report)
	case "name":
		var text strings.Builder
		for _, o := range f.report.Objects {
			if o.Fate == preview.Deleted || o.Fate == preview.Waiting {
				terminal.Fprintf(&text, "%s/%s\n", strings.ToLower(o.Kind), o.Name)
			}
		}
		return []byte(text.String()), nil
	case "tree", "dot", "svg":
		return pictureOf(f.report).Encode(insight.Format(format))
	}
	return []byte(f.report.String()), nil
}
