package api

import (
	"fmt"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// For a missing owner, a bounded number of the objects that name it are searched.
func TestMissingOwnerIsProbed(t *testing.T) {
	g := ownership.New()
	for n := range 5000 {
		g.Observe(ownership.Object{
			UID: ownership.UID(fmt.Sprint(n)), Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: fmt.Sprint("ns", n), Name: "c",
			Owners: []ownership.Reference{{APIVersion: "v1", Kind: "Node", Name: "missing", UID: "missing"}},
		})
	}
	if places := placesOf(g, "missing"); len(places) == 0 || len(places) > mostProbed {
		t.Errorf("%d places are looked at, want %d at most", len(places), mostProbed)
	}
	if places := placesOf(g, "absent"); len(places) != 0 {
		t.Errorf("an absent object is in %v", places)
	}
}
