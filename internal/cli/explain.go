package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/explain"
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
		Short: "Explain why objects still exist, and how to release them",
		Long: `Lists the causes that keep an object from being removed, and the causes of these, down to
the last one: a finalizer and its controller, dependents that block the deletion of their
owner, objects that remain in a namespace or of a custom resource, a lost node, an API group
or a webhook that does not answer.

Each cause is stuck (somebody has to act), slow (it ends by itself) or unknown (the facts do
not decide), and comes with the reasons and the safest next step. --all lists all objects
that are being deleted, grouped by cause; with -n only those of a namespace.

For an object that is gone, the command names the user who deleted it, the time and the
policy; or the owner whose deletion made the garbage collector delete it, back to the first
request. This comes from the records of a running collector (of "coppice up", or at
--address) and from audit logs of the API server (--audit-log).

The command reads the cluster that kubectl would use, and changes nothing. A control plane of
"coppice up" answers from memory, in milliseconds for any number of objects. So does a
collector at --address that accepts the token of the kubeconfig or of --token.`,
		Example: `  # Why a namespace is still there
  coppice explain namespace/shop

  # All objects that are being deleted, grouped by cause, the oldest first
  coppice explain --all

  # Why a pod is gone, according to the audit log of the API server
  coppice explain pod/web-6d4b75cb6d-hx2kq --audit-log /var/log/kubernetes/audit.log

  # Follow a deletion, until the object is gone
  coppice explain widget/w --watch`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return runExplain(c, f, args, s) },
	}
	f.cluster.add(c)
	flags := c.Flags()
	flags.StringSliceVar(&f.uids, "uid", nil, "explain the object with this uid; may be repeated")
	flags.StringVar(&f.address, "address", "", orReadUsage)
	flags.StringSliceVar(&f.auditLogs, "audit-log", nil, "audit log of the API server (audit.k8s.io/v1 in JSON lines); may be repeated, the oldest file first")
	flags.BoolVar(&f.all, "all", false, "explain all objects of the cluster that are being deleted, grouped by cause")
	flags.BoolVarP(&f.watch, "watch", "w", false, fmt.Sprintf("check again every %s and print changes, until the objects are gone", explainInterval))
	flags.StringVarP(&f.output, "output", "o", "text", "format: text or json")
	completeWith(c, "output", "text", "json")
	return c
}

// in returns the namespace to which --namespace confines --all.
func (f *explainFlags) in() string {
	if !f.all {
		return ""
	}
	return f.cluster.confined()
}

func runExplain(c *cobra.Command, f explainFlags, args []string, s Streams) error {
	switch {
	case f.output != "text" && f.output != "json":
		return usageError{fmt.Errorf("--output %q is neither text nor json", f.output)}
	case f.all && len(args)+len(f.uids) > 0:
		return usageError{errors.New("--all explains all objects: leave out the names")}
	case !f.all && len(args)+len(f.uids) == 0:
		return usageError{errors.New("name an object as TYPE/NAME, or use --all")}
	}
	sources, err := f.cluster.sources(f.address, readingOn(s))
	if err != nil {
		return err
	}
	e := &explaining{explain: sources.Explain, format: f.output, s: s, question: ask.Existence{
		Objects: ask.Objects{Args: args, UIDs: f.uids}, All: f.all, In: f.in(), AuditLogs: f.auditLogs, Watch: f.watch,
	}}
	if !f.watch {
		_, err := e.once(c.Context())
		return err
	}
	ticker := time.NewTicker(explainInterval)
	defer ticker.Stop()
	return e.watch(c.Context(), ticker.C)
}

// explaining prints explanations: one, or with --watch one after each change.
type explaining struct {
	explain  func(context.Context, ask.Existence) (ask.Explanations, error)
	question ask.Existence
	format   string
	s        Streams

	outline string   // of the last explanation
	gone    []string // the objects that are gone by now
}

// watch prints an explanation at once and at each tick, until all named objects are gone.
func (e *explaining) watch(ctx context.Context, ticks <-chan time.Time) error {
	for {
		remaining, err := e.once(ctx)
		if err != nil || remaining == 0 && !e.question.All {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
	}
}

// once prints an explanation, unless its outline equals the last outline, and returns the number of explained objects
// that exist.
func (e *explaining) once(ctx context.Context) (remaining int, err error) {
	answer, err := e.explain(ctx, e.question)
	isFirst := e.question.Before == nil
	if isFirst {
		printUnread(e.s.Err, answer.Unread)
	}
	if missing, ok := errors.AsType[*ask.GoneError](err); ok && !isFirst {
		answer.Gone, err = []string{missing.Object}, nil
	}
	if err != nil {
		return 0, err
	}
	if !isFirst { // the first answer explains them
		e.sayGone(answer.Gone)
	}
	e.gone = answer.Gone
	result := explainedGroups(answer.Groups, answer.Now)
	if !e.question.All {
		result = explainedObjects(answer.Objects, answer.Now)
	}
	for n := range answer.Deleted {
		result.items = append(result.items, answer.Deleted[n])
		result.text += answer.Deleted[n].Text(answer.Now)
	}
	if isFirst || e.outline != result.outline {
		err = result.print(e.s.Out, e.format)
	}
	e.question.Before, e.outline = answer.Inventory, result.outline
	return len(answer.Objects), err
}

// sayGone names the objects that are gone since the last explanation. Programs get an explanation without them.
func (e *explaining) sayGone(gone []string) {
	for _, name := range gone {
		if e.format == "text" && !slices.Contains(e.gone, name) {
			terminal.Fprintf(e.s.Out, "%s is gone\n", name)
		}
	}
}

// explained is the output of an explanation.
type explained struct {
	items         []any // for JSON
	text, outline string
}

func explainedObjects(objects []explain.Explanation, now time.Time) explained {
	result := explained{items: make([]any, 0, len(objects))}
	for n := range objects {
		x := &objects[n]
		result.items = append(result.items, x)
		result.text += x.Text(now)
		result.outline += x.Object.String() + explain.Outline(x.Waits)
	}
	return result
}

func explainedGroups(groups []explain.Group, now time.Time) explained {
	result := explained{items: make([]any, 0, len(groups)), text: explain.TextOf(groups, now)}
	for n := range groups {
		result.items = append(result.items, groups[n])
		result.outline += fmt.Sprintln(explain.Outline([]explain.Wait{groups[n].Leaf}), groups[n].Objects)
	}
	if len(groups) == 0 {
		result.text = "nothing is being deleted\n"
	}
	return result
}

func (e explained) print(w io.Writer, format string) error {
	text := e.text
	if format == "json" {
		encoded, err := json.MarshalIndent(map[string]any{"items": e.items}, "", "  ")
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		text = string(encoded) + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}
