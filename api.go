package coppice

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/details"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/inventory/reader"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// APIPrefix is the prefix of the paths of Controllers.APIHandler.
const APIPrefix = api.Prefix

// MayList reports whether a caller may list a resource in a namespace, or in all namespaces if it is empty.
// Group "*" and resource "*" mean all groups and resources.
type MayList = api.MayList

// Caller is the user who makes a request, with the user's list permissions and a config to reach the API server as
// the user.
type Caller = api.Caller

// Access authenticates a request. Its error wraps ErrUnauthenticated if the caller is not known.
type Access = api.Access

// ErrUnauthenticated is the error of an Access for a caller whose identity is not known.
var ErrUnauthenticated = api.ErrUnauthenticated

// DelegatedAccess returns an Access that asks the API server of config, with the caller's bearer
// token. It uses only the address of config, so the collector needs no rights for it.
func DelegatedAccess(config *rest.Config) Access { return api.Delegated(config) }

// APIHandler returns a handler for questions about deletion, ownership and collection, below APIPrefix:
// owners, dependents, component, preview and explain of objects by name and by UID; deletions, records,
// status; and changes as server-sent events (watch). The path APIPrefix+"/openapi" serves its OpenAPI
// document.
//
// Callers are authenticated, and only see objects that they may list. Serve the handler over TLS or on a
// private connection: callers send their tokens.
func (c Controllers) APIHandler(access Access) http.Handler {
	return api.Handler(apiSource{source{c}}, access)
}

// apiSource implements api.Source.
type apiSource struct{ source }

// View implements api.Source.
func (s apiSource) View(read func(g *ownership.Graph)) {
	if s.Collector == nil {
		read(ownership.New())
		return
	}
	s.Collector.inside().Collector.View(read)
}

// Resources implements api.Source.
func (s apiSource) Resources() []*inventory.Resource {
	if s.Collector == nil {
		return nil
	}
	served := s.Collector.inside().Feed.Resources()
	all := make([]*inventory.Resource, 0, len(served))
	for i := range served {
		all = append(all, inventoryResourceOf(&served[i]))
	}
	return all
}

// Living implements api.Source.
func (s apiSource) Living(ctx context.Context, namespace string) (ownership.UID, error) {
	if s.Collector == nil {
		return "", errNoCollector
	}
	return s.Collector.inside().Collector.Living(ctx, namespace)
}

func inventoryResourceOf(r *feed.Resource) *inventory.Resource {
	return &inventory.Resource{
		GroupVersionResource: r.GroupVersionResource, Kind: r.Kind.Kind, Namespaced: r.Namespaced,
		Singular: strings.ToLower(r.Kind.Kind), ShortNames: r.ShortNames, Versions: r.Versions, Deletable: r.Watched,
	}
}

// Neighborhood implements api.Source.
func (s apiSource) Neighborhood(ctx context.Context, caller *rest.Config, uids []ownership.UID) (*answer.Cluster, error) {
	if s.Collector == nil {
		return nil, errNoCollector
	}
	c := s.Collector
	neighborhood := &answer.Cluster{Collector: s.explained(), Now: time.Now(), Order: namespaces.UpstreamOrder()} //nolint:forbidigo // the time of the request
	if s.Namespaces != nil {
		neighborhood.Order = s.Namespaces.controller.Order()
	}
	var err error
	if neighborhood.Inventory, err = reader.Neighborhood(ctx, caller, reader.Known{
		View: s.View, Resources: s.Resources(), Unread: c.unread(),
	}, uids, reader.NeighborhoodOptions{Now: neighborhood.Now, IsBuiltIn: finalizerowner.IsBuiltIn}); err != nil {
		return nil, err
	}
	neighborhood.Facts, err = details.New(caller)
	return neighborhood, err
}

var errNoCollector = errors.New("no collector works in this process")

// unread returns the resources of which the collector may not know all objects.
func (c *Collector) unread() []inventory.Unread {
	var all []inventory.Unread
	for _, m := range c.inside().Feed.Status() {
		if !m.Complete {
			why := "the collector has not read it yet"
			if m.Err != nil {
				why = m.Err.Error()
			}
			all = append(all, inventory.Unread{Resource: m.Resource, Why: why})
		}
	}
	for _, gv := range c.inside().Feed.Unanswered() {
		all = append(all, inventory.Unread{Resource: gv.WithResource(""), Why: "discovery does not answer for it"})
	}
	return all
}

