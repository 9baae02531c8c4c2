package preview_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/census"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// BenchmarkPredict predicts deletions in a cluster with 134 000 objects: of a Deployment with its ReplicaSets and
// pods, and of the largest namespace, which has a tenth of all objects.
func BenchmarkPredict(b *testing.B) {
	inv := census.New(1)
	b.Run("index", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			preview.New(inv)
		}
	})
	cluster := preview.New(inv)
	for name, object := range map[string]*inventory.Object{
		"deployment": find(b, inv, "Deployment", "d-7"), "largest-namespace": find(b, inv, "Namespace", "ns-0"),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			requests := []preview.Request{{UID: object.UID, Propagation: metav1.DeletePropagationBackground}}
			for b.Loop() {
				p := cluster.Predict(requests, preview.Options{Now: now()})
				if len(p.Outcomes) < 2 {
					b.Fatalf("%d outcomes", len(p.Outcomes))
				}
			}
		})
	}
}

func find(b *testing.B, inv *inventory.Inventory, kind, name string) *inventory.Object {
	b.Helper()
	for _, o := range inv.Objects {
		if o.Kind.Kind == kind && o.Name == name {
			return o
		}
	}
	b.Fatalf("there is no %s %s", kind, name)
	return nil
}
