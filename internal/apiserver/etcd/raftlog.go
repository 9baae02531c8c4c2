package etcd

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// raftEntries is the number of entries after which the member in this process drops earlier entries from memory:
	// memorySnapshotCount of etcd's server/etcdserver, plus one.
	raftEntries = 101
	// raftBytes is the least number of bytes of the last raftEntries values for which shortenLog drops them.
	raftBytes = 8 << 20
	// bufferCommits is the number of commits after which etcd's buffer of writes is dropped.
	bufferCommits = 2
)

// raftLog counts the bytes of the last values that this process has written.
//
// Problem: the member keeps the last hundred entries of its log in memory for its followers, although it has none, and
// no option lowers the number. A hundred objects of 1.5 MB are 150 MB. The buffer of its latest writes has a slot for
// each write of 100 ms, and each slot keeps its value until another write takes the slot.
//
// Solution: some seconds after large writes, the store makes the member log entries without content. Then it makes the
// member commit twice without a write: a commit drops the buffer that had no write since the commit before.
//
// Benefit: 400 objects of 1 MB leave up to 100 MB less. TestRaftLogIsShortened fails without it.
type raftLog struct {
	mu    sync.Mutex
	sizes [raftEntries]int // guarded by mu, like all fields below; a ring
	next  int
	bytes int // of all
}

// wrote counts a value.
func (l *raftLog) wrote(bytes int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes += bytes - l.sizes[l.next]
	l.sizes[l.next] = bytes
	l.next = (l.next + 1) % raftEntries
}

// countingKV counts the values that are written in transactions, as those of all objects are.
type countingKV struct {
	clientv3.KV
	log *raftLog
}

// Txn implements clientv3.KV.
func (k countingKV) Txn(ctx context.Context) clientv3.Txn { return countingTxn{k.KV.Txn(ctx), k.log} }

// countingTxn is a transaction that counts the values that it writes if its conditions hold. An attempt counts, too.
type countingTxn struct {
	clientv3.Txn
	log *raftLog
}

// If implements clientv3.Txn.
func (t countingTxn) If(conditions ...clientv3.Cmp) clientv3.Txn {
	return countingTxn{t.Txn.If(conditions...), t.log}
}

// Then implements clientv3.Txn.
func (t countingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	bytes := 0
	for _, op := range ops {
		bytes += len(op.ValueBytes())
	}
	if bytes > 0 {
		t.log.wrote(bytes)
	}
	return countingTxn{t.Txn.Then(ops...), t.log}
}

// Else implements clientv3.Txn.
func (t countingTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return countingTxn{t.Txn.Else(ops...), t.log}
}

// takeLarge reports whether the last values are large, and then forgets them.
func (l *raftLog) takeLarge() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes < raftBytes {
		return false
	}
	l.sizes, l.bytes = [raftEntries]int{}, 0
	return true
}

// shortenLog makes the member drop its last log entries from memory if they are large.
func (s *Store) shortenLog(ctx context.Context) error {
	if s.isElsewhere() || !s.raftLog.takeLarge() {
		return nil
	}
	for range raftEntries {
		if _, err := s.client.AlarmList(ctx); err != nil { // adds a log entry, and changes nothing
			return fmt.Errorf("shorten the log of etcd: %w", Cause(err))
		}
	}
	for range bufferCommits {
		s.member.Server.KV().Commit()
	}
	return nil
}
