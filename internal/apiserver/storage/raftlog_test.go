package storage

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The member keeps the last hundred values in memory, until it is to shorten its log. (What tests before this one leave
// may be freed meanwhile; it makes nothing fail.)
func TestRaftLogIsShortened(t *testing.T) {
	const size, n = 1 << 20, 60
	live := func() int {
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		return int(stats.HeapAlloc) //nolint:gosec // fits
	}
	s := open(t)
	contents := s.configMapStorage(t)
	must(t, s.shortenLog(t.Context())) // there is nothing to do
	entries := s.member.Server.AppliedIndex()
	for i := range n {
		object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: fmt.Sprint(i)}, BinaryData: map[string][]byte{"data": make([]byte, size)}}
		must(t, contents.Create(t.Context(), contents.key("team", object.Name), object, nil, 0))
	}
	before := live()
	must(t, s.shortenLog(t.Context()))
	eventually.Succeeds(t, func() error {
		if freed := before - live(); freed < n*size-raftBytes {
			return fmt.Errorf("%d bytes of %d were freed", freed, n*size)
		}
		return nil
	})
	after := s.member.Server.AppliedIndex()
	must(t, s.shortenLog(t.Context()))
	if again := s.member.Server.AppliedIndex(); after-entries < n+raftEntries || again-after > raftEntries/2 {
		t.Errorf("%d entries were logged, then %d, want %d, then none", after-entries, again-after, n+raftEntries)
	}
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
