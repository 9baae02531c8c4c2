package storybook_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func pod(name string, phase ownership.Phase) *ownership.Object {
	return &ownership.Object{UID: ownership.UID(name), Kind: ownership.Kind{Kind: "Pod"}, Namespace: "shop", Name: name, Phase: phase}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWaiterIsWokenByTheNextChange(t *testing.T) {
	b := storybook.New()
	waiting := b.Changed(b.Changes())
	b.Seen(pod("active", ownership.Active), "", noon)
	b.Requested(story.Request{UID: "p"})
	if isClosed(waiting) {
		t.Fatal("a waiter is woken before a story begins")
	}
	b.Seen(pod("p", ownership.Terminating), "", noon)
	if !isClosed(waiting) || !isClosed(b.Changed(0)) {
		t.Error("a waiter is not woken by the begin of a story")
	}
	waiting = b.Changed(b.Changes())
	b.Seen(pod("p", ownership.Terminating), "", noon)
	if isClosed(waiting) {
		t.Error("a waiter is woken by an observation that changes nothing")
	}
	b.Listed(ownership.Kind{Kind: "Pod"}, func(ownership.UID) bool { return false }, noon)
	if !isClosed(waiting) {
		t.Error("a waiter is not woken by a list")
	}
}

// Protection matters to an object's story before and after it is lifted, although most active objects are skipped.
func TestProtectionOfActiveObjectsIsObserved(t *testing.T) {
	b := storybook.New()
	namespace := &ownership.Object{UID: "shop", Kind: ownership.Kind{Kind: "Namespace"}, Name: "shop", Phase: ownership.Terminating}
	b.Seen(namespace, "", noon)
	protected := pod("p", ownership.Active)
	protected.Protected = true
	for _, c := range []struct {
		object *ownership.Object
		want   int
	}{{pod("p", ownership.Active), 0}, {protected, 1}, {pod("p", ownership.Active), 0}} {
		b.Seen(c.object, "", noon)
		if s, _, _, _ := b.Story("shop", story.End, nil, noon); s.Kept != c.want {
			t.Errorf("%d objects are kept, want %d", s.Kept, c.want)
		}
	}
}

// Sees may use the Book, and take long: it is called while the Book is not locked.
func TestRightsAreCheckedWithoutTheLock(t *testing.T) {
	b := storybook.New()
	b.Seen(pod("p", ownership.Terminating), "", noon)
	sees := func(story.Ref) bool { return b.Changes() > 0 }
	if _, objects, _, found := b.Story("p", 0, sees, noon); !found || len(objects) != 1 {
		t.Errorf("the story has %d objects: %t", len(objects), found)
	}
	if list := b.List(sees, noon); len(list) != 1 {
		t.Errorf("the stories are %v", list)
	}
}

func TestReadersAndWritersAtOnce(t *testing.T) {
	const writers, objects = 4, 200
	b := storybook.New()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range objects {
				p := pod(fmt.Sprint(w, "-", n), ownership.Terminating)
				b.Requested(story.Request{Key: fmt.Sprint("of ", w), UID: p.UID, By: story.By{User: "ann"}})
				b.Seen(p, "", noon)
				b.Gone(p, "", noon)
			}
		})
	}
	wg.Go(func() { // a reader who follows the changes to the last one
		gone, at := map[ownership.UID]int{}, uint64(0)
		for sum := 0; sum < writers*objects; {
			<-b.Changed(at)
			var changed []story.Summary
			changed, _, at = b.Since(at, func(story.Ref) bool { return true }, noon)
			for _, s := range changed {
				sum += s.Gone - gone[s.ID]
				gone[s.ID] = s.Gone
			}
		}
	})
	wg.Wait()
	if list := b.List(nil, noon); len(list) != writers {
		t.Errorf("there are %d stories, want %d", len(list), writers)
	}
}
