package storage

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The member keeps the last hundred values in memory, until shortenLog. (The store also calls it itself, when the
// writes take longer than its interval. Memory of earlier tests may be freed meanwhile; then this test proves less, and
// does not fail.)
func TestRaftLogIsShortened(t *testing.T) {
	const size, n = 1 << 20, 60
	live := func() int {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc)
	}
	s := open(t)
	contents := s.configMapStorage(t)
	before := live()
	for i := range n {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint(i)}, BinaryData: map[string][]byte{"data": make([]byte, size)}}
		must(t, contents.Create(t.Context(), contents.key("team", object.Name), object, nil, 0))
	}
	must(t, s.shortenLog(t.Context()))
	eventually.Succeeds(t, func() error {
		if kept := live() - before; kept > n*size/2 {
			return fmt.Errorf("%d bytes of %d are still in memory", kept, n*size)
		}
		return nil
	})
}

// Values count as long as they are among the last raftEntries, and once.
func TestLargeValuesCount(t *testing.T) {
	var log raftLog
	log.wrote(raftBytes - 1)
	if log.takeLarge() {
		t.Error("a value that is not large counts")
	}
	log.wrote(1)
	if !log.takeLarge() || log.takeLarge() {
		t.Error("large values count once")
	}
	log.wrote(raftBytes)
	for range raftEntries {
		log.wrote(0)
	}
	if log.takeLarge() {
		t.Error("a value counts that is no longer in the log")
	}
}
