package collector_test

import (
	"fmt"
	"testing"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// BenchmarkFakeOwners measures the collector on an object with ten thousand owners that do not
// exist, from its observation to its deletion (H8).
func BenchmarkFakeOwners(b *testing.B) {
	const n = 10_000
	owners := make([]ownership.Reference, n)
	for i := range owners {
		owners[i] = absent(fmt.Sprint(i))
	}
	o := ownership.Object{Kind: podKind, Namespace: space, Name: "pod", UID: "pod", Owners: owners}
	for b.Loop() {
		s := apimodel.New()
		waiting := &keys{}
		s.Serve(podKind, ownership.Namespaced)
		s.Serve(setKind, ownership.Namespaced)
		c := collector.New(s, collector.Config{Queue: waiting})
		s.Connect(c.Sink())
		s.Create(o)
		for uid, ok := waiting.Take(); ok; uid, ok = waiting.Take() {
			c.Collect(b.Context(), uid)
			waiting.Done(uid)
		}
		if s.Len() != 0 {
			b.Fatal("it is not deleted")
		}
	}
}
