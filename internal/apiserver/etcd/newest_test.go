package etcd

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addResource adds a resource without a group.
func (s *Store) addResource(name string) {
	s.AddResource(schema.GroupResource{Resource: name}, s.prefix+"/"+name+"/")
}

// R15: the next answer has every acknowledged write, and no deletion.
func TestR15_NewestHasAllWritesAndNoDeletion(t *testing.T) {
	s := open(t)
	s.addResource("namespaces")
	s.addResource("configmaps")
	s.put(t, "/namespaces/team", "x")
	first, err := s.Newest(t.Context())
	must(t, err)
	for i := range 50 {
		key := "/configmaps/team/" + strconv.Itoa(i)
		s.put(t, key, "created")
		written := s.put(t, key, "changed")
		s.remove(t, key)
		got, err := s.Newest(t.Context())
		must(t, err)
		want := Newest{History: first.History, Now: written + 1, Writes: map[string]int64{"namespaces": first.Now, "configmaps": written}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

// Writes of other keys only advance the revision; Newest then requests the progress of the watch.
func TestNewestAdvancesWithOtherWrites(t *testing.T) {
	s := open(t)
	s.addResource("configmaps")
	before, err := s.Newest(t.Context())
	must(t, err)
	_, err = s.client.Put(t.Context(), "/elsewhere", "x")
	must(t, err)
	got, err := s.Newest(t.Context())
	must(t, err)
	if got.Now != before.Now+1 || got.Writes["configmaps"] != before.Writes["configmaps"] {
		t.Errorf("%+v after %+v", got, before)
	}
}

// Writes before the resource was added count as new.
func TestWritesBeforeAResourceIsAddedCountAsNew(t *testing.T) {
	s := open(t)
	s.put(t, "/configmaps/team/a", "x")
	before, err := s.Newest(t.Context())
	must(t, err)
	s.addResource("configmaps")
	got, err := s.Newest(t.Context())
	must(t, err)
	if len(before.Writes) != 0 || got.Writes["configmaps"] < before.Now {
		t.Errorf("%+v, and then %+v", before, got)
	}
}

// A change of a definition opens the storage of its resource again. The last write stays known. With a later
// revision in its place, each deletion that is to be counted would be refused until the next bookmark of the watch (R32).
func TestWritesStayKnownWhenAResourceIsAddedAgain(t *testing.T) {
	s := open(t)
	s.addResource("configmaps")
	s.addResource("secrets")
	_, err := s.Newest(t.Context())
	must(t, err)
	written := s.put(t, "/configmaps/default/a", "x")
	s.put(t, "/secrets/default/a", "x")
	_, err = s.Newest(t.Context())
	must(t, err)
	s.addResource("configmaps")
	got, err := s.Newest(t.Context())
	must(t, err)
	if got.Writes["configmaps"] != written {
		t.Errorf("the last write was at %d, and is reported at %d", written, got.Writes["configmaps"])
	}
}

// A watch that has ended, or is inconsistent, begins another history, in which earlier writes are
// unknown.
func TestNewestBeginsAnotherHistoryAfterItsWatchEnded(t *testing.T) {
	s := open(t)
	s.addResource("configmaps")
	s.put(t, "/configmaps/default/a", "x")
	before, err := s.Newest(t.Context())
	must(t, err)
	s.newest.invalidate()
	got, err := s.Newest(t.Context())
	must(t, err)
	if got.History == before.History || got.Writes["configmaps"] < before.Now {
		t.Errorf("%+v after %+v", got, before)
	}
	s.newest.mu.Lock()
	s.newest.reached += 100 // as if an older state of the store had been restored
	s.newest.mu.Unlock()
	if got, err := s.Newest(t.Context()); err == nil {
		t.Errorf("went backwards: %+v", got)
	}
	again, err := s.Newest(t.Context())
	must(t, err)
	if again.History == got.History {
		t.Errorf("the same history after it was broken: %+v", again)
	}
}

// Keys begin with a name, or with a group and a name.
func TestNewestAssignsKeysToResources(t *testing.T) {
	n := newNewest(nil, "/registry")
	n.open(schema.GroupResource{Resource: "pods"}, "/registry/pods/")
	n.open(schema.GroupResource{Group: "example.com", Resource: "pods"}, "/registry/example.com/pods/")
	n.open(schema.GroupResource{Resource: "services"}, "/registry/services/specs/")
	n.take(clientv3.WatchResponse{Created: true})
	for i, key := range []string{
		"pods/a/example.com", "example.com/pods/a/b", "services/specs/a/b", "services/endpoints/a/b", "pods", "example.com/pod", "",
	} {
		n.mu.Lock()
		n.wroteLocked(key, int64(i+1))
		n.mu.Unlock()
	}
	got, _ := n.read(0)
	if diff := cmp.Diff(map[string]int64{"pods": 1, "pods.example.com": 2, "services": 3}, got.Writes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
