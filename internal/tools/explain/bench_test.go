package explain_test

import (
	"fmt"
	"testing"

	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// BenchmarkExplain explains a stuck namespace in a cluster with 134 000 objects.
func BenchmarkExplain(b *testing.B) {
	w := newCluster(b)
	w.lines(`
		Namespace ns0 deleted=5h spec=kubernetes
		Widget.shop.acme.io ns0/w deleted=4h finalizers=shop.acme.io/cleanup by=manager:26h:shop.acme.io/cleanup`)
	for n := range 20000 {
		ns := n % 100
		w.lines(fmt.Sprintf("Deployment.apps ns%d/d%d replicas=1 ready=1 account=default", ns, n))
		w.lines(fmt.Sprintf("ReplicaSet.apps ns%d/r%d owner=apps/v1:Deployment:d%d:blocking", ns, n, n))
		w.lines(fmt.Sprintf("Pod ns%d/p%d owner=apps/v1:ReplicaSet:r%d:blocking node=n1", ns, n, n))
	}
	for n := range 74000 {
		w.lines(fmt.Sprintf("ConfigMap ns%d/c%d", n%100, n))
	}
	e := w.explainer()
	b.Run("new", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			explain.New(explain.Input{Inventory: &w.inventory, Facts: w.facts(), Now: now})
		}
	})
	b.Run("namespace", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if x, ok := e.Explain("Namespace/ns0"); !ok || x.State != explain.Stuck {
				b.Fatal(x.Text(now))
			}
		}
	})
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.All()
		}
	})
}
