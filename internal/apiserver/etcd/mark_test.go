package etcd

import (
	"maps"
	"slices"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
