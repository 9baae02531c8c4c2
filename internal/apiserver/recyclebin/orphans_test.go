package recyclebin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// The bin has the references that an orphan deletion has removed, and no others. Objects that have only lost references
// are not listed, and cannot be undone.
func TestR29_OrphansAreKeptWithTheirOwner(t *testing.T) {
	store, b := following(t)
	owner, other := uuid.NewString(), uuid.NewString()
	put := func(name, uid, metadata string, owners ...string) {
		t.Helper()
		var references []string
		for _, o := range owners {
			references = append(references, fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","name":"o","uid":%q,"controller":true}`, o))
		}
		value := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"team","uid":%q,"ownerReferences":[%s]%s}}`,
			name, uid, strings.Join(references, ","), metadata)
		if _, err := store.Client().Put(t.Context(), store.Prefix()+"/example.com/widgets/team/"+name, value); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if _, err := store.Client().Delete(t.Context(), store.Prefix()+"/example.com/widgets/team/"+name); err != nil {
			t.Fatal(err)
		}
	}
	for name, uid := range map[string]string{"owner": owner, "other": other} {
		put(name, uid, "")
	}
	put("before", "before", "", owner)
	put("before", "before", "") // a user has removed this reference
	put("one", "one", "", owner)
	put("two", "two", "", other, owner)
	put("owner", owner, `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["orphan"]`)
	put("one", "one", "")
	put("two", "two", "", other)
	remove("owner")

	answer := laterAnswerOf(t, b, grants{"widgets//"}, "?uid="+owner)
	var list List
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("%d %s: %v", answer.Code, answer.Body, err)
	}
	var found []string
	for _, i := range list.Items {
		text := i.Name
		for _, o := range i.Kept().Object.GetOwnerReferences() {
			text += fmt.Sprintf(" lost %t controller %t", o.UID == i.Owners[0].UID && string(o.UID) == owner, *o.Controller)
		}
		found = append(found, fmt.Sprintf("%s stays %t", text, i.Kept().Stays))
	}
	slices.Sort(found)
	if want := []string{"one lost true controller true stays true", "owner stays false", "two lost true controller true stays true"}; !slices.Equal(found, want) {
		t.Errorf("the bin has %q, want %q", found, want)
	}
	if _, names, _ := ask(t, b, grants{"widgets//"}, ""); !slices.Equal(names, []string{"owner"}) {
		t.Errorf("the list has %v", names)
	}
	if code, names, _ := ask(t, b, grants{"widgets//"}, "?uid=one"); code != http.StatusNotFound {
		t.Errorf("an object that was not deleted: %d %v", code, names)
	}
	put("again", owner, "")
	remove("again") // without an orphan deletion, there is no look at updates
	if _, names, _ := ask(t, b, grants{"widgets//"}, "?name=again"); !slices.Equal(names, []string{"again"}) {
		t.Errorf("the list has %v", names)
	}
}

// An orphan deletion that took very long does not hold up the bin. The bin marks its owner.
func TestR29_OrphansOfLongDeletionsAreUnknown(t *testing.T) {
	store, b := following(t)
	value := `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"owner","uid":"owner","deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["orphan"]}}`
	stored := etcd.Stored{Key: store.Prefix() + "/example.com/widgets/owner", Value: []byte(value), Revision: 2}
	upTo := stored.Revision + maxReplay + 1
	if err := b.keep(t.Context(), []etcd.Removal{{Stored: stored, At: upTo}}, upTo); err != nil {
		t.Fatal(err)
	}
	var list List
	answer := laterAnswerOf(t, b, grants{"widgets//"}, "?uid=owner")
	if err := json.Unmarshal(answer.Body.Bytes(), &list); err != nil || len(list.Items) != 1 || !list.Items[0].Kept().OrphansUnknown {
		t.Errorf("%d %s: %v", answer.Code, answer.Body, err)
	}
}

func TestR29_RevisionsOfOrphanDeletions(t *testing.T) {
	all := newOrphaned()
	all.add("a", 100, 101)
	all.add("b", 5, 200)
	if all.after != 4 || all.upTo != 200 {
		t.Errorf("the revisions are %d to %d", all.after, all.upTo)
	}
}
