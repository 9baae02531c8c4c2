package ask

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// graphTimeout bounds the request for a graph. It is long because a graph may have very many objects.
const graphTimeout = 60 * time.Second

// Part is the part of the ownership graph around the named objects.
type Part string

// The parts, as the paths at which a collector serves them.
const (
	Component  Part = api.Component // all connected objects; without names, the whole graph
	Owners     Part = api.Owners
	Dependents Part = api.Dependents
)

// Ownership asks who owns whom.
type Ownership struct {
	Objects Objects
	Part    Part
}

// Graph returns the ownership graph of the named objects, or of all objects.
//
// An error of a collector is the answer if the user has named the collector. Otherwise the cluster is read.
func (s *Sources) Graph(ctx context.Context, q Ownership) (api.Graph, error) {
	if s.isNamed() && q.isServedWithoutToken() && !strings.HasPrefix(s.Address, "https:") {
		return s.graphOfDiagnostics(ctx, q.Objects.UIDs)
	}
	c, err := s.findCollector(ctx)
	if err == nil && c != nil {
		var graph api.Graph
		if graph, err = c.graph(ctx, q); err == nil {
			return graph, nil
		}
	}
	if s.isNamed() {
		return api.Graph{}, err
	}
	return s.graphOfCluster(ctx, q)
}

// isServedWithoutToken reports whether the diagnostics of a collector serve the graph: they know objects by UID only.
func (q Ownership) isServedWithoutToken() bool {
	return q.Part == Component && len(q.Objects.Args) == 0
}

// graph returns the graph of a collector. It lacks objects that the user may not list.
func (c *Collector) graph(ctx context.Context, q Ownership) (graph api.Graph, err error) {
	query, err := c.query(q.Objects)
	if err != nil {
		return graph, err
	}
	ctx, cancel := context.WithTimeout(ctx, graphTimeout)
	defer cancel()
	err = c.Get(ctx, string(q.Part), query, &graph)
	return graph, err
}

// graphOfDiagnostics returns the graph from the diagnostics of a collector, which need no token.
func (s *Sources) graphOfDiagnostics(ctx context.Context, uids []string) (graph api.Graph, err error) {
	target, err := parseAddress(s.Address)
	if err != nil {
		return graph, err
	}
	target = target.JoinPath(web.Graph)
	target.RawQuery = url.Values{"format": {string(insight.JSON)}, "uid": uids}.Encode()
	ctx, cancel := context.WithTimeout(ctx, graphTimeout)
	defer cancel()
	text, err := getFrom(ctx, target)
	if refused, ok := errors.AsType[refusedError](err); ok {
		return graph, fmt.Errorf("%s: %w", s.Address, refused)
	}
	if err != nil {
		return graph, fmt.Errorf("no collector answers at %s: %w; name its --bind-address with --address", s.Address, err)
	}
	if err := json.Unmarshal(text, &graph); err != nil {
		return graph, fmt.Errorf("read the graph from %s: %w", s.Address, err)
	}
	return graph, nil
}

// graphOfCluster reads the metadata of all objects.
func (s *Sources) graphOfCluster(ctx context.Context, q Ownership) (graph api.Graph, err error) {
	inv, err := s.read(ctx, reader.Options{})
	if err != nil {
		return graph, err
	}
	graph.Unread = inventory.TextsOf(inv.Unread)
	uids, err := Named(inv, q.Objects.Args, s.Namespace)
	if err != nil {
		return graph, err
	}
	for _, uid := range q.Objects.UIDs {
		uids = append(uids, ownership.UID(uid))
	}
	if !q.Objects.IsEmpty() && len(uids) == 0 {
		return graph, errNoObjects
	}
	g := inv.Graph()
	view := func(read func(*ownership.Graph)) { read(g) }
	switch {
	case q.Part == Owners:
		graph.Graph = insight.Owners(view, uids...)
	case q.Part == Dependents:
		graph.Graph = insight.Dependents(view, uids...)
	case len(uids) > 0:
		graph.Graph = insight.Component(view, uids...)
	default:
		graph.Graph = insight.Whole(view)
	}
	return graph, nil
}
