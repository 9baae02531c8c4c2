package api_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/census"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// large is a Source with 134 000 objects, a tenth of them in the namespace ns-0.
type large struct {
	cluster

	all   *inventory.Inventory
	graph *ownership.Graph
}

func newLarge() *large {
	l := &large{all: census.New(1)}
	l.graph = l.all.Graph()
	return l
}

func (l *large) View(read func(g *ownership.Graph)) { read(l.graph) }

func (l *large) Resources() []*inventory.Resource { return l.all.Resources }

// Neighborhood selects what concerns some objects, as from a running collector, without reads from a server.
func (l *large) Neighborhood(_ context.Context, _ *rest.Config, uids []ownership.UID) (*answer.Cluster, error) {
	s := inventory.SelectConcerned(l.View, l.all.Resources, uids)
	inv := &inventory.Inventory{Resources: l.all.Resources, Namespaces: l.all.Namespaces, Pods: map[ownership.UID]*inventory.Pod{}}
	for _, objects := range []map[ownership.UID]ownership.Object{s.Members, s.Asides} {
		for uid, o := range objects {
			inv.Objects = append(inv.Objects, &inventory.Object{Object: o, Resource: s.Resources[o.Kind]})
			if pod := l.all.Pods[uid]; pod != nil {
				inv.Pods[uid] = pod
			}
		}
	}
	inv.Index()
	return &answer.Cluster{Inventory: inv, Facts: permissive{}, Now: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)}, nil
}

// permissive has the facts of a cluster in which nothing delays or refuses a deletion.
type permissive struct{ calm }

// Read implements answer.FactReader.
func (p permissive) Read(ctx context.Context, needs inventory.Needs, facts *inventory.Facts) {
	p.calm.Read(ctx, needs, facts)
	facts.Policies, facts.Deleters = &inventory.Fact[[]inventory.Policy]{}, &inventory.Fact[inventory.Deleters]{}
}

// BenchmarkPreview answers the whole question about a deletion in a cluster with 134 000 objects, from the request to
// the JSON: of a Deployment, and of a namespace with a tenth of all objects.
func BenchmarkPreview(b *testing.B) {
	source := newLarge()
	handler := api.Handler(source, access)
	for _, object := range []struct{ kind, name string }{{"Deployment", "d-7"}, {"Namespace", "ns-0"}} {
		n := slices.IndexFunc(source.all.Objects, func(o *inventory.Object) bool { return o.Kind.Kind == object.kind && o.Name == object.name })
		b.Run(object.kind, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if code := serve(handler, everything, api.Preview+"?uid="+string(source.all.Objects[n].UID)); code != http.StatusOK {
					b.Fatal(code)
				}
			}
		})
	}
}
