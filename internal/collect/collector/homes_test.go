package collector_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

var namespaceKind = ownership.Kind{Kind: "Namespace"}

// The name does not show in which of two namespaces an object has lived: revisions do, no matter which watch lags
// behind.
func TestStoriesKnowTheNamespaceAnObjectLivedIn(t *testing.T) {
	all := func(story.Ref) bool { return true }
	namespace := func(uid string, revision int) ownership.Object {
		return ownership.Object{UID: ownership.UID(uid), Kind: namespaceKind, Name: space, ResourceVersion: fmt.Sprint(revision)}
	}
	marked := func(revision int) ownership.Object {
		return ownership.Object{
			UID: "pod", Kind: podKind, Namespace: space, Name: "pod", ResourceVersion: fmt.Sprint(revision), Phase: ownership.Terminating,
		}
	}
	// Revisions: the former namespace is created at 10 and gone at 20, the present one is created at 30.
	for name, c := range map[string]struct {
		happens func(s feed.Sink)
		want    ownership.UID
	}{
		"in order": {func(s feed.Sink) { s.Observe(namespace("former", 10)); s.Observe(marked(15)); s.Forget("pod", "16") }, "former"},
		"the namespace is written meanwhile": {func(s feed.Sink) {
			s.Observe(namespace("former", 10))
			s.Observe(namespace("former", 18))
			s.Observe(marked(15))
		}, "former"},
		"the watch of pods lags behind": {func(s feed.Sink) {
			s.Observe(namespace("former", 10))
			s.Forget("former", "20")
			s.Observe(namespace("present", 30))
			s.Observe(marked(15))
			s.Forget("pod", "16")
		}, ""},
		"the watch of namespaces lags behind": {func(s feed.Sink) { s.Observe(namespace("former", 10)); s.Observe(marked(35)) }, "former"},
		"no namespace was observed":           {func(s feed.Sink) { s.Observe(marked(15)); s.Forget("pod", "16") }, ""},
		"the namespace is gone":               {func(s feed.Sink) { s.Observe(namespace("former", 10)); s.Forget("former", "20"); s.Observe(marked(15)) }, ""},
		"a start: the removal is later than the list": {func(s feed.Sink) {
			feed.Replace(s, namespaceKind, []ownership.Object{namespace("present", 40)})
			feed.Replace(s, podKind, []ownership.Object{marked(35)})
			s.Forget("pod", "41")
		}, "present"},
		"a start: nothing tells": {func(s feed.Sink) {
			feed.Replace(s, namespaceKind, []ownership.Object{namespace("present", 40)})
			feed.Replace(s, podKind, []ownership.Object{marked(35)})
		}, ""},
		"a list without the namespace": {func(s feed.Sink) {
			s.Observe(namespace("former", 10))
			feed.Replace(s, namespaceKind, nil)
			s.Observe(marked(35))
		}, ""},
		"a restored backup": {func(s feed.Sink) { s.Observe(namespace("former", 10)); s.NewEpoch(); s.Observe(marked(15)) }, ""},
	} {
		book := storybook.New()
		w, _ := newTimedFixture(t, collector.Config{Stories: book})
		c.happens(w.c.Sink())
		var told []ownership.UID
		for _, s := range book.List(all, noon) {
			_, objects, _, _ := book.Story(s.ID, 0, all, noon)
			for _, o := range objects {
				if o.UID == "pod" {
					told = append(told, o.NamespaceUID)
				}
			}
		}
		if !slices.Equal(told, []ownership.UID{c.want}) {
			t.Errorf("%s: it is told in namespaces %q, want %q", name, told, c.want)
		}
	}
}

// A record says in which namespace the object was: if the request was answered, in the one that was observed before it.
func TestRecordsKnowTheNamespaceAnObjectLivedIn(t *testing.T) {
	w, _ := newTimedFixture(t, collector.Config{})
	w.Serve(namespaceKind, ownership.Cluster)
	w.pod("unknown", absent("never"))
	w.settle()
	w.Create(ownership.Object{Kind: namespaceKind, Name: space, UID: "present"})
	w.pod("known", absent("never"))
	w.settle()
	var homes []report.UID
	for _, r := range w.c.Records() {
		homes = append(homes, r.Object.NamespaceUID)
	}
	if want := []report.UID{"", "present"}; !slices.Equal(homes, want) {
		t.Errorf("records of objects in namespaces %q, want %q", homes, want)
	}
}
