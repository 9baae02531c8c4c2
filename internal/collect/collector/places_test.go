package collector_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

// hangingKind is a kind whose reads hang.
func hangingKind() ownership.Kind { return ownership.Kind{Group: "example.com", Kind: "Hanging"} }

// hanging returns references to different owners of that kind.
func hanging(name string, n int) []ownership.Reference {
	var owners []ownership.Reference
	for i := range n {
		one := fmt.Sprint(name, "-", i)
		owners = append(owners, ownership.Reference{APIVersion: "example.com/v1", Kind: "Hanging", Name: one, UID: ownership.UID(one)})
	}
	return owners
}

// L5: hundreds of objects name different owners of a kind whose reads hang. That delays nothing else: neither objects with one
// owner, nor objects with many. When the kind answers, all are decided on, without a request too many.
func TestL5_ReadsThatHangDelayOnlyTheirKind(t *testing.T) {
	const objects, others = 200, 2000
	for name, owners := range map[string]int{"one owner each": 1, "many owners each": manyOwners} {
		t.Run(name, func(t *testing.T) {
			config := collector.Config{Batch: 1000, Limiter: pace.New(32, 256, clock.RealClock{}.Now)}
			running(t, config, func(s *apimodel.Server, _ *collector.Collector) {
				s.Serve(hangingKind(), ownership.Namespaced)
				answers := make(chan struct{})
				s.Inject(apimodel.Fault{Verb: "get", Kind: hangingKind(), Wait: answers})
				pod := func(name string, owners ...ownership.Reference) {
					s.Create(ownership.Object{Kind: podKind, Namespace: space, Name: name, Owners: owners})
				}
				for i := range objects {
					pod(fmt.Sprint("hanging-", i), hanging(fmt.Sprint(i), owners)...)
				}
				synctest.Wait()
				for i := range others {
					pod(fmt.Sprint("other-", i), absent(fmt.Sprint(i)))
				}
				var many []ownership.Reference
				for i := range manyOwners {
					many = append(many, absent(fmt.Sprint("many-", i)))
				}
				pod("many", many...)
				time.Sleep(time.Second)
				synctest.Wait()
				if got := s.Len(); got != objects {
					t.Errorf("after a second, %d objects are left besides the %d that wait", got-objects, objects)
				}
				close(answers)
				time.Sleep(10 * time.Minute)
				if got := s.Len(); got > 0 {
					t.Errorf("%d objects are left although all owners are absent", got)
				}
				reads := 0
				for _, r := range s.Requests() {
					if r.Verb == "get" && r.Ref.Kind == hangingKind() {
						reads++
					}
				}
				if want := objects * owners; reads != want {
					t.Errorf("%d reads, want one for each of %d claims", reads, want)
				}
			})
		})
	}
}
