package etcd

import (
	"fmt"
	"runtime"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

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
	before := live()
	for i := range n {
		s.create(t, fmt.Sprint("/configmaps/team/", i), string(make([]byte, size)))
	}
	must(t, s.shortenLog(t.Context()))
	eventually.Succeeds(t, func() error {
		if kept := live() - before; kept > n*size/2 {
			return fmt.Errorf("%d bytes of %d are still in memory", kept, n*size)
		}
		return nil
	})
}

// create writes a value as the storage of an object does.
func (s *Store) create(t *testing.T, key, value string) {
	t.Helper()
	key = s.prefix + key
	_, err := s.client.Txn(t.Context()).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	must(t, err)
}

// The member counts the values that transactions write.
func TestWrittenValuesAreCounted(t *testing.T) {
	s := open(t)
	const size = 1 << 20
	s.create(t, "/configmaps/team/a", string(make([]byte, size)))
	if _, err := s.client.Txn(t.Context()).Then(clientv3.OpGet("/a"), clientv3.OpDelete("/a")).Commit(); err != nil {
		t.Fatal(err)
	}
	s.raftLog.mu.Lock()
	defer s.raftLog.mu.Unlock()
	if s.raftLog.bytes < size || s.raftLog.bytes > size+1000 {
		t.Errorf("%d bytes are counted, want %d", s.raftLog.bytes, size)
	}
}

// Values count as long as they are among the last raftEntries, and once.
func TestLargeValuesCountOnceWhileInTheLog(t *testing.T) {
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