// explained returns the part of the collector's state that explains why objects still exist.
func (s apiSource) explained() *explain.Collector {
	state, status := explain.NewCollector("this collector"), s.Collector.Status()
	state.Empties = s.Namespaces != nil && s.Namespaces.Synced()
	state.Collects = s.Collector.Synced() && !status.ObserveOnly
	for _, w := range status.Barrier {
		held := explain.Held{Since: w.Since}
		for _, h := range w.Holds {
			held.Unread = append(held.Unread, explain.HeldBy(h))
		}
		state.Held[ownership.UID(w.UID)] = held
	}
	for _, p := range status.Paused {
		state.Pause(p.Kind, p.Since)
	}
	return state
}

// Records implements api.Source.
func (s apiSource) Records(after uint64) []collector.Record {
	if s.Collector == nil {
		return nil
	}
	return s.Collector.inside().Collector.RecordsAfter(after)
}

// SeenStatus is the part of the Status that a caller may see.
type SeenStatus struct {
	Status

	// Unread lists the reasons why objects may be missing.
	Unread []string `json:"unread,omitempty"`
}

// Stories implements api.Source.
func (s apiSource) Stories() *story.Book {
	if s.Collector == nil {
		return nil
	}
	return s.Collector.inside().Stories
}

// Status implements api.Source. Only callers with permission to list all objects get the counts of objects and of
// requests; the counts of a kind need permission to list all its objects.
func (s apiSource) Status(ctx context.Context, sight *api.Sight) (any, error) {
	seen := SeenStatus{Unread: sight.Unread()}
	if status, ok := s.source.Status().(Status); ok {
		seen.Status = status
	}
	if !sight.All() { // these counts include hidden objects
		seen.Graph, seen.Queue, seen.Stats, seen.Latency = GraphStatus{}, QueueStatus{}, Stats{}, Histogram{}
	}
	sees := func(kind, namespace string) (bool, error) {
		k := schema.ParseGroupKind(kind)
		return sight.Sees(ctx, ownership.Kind{Group: k.Group, Kind: k.Kind}, namespace)
	}
	var err error
	if seen.Kinds, err = only(seen.Kinds, func(k KindStatus) (bool, error) { return sees(k.Kind, "") }); err != nil {
		return nil, err
	}
	if seen.Deletions, err = only(seen.Deletions, func(d DeletionStatus) (bool, error) { return sees(d.Kind, "") }); err != nil {
		return nil, err
	}
	if seen.Paused, err = only(seen.Paused, func(p Pause) (bool, error) { return sees(p.Kind, "") }); err != nil {
		return nil, err
	}
	if seen.Barrier, err = only(seen.Barrier, func(w BarrierWait) (bool, error) {
		kind, path, _ := strings.Cut(w.Owner, " ")
		namespace, _, isNamespaced := strings.Cut(path, "/")
		if !isNamespaced {
			namespace = ""
		}
		return sees(kind, namespace)
	}); err != nil {
		return nil, err
	}
	if !sight.All() {
		return seen, seen.withholdErrors(func(kind string) (bool, error) { return sees(kind, "") })
	}
	return seen, nil
}

// withholdErrors replaces the errors of the API server, which may name objects. Errors about the watch of a kind are for
// callers who may list all its objects, and the others for callers who may list everything.
func (s *SeenStatus) withholdErrors(sees func(kind string) (bool, error)) error {
	withhold := func(text *string) {
		if *text != "" {
			*text = api.Withheld
		}
	}
	withhold(&s.ProbeError)
	s.Resources, s.Barrier = slices.Clone(s.Resources), slices.Clone(s.Barrier)
	for n := range s.Resources {
		switch seen, err := sees(s.Resources[n].Kind); {
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
	return nil
}

// NoStatus implements api.Source.
func (s apiSource) NoStatus() any { return SeenStatus{} }

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
