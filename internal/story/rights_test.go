package story

import (
	"fmt"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/ownership"
)

// For a reader who may not see the root, nothing of a story is read: a large one takes no more memory than an absent one.
func TestHiddenStoryIsNotRead(t *testing.T) {
	b, now := NewBook(), time.Unix(1_000_000, 0)
	owner := &ownership.Object{UID: "owner", Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: "owner", Phase: ownership.Foreground}
	b.Seen(owner, "shop", now)
	for n := range 5000 {
		b.Gone(&ownership.Object{
			UID: ownership.UID(fmt.Sprint(n)), Kind: ownership.Kind{Kind: "Pod"}, Namespace: "shop", Name: fmt.Sprint(n),
			Owners: []ownership.Reference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"}},
		}, "shop", now)
	}
	all, none := func(Ref) bool { return true }, func(Ref) bool { return false }
	if _, objects, _, ok := b.Story("owner", 0, all, now); !ok || len(objects) != 5001 {
		t.Fatalf("the story has %d objects", len(objects))
	}
	absent := testing.AllocsPerRun(20, func() { b.Story("absent", 0, none, now) })
	hidden := testing.AllocsPerRun(20, func() { b.Story("owner", 0, none, now) })
	if hidden > absent {
		t.Errorf("a hidden story takes %v allocations, an absent one %v", hidden, absent)
	}
	if changed, _, at := b.Since(0, none, now); len(changed) != 0 || at != b.Changes() {
		t.Errorf("%d stories are told to a reader who may see none, up to change %d of %d", len(changed), at, b.Changes())
	}
}
