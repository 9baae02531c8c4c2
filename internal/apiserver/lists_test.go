package apiserver_test

import (
	"testing"
	"time"
)

// Consistent lists of a resource that is quiet, one after the other: the library alone
// takes 100 ms for each but the first. The fastest of some tells, as a busy machine
// makes any of them slow. (What the library waits for is a constant of its; package
// storage makes it shorter.)
func TestConsistentListsDoNotWaitForATick(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	namespace := s.namespace(t)
	quiet, busy := s.collection(t, gvk("", "v1", "Secret"), "secrets", namespace, nil), s.configMaps(t, namespace)
	fastest := time.Hour
	for range 10 {
		began := time.Now()
		for range 2 {
			// So that the watch cache of the other resource cannot know to be up to date.
			busy.create(unique("a"))
			quiet.list()
		}
		fastest = min(fastest, time.Since(began))
	}
	if fastest > 90*time.Millisecond {
		t.Errorf("two lists take %s at best", fastest)
	}
}
