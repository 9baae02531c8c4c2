package apiserver_test

import (
	"slices"
	"testing"
	"time"
)

// A consistent list of an idle resource waits until the watch cache knows that it is up to date. With the
// interval of k8s.io/apiserver, the second of two consecutive lists always waits 100 ms; package storage
// makes the interval shorter. So most pairs of lists take less, even on a busy machine.
func TestConsistentListsDoNotWaitForATick(t *testing.T) {
	const pairs, limit = 21, 90 * time.Millisecond
	s := startServer(t, nil)
	namespace := s.namespace(t)
	quiet, busy := s.collection(t, gvk("", "v1", "Secret"), "secrets", namespace, nil), s.configMaps(t, namespace)
	var took []time.Duration
	for range pairs {
		began := time.Now()
		for range 2 {
			// After this write, the watch cache of the other resource may be out of date.
			busy.create(unique("a"))
			quiet.list()
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	if median := took[pairs/2]; median > limit {
		t.Errorf("two lists take %s in the median, want at most %s: %v", median, limit, took)
	}
}
