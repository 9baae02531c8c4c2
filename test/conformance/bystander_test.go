package conformance

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

const (
	bystanderCascades = 1000
	hostileOwners     = 10_000
	bytesOfOwner      = 100 // as JSON, nearly
)

// BenchmarkFakeOwners measures H8: how the cascades of one namespace suffer when an object with
// ten thousand owners that do not exist is created in another. It takes p99 of the time from an
// owner's DELETE to the removal of its dependent, once with that object and once with an equally
// large one without owners, so that the server's cost of storing and showing a megabyte is not
// counted against the collector. It reports medians:
//
//	go test -run '^$' -bench FakeOwners -benchtime 5x ./test/conformance
func BenchmarkFakeOwners(b *testing.B) {
	w, tap := quietWith(b, unchecked), &tap{}
	attacker := w.Another()
	w.collect(tap)
	w.Settle(probe.ConfigMaps, probe.Secrets)
	var calm, attacked, ratios []float64
	for turn := 0; b.Loop(); turn++ {
		attack := func() {
			attacker.Create(probe.ConfigMaps, fmt.Sprint("attack-", turn), probe.OwnedBy(probe.Fakes(hostileOwners)...))
		}
		large := func() {
			attacker.Create(probe.ConfigMaps, fmt.Sprint("large-", turn), withData(hostileOwners*bytesOfOwner))
		}
		before := slowest(b, w, fmt.Sprint("calm-", turn), large)
		during := slowest(b, w, fmt.Sprint("attacked-", turn), attack)
		calm, attacked = append(calm, before), append(attacked, during)
		ratios = append(ratios, during/before)
	}
	b.ReportMetric(0, "ns/op") // most of it is making the objects
	b.ReportMetric(median(calm)*1000, "ms-p99-calm")
	b.ReportMetric(median(attacked)*1000, "ms-p99-attacked")
	b.ReportMetric(median(ratios), "ratio")
}

// withData fills a ConfigMap with so many bytes.
func withData(n int) probe.Option {
	return func(u *unstructured.Unstructured) {
		u.Object["data"] = map[string]any{"data": strings.Repeat("x", n)}
	}
}

// slowest returns p99 of the seconds that cascades take, one after the other, of an owner
// with one dependent each. attack is called when all is prepared.
func slowest(b *testing.B, w *cluster, name string, attack func()) float64 {
	b.Helper()
	owners, dependents := make([]probe.Object, bystanderCascades), make([]probe.Object, bystanderCascades)
	for i := range owners {
		owners[i] = w.Create(probe.ConfigMaps, fmt.Sprintf("owner-%s-%d", name, i))
		dependents[i] = w.Create(probe.Secrets, fmt.Sprintf("dependent-%s-%d", name, i), probe.OwnedBy(probe.Ref(owners[i])))
	}
	w.Settle(probe.ConfigMaps, probe.Secrets)
	gone, err := w.Server.Metadata.Resource(probe.Secrets.GroupVersionResource).Namespace(w.Name).Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer gone.Stop()
	attack()
	took := make([]float64, 0, len(owners))
	for i, owner := range owners {
		began := time.Now()
		w.Remove(owner, probe.Background)
		awaitDeleted(b, gone, dependents[i])
		took = append(took, time.Since(began).Seconds())
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// awaitDeleted reads events until an object is gone.
func awaitDeleted(b *testing.B, events watch.Interface, o probe.Object) {
	b.Helper()
	if err := awaitRemoval(events, []probe.Object{o}); err != nil {
		b.Fatal(err)
	}
}
