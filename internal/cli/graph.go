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

	"github.com/coppice-dev/coppice/internal/insight"
	"github.com/coppice-dev/coppice/internal/web"
)

// graphTimeout bounds the request for a graph. It is long because there may be very many objects.
const graphTimeout = 60 * time.Second

// graphFlags are the flags of coppice graph.
type graphFlags struct {
	uids    []string
	format  string
	address string
}

func newGraph(s Streams) *cobra.Command {
	var f graphFlags
	c := &cobra.Command{
		Use:   "graph",
		Short: "Show who owns whom, as a running collector sees it",
		Long: `Prints the ownership graph of a running "coppice collect": everything that owns or is
owned, or everything that is connected with the objects that --uid names. A control plane
of "coppice up" serves its graph to administrators:

  coppice kubectl get --raw ` + web.Graph,
		Example: `  # Everything that is connected with a Deployment, as a drawing
  coppice graph --uid $(kubectl get deployment web -o jsonpath='{.metadata.uid}') --format svg >web.svg

  # All of it, drawn by Graphviz
  coppice graph | dot -Tpdf >graph.pdf`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return graph(c.Context(), f, s.Out) },
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.uids, "uid", nil, "show only what is connected with the object of this uid; may be repeated")
	flags.StringVar(&f.format, "format", string(insight.DOT), "format of the graph: dot, json or svg")
	flags.StringVar(&f.address, "address", "http://"+diagnosticsAddress, "URL of the collector's diagnostics, which are on its --bind-address")
	completeWith(c, "format", string(insight.DOT), string(insight.JSON), string(insight.SVG))
	return c
}

func graph(ctx context.Context, f graphFlags, out io.Writer) error {
	format, err := insight.ParseFormat(f.format)
	if err != nil {
		return usageError{fmt.Errorf("--%w", err)}
	}
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
