package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

// Of returns the Source of controllers. The judge evaluates policies and webhooks for previews; with nil, those that match
// count as undecided. Limits are the deletions that the server needs no confirmation for (R32).
func Of(c process.Controllers, judge preview.Judge, limits protection.Limits) Source {
	return source{c, judge, limits}
}

// source implements Source.
type source struct {
	process.Controllers

	judge  preview.Judge
	limits protection.Limits
}

// Limits implements Source.
func (s source) Limits() protection.Limits { return s.limits }

// View implements Source.
func (s source) View(read func(g *ownership.Graph)) {
	if s.Collector == nil {
		read(ownership.New())
		return
	}
	s.Collector.Parts().Engine.View(read)
}

// Resources implements Source.
func (s source) Resources() []*inventory.Resource {
	if s.Collector == nil {
		return nil
	}
	served := s.Collector.Parts().Feed.Resources()
	all := make([]*inventory.Resource, 0, len(served))
	for i := range served {
		all = append(all, inventoryResourceOf(&served[i]))
	}
	return all
}

// Living implements Source.
func (s source) Living(ctx context.Context, namespace string) (ownership.UID, error) {
	if s.Collector == nil {
		return "", process.ErrNoCollector
	}
	return s.Collector.Parts().Engine.Living(ctx, namespace)
}

func inventoryResourceOf(r *feed.Resource) *inventory.Resource {
	return &inventory.Resource{
		GroupVersionResource: r.GroupVersionResource, Kind: r.Kind.Kind, Namespaced: r.Namespaced,
		Singular: strings.ToLower(r.Kind.Kind), ShortNames: r.ShortNames, Versions: r.Versions, Deletable: r.Watched,
	}
}

// Neighborhood implements Source.
func (s source) Neighborhood(ctx context.Context, caller *rest.Config, uids []ownership.UID) (*answer.Cluster, error) {
	if s.Collector == nil {
		return nil, process.ErrNoCollector
	}
	c := s.Collector
	neighborhood := &answer.Cluster{Judge: s.judge, Collector: s.explained(), Now: time.Now(), Order: namespaces.UpstreamOrder()} //nolint:forbidigo // the time of the request
	if s.Namespaces != nil {
		neighborhood.Order = s.Namespaces.Order()
	}
	facts, err := reader.NewFacts(caller)
	if err != nil {
		return nil, err
	}
	neighborhood.Facts = facts
	if neighborhood.Inventory, err = reader.Neighborhood(ctx, caller, reader.Known{
		View: s.View, Resources: s.Resources(), Unread: unread(c),
	}, uids, reader.NeighborhoodOptions{Now: neighborhood.Now, IsBuiltIn: finalizerowner.IsBuiltIn, Defaults: facts.Defaults}); err != nil {
		return nil, err
	}
	return neighborhood, nil
}

// Defaults implements Source.
func (source) Defaults(ctx context.Context, caller *rest.Config) (protection.Defaults, error) {
	facts, err := reader.NewFacts(caller)
	if err != nil {
		return nil, err
	}
	return facts.Defaults(ctx)
}

// unread returns the resources of which the collector may not know all objects.
func unread(c *collector.Collector) []inventory.Unread {
	var all []inventory.Unread
	for _, u := range c.Parts().Feed.Unread() {
		all = append(all, inventory.Unread{Resource: u.Resource, Why: u.Why})
	}
	return all
}

// explained returns the part of the collector's state that explains why objects still exist.
func (s source) explained() *explain.Collector {
	status := s.Controllers.Status()
	state := answer.CollectorOf("this collector", &status)
	state.Empties = s.Namespaces != nil && s.Namespaces.Synced()
	state.Collects = s.Collector.Synced() && !status.ObserveOnly
	return state
}

// Records implements Source.
func (s source) Records(after uint64) []report.Record {
	if s.Collector == nil {
		return nil
	}
	return s.Collector.Parts().Engine.RecordsAfter(after)
}

// Stories implements Source.
func (s source) Stories() *storybook.Book {
	if s.Collector == nil {
		return nil
	}
	return s.Collector.Parts().Stories
}

