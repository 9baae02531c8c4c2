package storage

import (
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// R15: the next answer has every acknowledged write, and no deletion.
func TestR15_NewestWrites(t *testing.T) {
	s := open(t)
	spaces, maps := s.namespaceStorage(t), s.configMapStorage(t)
	must(t, spaces.create("", "team"))
	first, err := s.Newest(t.Context())
	must(t, err)
	for i := range 50 {
		name := "map-" + strconv.Itoa(i)
		must(t, maps.create("team", name))
		must(t, maps.change("team", name, func(obj runtime.Object) { obj.(*corev1.ConfigMap).Data = map[string]string{"a": "b"} }))
		written, err := s.Revision(t.Context())
		must(t, err)
		must(t, maps.remove("team", name))
		got, err := s.Newest(t.Context())
		must(t, err)
		want := Newest{History: first.History, Now: written + 1, Writes: map[string]int64{"namespaces": first.Now, "configmaps": written}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got)\n%s", diff)
		}
	}
}

// Writes of other keys only advance the revision; Newest then requests the progress of the watch.
func TestNewestAfterOtherWrites(t *testing.T) {
	s := open(t)
	s.configMapStorage(t)
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

// Writes before the resource was opened count as new.
func TestNewestOfWhatIsOpenedLater(t *testing.T) {
	s := open(t)
	_, err := s.client.Put(t.Context(), s.Prefix()+"/configmaps/team/a", "x")
	must(t, err)
	before, err := s.Newest(t.Context())
	must(t, err)
	s.configMapStorage(t)
	got, err := s.Newest(t.Context())
	must(t, err)
	if len(before.Writes) != 0 || got.Writes["configmaps"] < before.Now {
		t.Errorf("%+v, and then %+v", before, got)
	}
}

// A watch that has ended, or is inconsistent, begins another history, in which earlier writes are
// unknown.
func TestNewestAfterTheWatchEnded(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("default", "a"))
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
func TestNewestByKey(t *testing.T) {
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
