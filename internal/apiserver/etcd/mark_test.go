package etcd

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
)

// everything returns the values of all keys of a store, and fails the test if two keys have one revision.
func everything(t *testing.T, s *Store) map[string]string {
	t.Helper()
	all, revisions := map[string]string{}, map[int64]bool{}
	err := s.follower.ReadAll(t.Context(), s.prefix+"/", "", 0, func(o Stored) bool {
		if revisions[o.Revision] {
			t.Errorf("the revision of %s is also that of another key", o.Key)
		}
		all[o.Key], revisions[o.Revision] = string(o.Value), true
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func put(t *testing.T, s *Store, key, value string) {
	t.Helper()
	if _, err := s.client.Put(t.Context(), s.prefix+"/"+key, value); err != nil {
		t.Fatal(err)
	}
}

// TestReturnLeadsBackToTheMark checks that Return undoes whatever was done after a mark, again and again, with one
// revision for each write.
func TestReturnLeadsBackToTheMark(t *testing.T) {
	s := open(t)
	configMaps := schema.GroupResource{Resource: "configmaps"}
	s.AddResource(configMaps, s.prefix+"/configmaps/")
	for i := range 50 {
		put(t, s, "configmaps/default/m"+strconv.Itoa(i), strconv.Itoa(i))
	}
	put(t, s, "leases/kube-system/l", "1")
	before := everything(t, s)
	mark, err := s.Mark(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !mark.Has("configmaps/default/m7") || mark.Has("configmaps/default/n7") {
		t.Error("Has does not tell the keys of the mark")
	}
	all := func(string, Difference) bool { return true }
	for range 3 {
		put(t, s, "configmaps/default/m7", "changed")
		put(t, s, "configmaps/default/new", "new")
		put(t, s, "example.com/gizmos/default/new", "new")
		if _, err := s.client.Delete(t.Context(), s.prefix+"/configmaps/default/m1", clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		done, err := s.Return(t.Context(), mark, all)
		if err != nil {
			t.Fatal(err)
		}
		if done.Deleted != 2 || done.Restored != 12 || done.Writes[configMaps] == 0 {
			t.Errorf("%+v", done)
		}
		if after := everything(t, s); !maps.Equal(after, before) {
			t.Errorf("%v, before %v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
		}
		if again, err := s.Return(t.Context(), mark, all); err != nil || !again.None() {
			t.Errorf("a second Return: %+v, %v", again, err)
		}
	}
	put(t, s, "configmaps/default/contested", "1")
	// Somebody writes the key after Return has read it.
	contested, err := s.Return(t.Context(), mark, func(key string, _ Difference) bool {
		put(t, s, key, "2")
		return true
	})
	if err != nil || contested.None() || contested.Missed != 1 || contested.Deleted != 0 {
		t.Errorf("Return of a key that somebody else writes: %+v, %v", contested, err)
	}
	if done, err := s.Return(t.Context(), mark, all); err != nil || done.Deleted != 1 {
		t.Errorf("Return after that: %+v, %v", done, err)
	}
	put(t, s, "leases/kube-system/l", "2")
	done, err := s.Return(t.Context(), mark, func(key string, d Difference) bool { return key != "leases/kube-system/l" || d != Changed })
	if err != nil || !done.None() {
		t.Errorf("Return of a key that is not included: %+v, %v", done, err)
	}
}

// hold writes an object with reservations, as package storage does; no reservations and no value: it removes the object.
func hold(t *testing.T, s *Store, key, value string, reservations ...string) {
	t.Helper()
	key = s.prefix + "/" + key
	held, err := s.client.Get(t.Context(), s.UniquePrefix(), clientv3.WithPrefix())
	must(t, err)
	ops := []clientv3.Op{clientv3.OpPut(key, value)}
	if value == "" {
		ops[0] = clientv3.OpDelete(key)
	}
	for _, kv := range held.Kvs {
		if name := strings.TrimPrefix(string(kv.Key), s.UniquePrefix()); string(kv.Value) == key && !slices.Contains(reservations, name) {
			ops = append(ops, release(string(kv.Key), key))
		}
	}
	for _, name := range reservations {
		ops = append(ops, clientv3.OpPut(s.UniquePrefix()+name, key))
	}
	_, err = s.client.Txn(t.Context()).Then(ops...).Commit()
	must(t, err)
}

// held returns the reservations, as name=key.
func held(t *testing.T, s *Store) string {
	t.Helper()
	var all []string
	must(t, s.follower.ReadAll(t.Context(), s.UniquePrefix(), "", 0, func(o Stored) bool {
		all = append(all, strings.TrimPrefix(o.Key, s.UniquePrefix())+"="+strings.TrimPrefix(string(o.Value), s.prefix+"/"))
		return true
	}))
	return strings.Join(all, " ")
}

// TestReturnLeadsReservationsBack checks that reservations follow their objects, whoever has had them meanwhile, and that
// Return counts objects only.
func TestReturnLeadsReservationsBack(t *testing.T) {
	s := open(t)
	hold(t, s, "services/a", "1", "1", "one")
	hold(t, s, "services/b", "1", "2")
	const before = "1=services/a 2=services/b one=services/a"
	mark, err := s.Mark(t.Context())
	must(t, err)
	all := func(string, Difference) bool { return true }
	for name, change := range map[string]func(){
		"made":               func() { hold(t, s, "services/c", "1", "3") },
		"changed":            func() { hold(t, s, "services/a", "2", "3") },
		"gone":               func() { hold(t, s, "services/a", "") },
		"gone, and taken":    func() { hold(t, s, "services/a", ""); hold(t, s, "services/c", "1", "1", "3") },
		"changed, and taken": func() { hold(t, s, "services/a", "2"); hold(t, s, "services/b", "2", "1", "3") },
		"recreated":          func() { hold(t, s, "services/a", ""); hold(t, s, "services/a", "2", "one", "3") },
		"swapped": func() {
			hold(t, s, "services/a", "2")
			hold(t, s, "services/b", "2", "1", "one")
			hold(t, s, "services/a", "2", "2")
		},
		"without an object": func() {
			hold(t, s, "services/a", "")
			hold(t, s, "services/c", "1", "1")
			_, err := s.client.Delete(t.Context(), s.prefix+"/services/c")
			must(t, err)
		},
	} {
		change()
		total := 0
		for rounds := 1; ; rounds++ {
			done, err := s.Return(t.Context(), mark, all)
			must(t, err)
			if total += done.Deleted + done.Restored; done.None() {
				break
			}
			if rounds == 5 {
				t.Fatalf("%s: no end: %+v", name, done)
			}
		}
		if got := held(t, s); got != before {
			t.Errorf("%s: %s is reserved, want %s", name, got, before)
		}
		if total == 0 || total > 2 {
			t.Errorf("%s: %d objects are undone", name, total)
		}
	}
}

// TestReturnTakesNoReservation checks that an object that Return leaves keeps its reservation, and that the object that had
// it at the mark is missed until then.
func TestReturnTakesNoReservation(t *testing.T) {
	s := open(t)
	hold(t, s, "services/a", "1", "1")
	hold(t, s, "services/b", "1")
	mark, err := s.Mark(t.Context())
	must(t, err)
	hold(t, s, "services/a", "")
	hold(t, s, "services/b", "2", "1")
	done, err := s.Return(t.Context(), mark, func(_ string, d Difference) bool { return d != Changed })
	if err != nil || done.Missed != 1 || done.Restored != 0 || held(t, s) != "1=services/b" {
		t.Errorf("%+v, %v, with %s", done, err, held(t, s))
	}
	// Somebody takes the value after Return has read it.
	hold(t, s, "services/b", "3")
	done, err = s.Return(t.Context(), mark, func(key string, _ Difference) bool {
		if key == "services/a" {
			hold(t, s, "services/c", "1", "1")
		}
		return true
	})
	if err != nil || done.Missed != 1 || done.Restored != 1 || held(t, s) != "1=services/c" {
		t.Errorf("%+v, %v, with %s", done, err, held(t, s))
	}
}

// TestReturnLeadsManyReservationsBack checks that Return undoes objects with more reservations than one level of a transaction
// of etcd may have operations. An etcd with the default limit takes all from an object; its refusal to give them back names the
// limit.
func TestReturnLeadsManyReservationsBack(t *testing.T) {
	const many = 300
	var names []string
	for n := range many {
		names = append(names, strconv.Itoa(n))
	}
	all := func(string, Difference) bool { return true }
	count := func(s *Store) int { return len(strings.Fields(held(t, s))) }

	here := open(t)
	hold(t, here, "services/a", "1", names...)
	mark, err := here.Mark(t.Context())
	must(t, err)
	for _, change := range []func(){
		func() { hold(t, here, "services/a", "") }, func() { hold(t, here, "services/a", "2", "other") },
	} {
		change()
		if done, err := here.Return(t.Context(), mark, all); err != nil || done.Restored != 1 || count(here) != many {
			t.Errorf("%+v, %v, with %d reservations", done, err, count(here))
		}
	}

	elsewhere, err := Connect(t.Context(), Cluster{Servers: etcdcluster.Start(t, 1, nil).URLs()})
	must(t, err)
	t.Cleanup(func() { must(t, elsewhere.Close()) })
	mark, err = elsewhere.Mark(t.Context())
	must(t, err)
	for _, name := range names {
		_, err := elsewhere.client.Put(t.Context(), elsewhere.UniquePrefix()+name, elsewhere.prefix+"/services/a")
		must(t, err)
	}
	put(t, elsewhere, "services/a", "1")
	full, err := elsewhere.Mark(t.Context())
	must(t, err)
	if done, err := elsewhere.Return(t.Context(), mark, all); err != nil || done.Deleted != 1 || count(elsewhere) != 0 {
		t.Errorf("%+v, %v, with %d reservations", done, err, count(elsewhere))
	}
	if _, err := elsewhere.Return(t.Context(), full, all); !errors.Is(err, ErrTooManyReserved) || !strings.Contains(err.Error(), "services/a") {
		t.Errorf("giving them back: %v", err)
	}
}