// Status implements Source. Only callers with permission to list all objects get the counts of objects and of
// requests; the counts of a kind need permission to list all its objects.
func (s source) Status(ctx context.Context, sight *Sight) (SeenStatus, error) {
	seen := SeenStatus{Status: s.Controllers.Status(), Unread: sight.Unread()}
	if !sight.All() { // these counts include hidden objects
		seen.Graph, seen.Queue, seen.Stats, seen.Latency = report.GraphStatus{}, report.QueueStatus{}, report.Stats{}, report.Histogram{}
	}
	sees := func(kind, namespace string) (bool, error) {
		k := schema.ParseGroupKind(kind)
		return sight.Sees(ctx, ownership.Kind{Group: k.Group, Kind: k.Kind}, namespace)
	}
	var err error
	if seen.Kinds, err = only(seen.Kinds, func(k report.KindStatus) (bool, error) { return sees(k.Kind, "") }); err != nil {
		return SeenStatus{}, err
	}
	if seen.Deletions, err = only(seen.Deletions, func(d report.DeletionStatus) (bool, error) { return sees(d.Kind, "") }); err != nil {
		return SeenStatus{}, err
	}
	if seen.Paused, err = only(seen.Paused, func(p report.Pause) (bool, error) { return sees(p.Kind, "") }); err != nil {
		return SeenStatus{}, err
	}
	if seen.RefusedCounts, err = only(seen.RefusedCounts, func(r report.RefusedCount) (bool, error) { return sees(r.Kind, "") }); err != nil {
		return SeenStatus{}, err
	}
	if seen.Refused, err = only(seen.Refused, func(r report.RefusedObject) (bool, error) { return sees(r.Kind, r.Namespace) }); err != nil {
		return SeenStatus{}, err
	}
	if seen.Barrier, err = only(seen.Barrier, func(w report.BarrierWait) (bool, error) {
		kind, path, _ := strings.Cut(w.Owner, " ")
		namespace, _, isNamespaced := strings.Cut(path, "/")
		if !isNamespaced {
			namespace = ""
		}
		return sees(kind, namespace)
	}); err != nil {
		return SeenStatus{}, err
	}
	if !sight.All() {
		return seen, seen.withholdErrors(sees)
	}
	return seen, nil
}

// withheldWords replaces the message of a refusal, for callers who may not list the Events with this message.
const withheldWords = "its words are for users who may list Events there"

// withholdErrors replaces errors of the API server, because they may name objects that the caller may not list. A
// caller who may list all objects of a kind sees the errors about its watch. A caller who may list the Events with the
// message of a refusal sees this message. A caller who may list everything sees all errors.
func (s *SeenStatus) withholdErrors(sees func(kind, namespace string) (bool, error)) error {
	withhold := func(text *string) {
		if *text != "" {
			*text = Withheld
		}
	}
	withhold(&s.ProbeError)
	s.Resources, s.Barrier = slices.Clone(s.Resources), slices.Clone(s.Barrier)
	for n := range s.Resources {
		switch seen, err := sees(s.Resources[n].Kind, ""); {
		case err != nil:
			return err
		case !seen:
			withhold(&s.Resources[n].Error)
		}
	}
	for n := range s.Barrier {
		s.Barrier[n].Holds = slices.Clone(s.Barrier[n].Holds)
		for i := range s.Barrier[n].Holds {
			withhold(&s.Barrier[n].Holds[i].Why)
		}
	}
	s.Refused = slices.Clone(s.Refused)
	for n := range s.Refused {
		switch seen, err := sees("Event", cmp.Or(s.Refused[n].Namespace, metav1.NamespaceDefault)); {
		case err != nil:
			return err
		case !seen:
			s.Refused[n].Message = withheldWords
		}
	}
	return nil
}

// only returns the elements that keep accepts; the result is not nil, so that it is [] in JSON.
func only[T any](all []T, keep func(T) (bool, error)) ([]T, error) {
	kept := make([]T, 0, len(all))
	for _, one := range all {
		yes, err := keep(one)
		if err != nil {
			return nil, err
		}
		if yes {
			kept = append(kept, one)
		}
	}
	return kept, nil
}
