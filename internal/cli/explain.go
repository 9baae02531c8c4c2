package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/gone"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/inventory/reader"
	"github.com/coppice-dev/coppice/internal/tools/lookup"
	"github.com/coppice-dev/coppice/internal/tools/terminal"
)

// explainInterval is the time after which --watch reads the cluster again.
const explainInterval = 5 * time.Second

// explainFlags are the flags of coppice explain.
type explainFlags struct {
	cluster    clusterFlags
	output     string
	uids       []string
	address    string
	auditLogs  []string
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

Of an object that is gone it says who deleted it, when and with which policy, or which
owner's deletion the garbage collector acted on, back to the request that began it: from
the records of a running collector (--address; a control plane of "coppice up" is asked
without it) and from audit logs of the API server (--audit-log).

It reads the cluster that kubectl would use, and changes nothing. A control plane of
"coppice up", or a collector at --address that accepts the token of the kubeconfig or of
--token, explains it from what it knows already: that takes milliseconds, however many
objects there are.`,
		Example: `  # Why a namespace does not go
  coppice explain namespace/shop

  # Everything that hangs, what has hung longest first
  coppice explain --all

  # Why a pod is gone, by what the API server has logged
  coppice explain pod/web-6d4b75cb6d-hx2kq --audit-log /var/log/kubernetes/audit.log

  # Follow a deletion, until the object is gone
  coppice explain widget/w --watch`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return runExplain(c, f, args, s) },
	}
	f.cluster.add(c)
	flags := c.Flags()
	flags.StringSliceVar(&f.uids, "uid", nil, "explain the object of this uid; may be repeated")
	flags.StringVar(&f.address, "address", "", orReadUsage)
	flags.StringSliceVar(&f.auditLogs, "audit-log", nil, "audit log of the API server, lines of audit.k8s.io/v1 as JSON; may be repeated, the oldest file first")
	flags.BoolVar(&f.all, "all", false, "explain all objects of the cluster that are being deleted, grouped by what they wait for")
	flags.BoolVarP(&f.watch, "watch", "w", false, fmt.Sprintf("look again every %s and print what has changed, until the objects are gone", explainInterval))
	flags.StringVarP(&f.output, "output", "o", "text", "format: text or json")
	completeWith(c, "output", "text", "json")
	return c
}

func runExplain(c *cobra.Command, f explainFlags, args []string, s Streams) error {
	switch {
	case f.output != "text" && f.output != "json":
		return usageError{fmt.Errorf("--output %q is neither text nor json", f.output)}
	case f.all && len(args)+len(f.uids) > 0:
		return usageError{errors.New("--all explains all objects: name none")}
	case !f.all && len(args)+len(f.uids) == 0:
		return usageError{errors.New("name an object as TYPE/NAME, or say --all")}
	}
	if told, err := explainFromAPI(c, &f, args, s); told {
		return err
	}
	ctx := c.Context()
	earlier, err := explainOnce(ctx, f, args, nil, s)
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
		now, err := explainOnce(ctx, f, args, earlier, s)
		if gone, ok := errors.AsType[*goneError](err); ok {
			terminal.Fprintf(s.Out, "%s is gone\n", gone.what)
			return nil
		}
		if err != nil {
			return err
		}
		earlier = now
	}
}

// look is the cluster as it was read once, and an outline of its explanation.
type look struct {
	inventory *inventory.Inventory
	outline   string
}

// explainOnce reads the cluster, and prints an explanation if its outline differs from the earlier one.
func explainOnce(ctx context.Context, f explainFlags, args []string, earlier *look, s Streams) (*look, error) {
	named := args
	if len(f.uids) > 0 {
		named = nil // they may be in any namespace
	}
	inv, err := f.cluster.readFor(ctx, s, named, reader.Options{Pods: true}, func(inv *inventory.Inventory) ([]ownership.UID, error) {
		uids, _, err := objectsToExplain(inv, &f, args)
		return uids, err
	})
	if err != nil {
		return nil, err
	}
	uids, missing, err := objectsToExplain(inv, &f, args)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 && earlier != nil {
		return nil, &goneError{nameOf(inv, missing[0])}
	}
	config, err := f.cluster.config()
	if err != nil {
		return nil, err
	}
	details, err := lookup.New(ctx, config)
	if err != nil {
		return nil, err
	}
	collector, err := f.findCollector(ctx, config)
	if err != nil {
		return nil, err
	}
	in := explain.Input{Inventory: inv, Details: details, Now: inv.Read}
	if in.Collector, err = collector.state(ctx); err != nil {
		return nil, err
	}
	if earlier != nil {
		in.Before = earlier.inventory
	} else {
		sayUnread(s.Err, inv.Unread)
	}
	e := explain.New(in)
	said := explainNamed(e, uids, inv.Read)
	if f.all {
		said = saidOfAll(e.All(), inv.Read)
	}
	if len(missing) > 0 {
		if err := said.addGone(ctx, inv, &f, collector, missing); err != nil {
			return nil, err
		}
	}
	if earlier == nil || earlier.outline != said.outline {
		err = said.print(s.Out, f.output)
	}
	return &look{inv, said.outline}, err
}

// said is the output of an explanation.
type said struct {
	items         []any // for JSON
	text, outline string
}

func explainNamed(e *explain.Explainer, uids []ownership.UID, now time.Time) said {
	one := said{items: make([]any, 0, len(uids))}
	for _, uid := range uids {
		x, _ := e.Explain(uid)
		one.items = append(one.items, x)
		one.text += x.Text(now)
		one.outline += x.Object.String() + explain.Outline(x.Waits)
	}
	return one
}

func saidOfAll(groups []explain.Group, now time.Time) said {
	one := said{items: make([]any, 0, len(groups)), text: explain.TextOf(groups, now)}
	for n := range groups {
		one.items = append(one.items, groups[n])
		one.outline += fmt.Sprintln(explain.Outline([]explain.Wait{groups[n].Leaf}), groups[n].Objects)
	}
	if len(groups) == 0 {
		one.text = "nothing is being deleted\n"
	}
	return one
}

func (o said) print(w io.Writer, format string) error {
	text := o.text
	if format == "json" {
		encoded, err := json.MarshalIndent(map[string]any{"items": o.items}, "", "  ")
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		text = string(encoded) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// goneError is the error for an object that does not exist.
type goneError struct{ what string }

func (e *goneError) Error() string {
	return e.what + " is not there, and nothing is known here of why it is gone: " +
		"the API server's audit log may tell (--audit-log), or the records of a running collector (--address)"
}

// objectsToExplain returns the objects that flags and arguments name, and the named objects that do not exist.
func objectsToExplain(inv *inventory.Inventory, f *explainFlags, args []string) (uids []ownership.UID, missing []gone.Target, err error) {
	for _, uid := range f.uids {
		if inv.Object(ownership.UID(uid)) != nil {
			uids = append(uids, ownership.UID(uid))
		} else {
			missing = append(missing, gone.Target{UID: ownership.UID(uid)})
		}
	}
	namespace, err := f.cluster.namespace()
	if err != nil {
		return nil, nil, err
	}
	selectors, err := inv.ParseSelectors(args, namespace)
	if err != nil {
		return nil, nil, usageError{err}
	}
	for _, selector := range selectors {
		here := selector
		here.Names = slices.DeleteFunc(slices.Clone(selector.Names), func(named string) bool {
			isGone := inv.Named(selector.Resource, selector.Namespace, named) == nil && inv.Complete(selector.Resource, selector.Namespace)
			if isGone {
				missing = append(missing, gone.Target{Kind: selector.Resource.OwnerKind(), Namespace: selector.Namespace, Name: named})
			}
			return isGone
		})
		if len(here.Names) < len(selector.Names) && len(here.Names) == 0 {
			continue // an empty list of names selects all objects
		}
		objects, err := inv.Select(here)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			uids = append(uids, o.UID)
		}
	}
	if len(args) > 0 && len(uids)+len(missing) == 0 {
		return nil, nil, &goneError{strings.Join(args, " ")}
	}
	return uids, missing, nil
}

// nameOf names a deleted object.
func nameOf(inv *inventory.Inventory, t gone.Target) string {
	if r := inv.Resource(t.Kind); r != nil && t.Name != "" {
		return r.GroupResource().String() + "/" + t.Name
	}
	return "the object with uid " + string(t.UID)
}
