package story

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Roots of one request have one story. Requests of another user, even with the same key, and requests without a key
// have their own stories, each with its user.
func TestRequestsOfOtherUsersHaveTheirOwnStories(t *testing.T) {
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

// Requests that no story takes, because they have failed, are forgotten, the oldest first.
func TestRequestsAreBoundedInNumberAndBytes(t *testing.T) {
	for name, agent := range map[string]string{"short": "", "long": strings.Repeat("a", 1<<20)} {
		q := newRequests()
		bytes := 0
		for n := range 3 * mostRequests {
			uid := ownership.UID(fmt.Sprint(n))
			q.add(Request{UID: uid, Key: "k", By: By{Agent: agent}})
			if q.of(uid) == nil {
				t.Fatalf("%s: request %d is not kept", name, n)
			}
		}
		for _, half := range []map[ownership.UID]*Request{q.recent, q.older} {
			for _, r := range half {
				bytes += r.bytes()
			}
		}
		if n := len(q.recent) + len(q.older); n > mostRequests || n < mostRequests/3 || bytes > mostRequestBytes {
			t.Errorf("%s: %d requests of %d bytes are kept", name, n, bytes)
		}
		if q.of("0") != nil {
			t.Errorf("%s: the first request is kept", name)
		}
	}
}

func TestLatestRequestForAnObjectIsTakenOnce(t *testing.T) {
	q := newRequests()
	q.add(Request{UID: "a", Key: "first"})
	q.add(Request{UID: "a", Key: "second"})
	if r := q.take("a"); r == nil || r.Key != "second" {
		t.Errorf("%+v is taken", r)
	}
	if r := q.take("a"); r != nil || q.bytes != 0 {
		t.Errorf("%+v is taken again; %d bytes are kept", r, q.bytes)
	}
}
