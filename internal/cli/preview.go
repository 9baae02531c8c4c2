package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/inventory/reader"
	"github.com/coppice-dev/coppice/internal/preview"
)

func newPreview(s Streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "preview",
		Short: "Say what would happen, and do nothing",
		Long:  "Says what a deletion would do, in any cluster. Nothing is changed.",
		Example: `  # What goes with a Deployment
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
	cascade  string
	output   string
	most     int
	released bool
}

func previewFormats() []string { return []string{"text", "json", "yaml", "name"} }

func newPreviewDelete(s Streams) *cobra.Command {
	var f previewFlags
	c := &cobra.Command{
		Use:   "delete TYPE/NAME ... | TYPE NAME ...",
		Short: "Say what a deletion would do, in any cluster",
		Long: `Says what would be deleted with the named objects, in which order and by whom; what would
stay, and which other owner keeps it; and what would hang, and on what. Namespaces are
previewed with their contents, CustomResourceDefinitions with their instances.

It reads the metadata of all objects of the cluster that kubectl would use, and pods, and
changes nothing. Finalizers of others are taken to stay; with --assume-released their
controllers are taken to remove them. What the controllers of workloads create anew in
the meantime is not foretold.

The exit code is 3 if more objects than --max would be deleted or wait to be.`,
		Example: `  # What goes with a Deployment
  coppice preview delete deployment/web

  # What is in a namespace, and what may keep it from going away
  coppice preview delete namespace shop

  # In a pipeline: at most 20 objects may go
  coppice preview delete -n shop deployment/web --max 20 -o name`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return previewDelete(c, f, args, s) },
	}
	f.add(c)
	flags := c.Flags()
	flags.StringVarP(&f.output, "output", "o", "text", "format: "+strings.Join(previewFormats(), ", "))
	completeWith(c, "output", previewFormats()...)
	return c
}

// add adds the flags that a deletion and its preview have in common.
func (f *previewFlags) add(c *cobra.Command) {
	f.cluster.add(c)
	flags := c.Flags()
	flags.StringVar(&f.cascade, "cascade", "background", "propagation policy of the deletion: background, foreground, orphan")
	flags.IntVar(&f.most, "max", 0, "number of objects that may be deleted or wait to be; 0 for any")
	flags.BoolVar(&f.released, "assume-released", false, "take all finalizers to be removed by their controllers")
	completeWith(c, "cascade", "background", "foreground", "orphan")
}

func previewDelete(c *cobra.Command, f previewFlags, args []string, s Streams) error {
	foretold, err := foretell(c, &f, args, s)
	if err != nil {
		return err
	}
	text, err := encodePreview(foretold.report, f.output)
	if err != nil {
		return err
	}
	if _, err := s.Out.Write(text); err != nil {
		return fmt.Errorf("write the preview: %w", err)
	}
	return f.allows(foretold.report)
}

// allows returns an error if more would be deleted than may be.
func (f *previewFlags) allows(r preview.Report) error {
	if going := r.Going(); f.most > 0 && going > f.most {
		return foundError{fmt.Errorf("%d objects would be deleted, more than the %d of --max", going, f.most)}
	}
	return nil
}

// foretold is what a deletion would do.
type foretold struct {
	targets []*inventory.Object
	policy  metav1.DeletionPropagation
	report  preview.Report
}

// foretell reads the cluster, and predicts the deletion of what arguments name.
func foretell(c *cobra.Command, f *previewFlags, args []string, s Streams) (foretold, error) {
	policies := map[string]metav1.DeletionPropagation{
		"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
	}
	policy, known := policies[f.cascade]
	switch {
	case !known:
		return foretold{}, usageError{fmt.Errorf("--cascade is %q: it is background, foreground or orphan", f.cascade)}
	case len(args) == 0:
		return foretold{}, usageError{fmt.Errorf("name what would be deleted: TYPE/NAME; see %s --help", c.CommandPath())}
	}
	inv, err := f.cluster.read(c.Context(), s, reader.Options{Pods: true})
	if err != nil {
		return foretold{}, err
	}
	sayUnread(s.Err, inv.Unread)
	uids, err := uidsOf(inv, &f.cluster, args)
	if err != nil {
		return foretold{}, err
	}
	if len(uids) == 0 {
		return foretold{}, errors.New("no objects found")
	}
	result := foretold{policy: policy}
	requests := make([]preview.Request, 0, len(uids))
	for _, uid := range uids {
		requests = append(requests, preview.Request{UID: uid, Propagation: policy})
		result.targets = append(result.targets, inv.Object(uid))
	}
	options := preview.Options{Now: time.Now()} //nolint:forbidigo // the time at which a user asks
	if f.released {
		options.Released = func(*inventory.Object, string) bool { return true }
	}
	result.report = preview.New(inv).Predict(requests, options).Report(inv)
	return result, nil
}

// encodePreview formats a report.
func encodePreview(r preview.Report, format string) ([]byte, error) {
	switch format {
	case "text":
		return []byte(r.String()), nil
	case "json":
		text, err := json.MarshalIndent(r, "", "  ")
		return append(text, '\n'), err //nolint:wrapcheck // a report can always be encoded
	case "yaml":
		return yaml.Marshal(r) //nolint:wrapcheck // a report can always be encoded
	case "name":
		var text strings.Builder
		for _, o := range r.Objects {
			if o.Fate == preview.Deleted || o.Fate == preview.Waiting {
				fmt.Fprintf(&text, "%s/%s\n", strings.ToLower(o.Kind), o.Name)
			}
		}
		return []byte(text.String()), nil
	}
	return nil, usageError{fmt.Errorf("--output is %q: it is one of %s", format, strings.Join(previewFormats(), ", "))}
}
