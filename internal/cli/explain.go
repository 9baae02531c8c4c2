package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/explain"
	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/inventory/reader"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// explainInterval is how often --watch looks again.
const explainInterval = 5 * time.Second

// explainFlags are the flags of coppice explain.
type explainFlags struct {
	cluster    clusterFlags
	output     string
	all, watch bool
}

func newExplain(s Streams) *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain [TYPE/NAME ... | TYPE [NAME ...]]",
		Short: "Say why objects are still there, and what to do about it",
		Long: `Says what an object waits for before it is gone, and what that waits for in turn, down
to the last: a finalizer and the controller that serves it, dependents that block the
deletion of their owner, what is left in a namespace or of a custom resource, a lost node,
a group of the API or a webhook that does not answer.

Each is stuck (it ends when somebody does something), slow (it ends by itself) or
unknown (what could be seen does not tell), with the reasons and the safest next step.
With --all it lists everything that is being deleted, by what it waits for.

It reads the cluster that kubectl would use, and changes nothing.`,
		Example: `  # Why a namespace does not go
  coppice explain namespace/shop

  # Everything that hangs, what has hung longest first
  coppice explain --all

  # Follow a deletion, until the object is gone
  coppice explain widget/w --watch`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return runExplain(c.Context(), f, args, s) },
	}
	f.cluster.add(c)
	flags := c.Flags()
	flags.BoolVar(&f.all, "all", false, "explain all objects of the cluster that are being deleted, grouped by what they wait for")
	flags.BoolVarP(&f.watch, "watch", "w", false, fmt.Sprintf("look again every %s and print what has changed, until the objects are gone", explainInterval))
	flags.StringVarP(&f.output, "output", "o", "text", "format: text or json")
	completeWith(c, "output", "text", "json")
	return c
}

func runExplain(ctx context.Context, f explainFlags, args []string, s Streams) error {
	switch {
	case f.output != "text" && f.output != "json":
		return usageError{fmt.Errorf("--output %q is neither text nor json", f.output)}
	case f.all && len(args) > 0:
		return usageError{errors.New("--all explains all objects: name none")}
	case !f.all && len(args) == 0:
		return usageError{errors.New("name an object as TYPE/NAME, or say --all")}
	}
	before, last, err := explainOnce(ctx, f, args, nil, s)
	if err != nil || !f.watch {
		return err
	}
	ticker := time.NewTicker(explainInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, text, err := explainOnce(ctx, f, args, &look{before, last}, s)
		if gone, ok := errors.AsType[*goneError](err); ok {
			fmt.Fprintf(s.Out, "%s is gone\n", gone.what)
			return nil
		}
		if err != nil {
			return err
		}
		before, last = now, text
	}
}

// look is an earlier look at the cluster, and what was said then.
type look struct {
	inventory *inventory.Inventory
	text      string
}

// explainOnce reads the cluster, explains, and prints what is new since an earlier look.
func explainOnce(ctx context.Context, f explainFlags, args []string, earlier *look, s Streams) (*inventory.Inventory, string, error) {
	inv, err := f.cluster.read(ctx, s, reader.Options{Pods: true})
	if err != nil {
		return nil, "", err
	}
	uids, err := objectsToExplain(inv, &f.cluster, args)
	if err != nil {
		return nil, "", err
	}
	config, err := f.cluster.config()
	if err != nil {
		return nil, "", err
	}
	details, err := newDetails(ctx, config)
	if err != nil {
		return nil, "", err
	}
	in := explain.Input{Inventory: inv, Details: details, Now: inv.Read}
	if earlier != nil {
		in.Before = earlier.inventory
	}
	text, err := explanation(explain.New(in), uids, f, inv.Read)
	if err != nil {
		return nil, "", err
	}
	if earlier == nil {
		sayUnread(s.Err, inv.Unread)
	}
	if earlier == nil || earlier.text != text {
		if _, err := fmt.Fprint(s.Out, text); err != nil {
			return nil, "", fmt.Errorf("print: %w", err)
		}
	}
	return inv, text, nil
}

// explanation returns what is said about the objects, or about all.
func explanation(e *explain.Explainer, uids []ownership.UID, f explainFlags, now time.Time) (string, error) {
	var text strings.Builder
	var items any
	if f.all {
		groups := e.All()
		items = groups
		text.WriteString(explain.TextOf(groups, now))
		if len(groups) == 0 {
			text.WriteString("nothing is being deleted\n")
		}
	} else {
		explanations := make([]explain.Explanation, 0, len(uids))
		for _, uid := range uids {
			x, _ := e.Explain(uid)
			explanations = append(explanations, x)
			text.WriteString(x.Text(now))
		}
		items = explanations
	}
	if f.output == "text" {
		return text.String(), nil
	}
	encoded, err := json.MarshalIndent(map[string]any{"items": items}, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(encoded) + "\n", nil
}

// goneError is the error for an object that is not there.
type goneError struct{ what string }

func (e *goneError) Error() string {
	return e.what + " is not there, and nothing is known here of why it is gone: " +
		"the API server's audit log, or the records of a running collector, may tell"
}

// objectsToExplain returns the objects that arguments name.
func objectsToExplain(inv *inventory.Inventory, f *clusterFlags, args []string) ([]ownership.UID, error) {
	namespace, err := f.namespace()
	if err != nil {
		return nil, err
	}
	selectors, err := inv.ParseSelectors(args, namespace)
	if err != nil {
		return nil, usageError{err}
	}
	for _, selector := range selectors {
		for _, named := range selector.Names {
			if inv.Named(selector.Resource, selector.Namespace, named) == nil && inv.Complete(selector.Resource, selector.Namespace) {
				return nil, &goneError{fmt.Sprintf("%s/%s", selector.Resource.GroupResource(), named)}
			}
		}
	}
	uids, err := uidsOf(inv, f, args)
	if err != nil {
		return nil, err
	}
	if len(args) > 0 && len(uids) == 0 {
		return nil, &goneError{strings.Join(args, " ")}
	}
	return uids, nil
}
