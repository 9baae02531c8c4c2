package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// graphTimeout bounds the request for a graph. It is long because a graph may have very many objects.
const graphTimeout = 60 * time.Second

// graphFlags are the flags of coppice graph.
type graphFlags struct {
	cluster clusterFlags
	uids    []string
	output  string
	address string // of a running collector

	up, down, component bool
}

func newGraph(s Streams) *cobra.Command {
	var f graphFlags
	c := &cobra.Command{
		Use:   "graph [TYPE/NAME ... | TYPE [NAME ...]]",
		Short: "Show who owns whom, in any cluster",
		Long: `Prints owners and their dependents, with invalid owner references and deletions in progress.
Without arguments, the graph has all objects that own or are owned. With named objects, it
has all objects that are connected with them; with --up only their owners, with --down only
their dependents, direct and indirect.

The command reads the metadata of all objects in the cluster that kubectl would use, and
changes nothing. A control plane of "coppice up", or a "coppice collect" at --address,
answers from memory instead, for the objects that you may list.`,
		Example: `  # The dependents of a Deployment
  coppice graph deployment/web --down

  # The owners of a pod
  coppice graph pod/web-6d4b75cb6d-hx2kq --up

  # All owners and dependents of a Deployment, as a picture
  coppice graph deployment/web -o svg >web.svg

  # The whole graph of a running collector, drawn by Graphviz
  coppice graph --address http://` + diagnosticsAddress + ` -o dot | dot -Tpdf >graph.pdf`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(c *cobra.Command, args []string) error { return graph(c, f, args, s) },
	}
	f.cluster.add(c)
	flags := c.Flags()
	flags.StringSliceVar(&f.uids, "uid", nil, "show the objects that are connected with the object of this uid; may be repeated")
	flags.StringVarP(&f.output, "output", "o", string(insight.Tree), "format of the graph: "+strings.Join(insight.Formats(), ", "))
	flags.StringVar(&f.output, "format", string(insight.Tree), "the former name of --output")
	_ = flags.MarkHidden("format") // the only error is that there is no such flag
	flags.StringVar(&f.address, "address", "", orReadUsage)
	flags.BoolVar(&f.up, "up", false, "show only the named objects and their direct and indirect owners")
	flags.BoolVar(&f.down, "down", false, "show only the named objects and their direct and indirect dependents")
	flags.BoolVar(&f.component, "component", false, "show all objects that are connected with the named ones (the default)")
	c.MarkFlagsMutuallyExclusive("up", "down", "component")
	completeWith(c, "output", insight.Formats()...)
	return c
}

func graph(c *cobra.Command, f graphFlags, args []string, s Streams) error {
	format, err := insight.ParseFormat(f.output)
	if err != nil {
		return usageError{fmt.Errorf("--output: %w", err)}
	}
	named := len(args)+len(f.uids) > 0
	switch {
	case (f.up || f.down || f.component) && !named:
		return usageError{errors.New("--up, --down and --component need an object to begin at: TYPE/NAME or --uid")}
	case f.address == "" || f.address == noCollector:
		return graphOfServer(c.Context(), f, args, format, s)
	case len(args) > 0 || f.up || f.down || strings.HasPrefix(f.address, "https:"):
		client, err := (&collectorFlags{cluster: f.cluster, address: f.address}).client()
		if err != nil {
			return err
		}
		return client.graph(c.Context(), f, args, format, s)
	default:
		return graphOfCollector(c.Context(), f, format, s.Out)
	}
}

// graphOfServer prints the graph of a running collector, if one answers, or else a graph of the cluster that it
// reads.
func graphOfServer(ctx context.Context, f graphFlags, args []string, format insight.Format, s Streams) error {
	client, err := (&collectorFlags{cluster: f.cluster, address: f.address}).collector(ctx)
	if err == nil && client != nil && client.graph(ctx, f, args, format, s) == nil {
		return nil
	}
	return graphOfCluster(ctx, f, args, format, s)
}

// graphOfCluster reads the cluster and prints a graph of it.
func graphOfCluster(ctx context.Context, f graphFlags, args []string, format insight.Format, s Streams) error {
	inv, err := f.cluster.read(ctx, s, reader.Options{})
	if err != nil {
		return err
	}
	printUnread(s.Err, inv.Unread)
	uids, err := uidsOf(inv, &f.cluster, args)
	if err != nil {
		return err
	}
	for _, uid := range f.uids {
		uids = append(uids, ownership.UID(uid))
	}
	if len(args)+len(f.uids) > 0 && len(uids) == 0 {
		return errors.New("no objects found")
	}
	g := inv.Graph()
	view := func(read func(*ownership.Graph)) { read(g) }
	var picture insight.Graph
	switch {
	case f.up:
		picture = insight.Owners(view, uids...)
	case f.down:
		picture = insight.Dependents(view, uids...)
	case len(uids) > 0:
		picture = insight.Component(view, uids...)
	default:
		picture = insight.Whole(view)
	}
	text, err := picture.Encode(format)
	if err != nil {
		return fmt.Errorf("draw the graph: %w", err)
	}
	_, err = s.Out.Write(text)
	return err
}

// uidsOf returns the objects that arguments name.
func uidsOf(inv *inventory.Inventory, f *clusterFlags, args []string) ([]ownership.UID, error) {
	namespace, err := f.namespace()
	if err != nil {
		return nil, err
	}
	selectors, err := inv.ParseSelectors(args, namespace)
	if err != nil {
		return nil, usageError{err}
	}
	var uids []ownership.UID
	for _, selector := range selectors {
		objects, err := inv.Select(selector)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			uids = append(uids, o.UID)
		}
	}
	return uids, nil
}

// graph prints a running collector's graph of the named objects, or of all objects. It lacks objects that the user
// may not list.
func (c *collectorClient) graph(ctx context.Context, f graphFlags, args []string, format insight.Format, s Streams) error {
	path := api.Component
	switch {
	case f.up:
		path = api.Owners
	case f.down:
		path = api.Dependents
	}
	query, err := c.query(args)
	if err != nil {
		return err
	}
	query["uid"] = f.uids
	ctx, cancel := context.WithTimeout(ctx, graphTimeout)
	defer cancel()
	var answer api.Graph
	if err := c.get(ctx, path, query, &answer); err != nil {
		return err
	}
	printLeftOut(s.Err, answer.Unread)
	text, err := answer.Encode(format)
	if err != nil {
		return fmt.Errorf("draw the graph: %w", err)
	}
	_, err = s.Out.Write(text)
	return err
}

// graphOfCollector prints the graph from the diagnostics of a running collector: they need no token, and identify
// objects by UID.
func graphOfCollector(ctx context.Context, f graphFlags, format insight.Format, out io.Writer) error {
	server, err := url.Parse(f.address)
	if err != nil || server.Host == "" {
		return usageError{fmt.Errorf("--address %q is not a URL such as http://%s", f.address, diagnosticsAddress)}
	}
	path := server.JoinPath(web.Graph)
	path.RawQuery = url.Values{"format": {string(format)}, "uid": f.uids}.Encode()

	ctx, cancel := context.WithTimeout(ctx, graphTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path.String(), http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", f.address, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("no collector answers at %s: %w; name its --bind-address with --address", f.address, causeOf(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 1000))
		return errors.New(f.address + ": " + strings.TrimSpace(string(why)))
	}
	if _, err := io.Copy(out, response.Body); err != nil {
		return fmt.Errorf("read the graph from %s: %w", f.address, err)
	}
	return nil
}
