package ask

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// mostUIDs is the largest number of objects that a request may name: about as many as fit into its header.
const mostUIDs = 20_000

// Deletion asks for the outcome of a deletion.
type Deletion struct {
	Targets Targets
	Policy  metav1.DeletionPropagation
	// AssumeReleased assumes that controllers remove all finalizers.
	AssumeReleased bool
	// Order is the order in which the contents of namespaces are deleted; nil for the order of the server.
	Order *namespaces.Order
}

// Targets are the objects that a deletion requests. Notes are for the user, about objects that do not exist.
type Targets interface {
	// Args returns TYPE/NAME …, TYPE NAME … or TYPE; nothing if manifests name the objects.
	Args() []string
	// AreNamed reports whether the arguments name all objects: then a collector can find them.
	AreNamed() bool
	// Choose returns the objects of an inventory.
	Choose(inv *inventory.Inventory, notes io.Writer) ([]ownership.UID, error)
	// Find reads the UIDs of the objects.
	Find(notes io.Writer) ([]string, error)
}

// Outcome is the answer to Deletion.
type Outcome struct {
	Report preview.Report
	// Targets are the requested objects; none in an answer of a collector.
	Targets []*inventory.Object
	// Notes are for the user, about requested objects that do not exist: one line each.
	Notes string
	// Unread lists the resources whose objects may be missing.
	Unread []string
}

// Preview predicts the outcome of a deletion. The answer has Notes and Unread even with an error.
//
// An error of a collector is the answer if the user has named the collector. Otherwise the cluster is read.
func (s *Sources) Preview(ctx context.Context, q Deletion) (Outcome, error) {
	outcome, err := s.previewFromCollector(ctx, q)
	if s.isNamed() || err == nil && outcome.Report.Digest != "" {
		return outcome, err
	}
	return s.previewFromCluster(ctx, q)
}

// previewFromCollector asks the collector. Without one, the outcome is empty.
func (s *Sources) previewFromCollector(ctx context.Context, q Deletion) (Outcome, error) {
	c, err := s.findCollector(ctx)
	if err != nil || c == nil {
		return Outcome{}, err
	}
	if q.Order != nil {
		return Outcome{}, InvalidError{errors.New("--namespace-deletion-order: the collector at --address uses its own order: leave out one of the two flags")}
	}
	var outcome Outcome
	var notes strings.Builder
	query, err := c.queryTargets(q.Targets, &notes)
	outcome.Notes = notes.String()
	if err != nil {
		return outcome, err
	}
	query.Set("propagationPolicy", string(q.Policy))
	query.Set("assumeReleased", fmt.Sprint(q.AssumeReleased))
	err = c.Get(ctx, api.Preview, query, &outcome.Report)
	outcome.Unread = outcome.Report.Unread
	return outcome, err
}

// queryTargets names the objects that would be deleted. The collector resolves names; manifests, labels and --all are
// resolved here.
func (c *Collector) queryTargets(targets Targets, notes io.Writer) (url.Values, error) {
	if targets.AreNamed() {
		return c.query(Objects{Args: targets.Args()})
	}
	uids, err := targets.Find(notes)
	switch {
	case err != nil:
		return nil, err
	case len(uids) == 0:
		return nil, errNoObjects
	case len(uids) > mostUIDs:
		return nil, fmt.Errorf("a collector answers for at most %d objects at once, not %d: --address %s reads the whole cluster instead", mostUIDs, len(uids), NoCollector)
	}
	return url.Values{"uid": uids}, nil
}

var errNoObjects = errors.New("no objects found")

// previewFromCluster reads the cluster.
func (s *Sources) previewFromCluster(ctx context.Context, q Deletion) (outcome Outcome, err error) {
	n, err := s.neighborhood(ctx, q.Targets.Args(), q.Targets.Choose)
	if n != nil {
		outcome.Notes, outcome.Unread = n.notes, inventory.TextsOf(n.Inventory.Unread)
	}
	if err != nil {
		return outcome, err
	}
	if len(n.uids) == 0 {
		return outcome, errNoObjects
	}
	if n.Order, err = s.deletionOrder(ctx, q.Order); err != nil {
		return outcome, err
	}
	n.Now = s.Now()
	prediction := n.Preview(ctx, preview.RequestsOf(n.uids, q.Policy), q.AssumeReleased)
	if ctx.Err() != nil {
		return outcome, ctx.Err() // each fact that was still to be read is unknown
	}
	outcome.Report, outcome.Unread = prediction.Report(n.Inventory), inventory.TextsOf(prediction.Unread)
	for _, uid := range n.uids {
		outcome.Targets = append(outcome.Targets, n.Inventory.Object(uid))
	}
	return outcome, nil
}

// deletionOrder returns the given order. Without one, it returns the order of the cluster's namespace controller.
func (s *Sources) deletionOrder(ctx context.Context, given *namespaces.Order) (namespaces.Order, error) {
	if given != nil {
		return *given, nil
	}
	server, err := s.apiServer()
	if err != nil {
		return namespaces.Order{}, err
	}
	if server.IsCoppice(ctx) {
		return namespaces.Order{}, nil
	}
	return namespaces.UpstreamOrder(), nil
}
