package story

import (
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// TestRequestsOfOthers: roots of one request have one story. Requests of another user, even with the same key,
// and requests without a key have their own stories, each with its user.
func TestRequestsOfOthers(t *testing.T) {
	b := NewBook()
	for _, r := range []Request{
		{Key: "k", UID: "a1", By: By{User: "ann"}},
		{Key: "k", UID: "a2", By: By{User: "ann"}},
		{Key: "k", UID: "b1", By: By{User: "bob"}},
		{UID: "c1", By: By{User: "ann"}},
		{UID: "c2", By: By{User: "ann"}},
	} {
		b.Requested(r)
		b.Gone(&ownership.Object{UID: r.UID, Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: string(r.UID)}, "", start)
	}
	want := map[ownership.UID]struct {
		user string
		gone int
	}{"a1": {"ann", 2}, "b1": {"bob", 1}, "c1": {"ann", 1}, "c2": {"ann", 1}}
	all := b.List(func(Ref) bool { return true }, start)
	for _, s := range all {
		if w := want[s.ID]; s.By == nil || s.By.User != w.user || s.Gone != w.gone {
			t.Errorf("%s: %d gone, asked by %+v; want %+v", s.ID, s.Gone, s.By, w)
		}
	}
	if len(all) != len(want) {
		t.Errorf("%d stories, want %d", len(all), len(want))
	}
}
