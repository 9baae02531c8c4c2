package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// save writes a snapshot to a file.
func (s *Store) save(t *testing.T) string {
	t.Helper()
	stream, err := s.Snapshot(t.Context())
	must(t, err)
	defer stream.Close()
	var saved bytes.Buffer
	must(t, CopySnapshot(&saved, stream))
	file := filepath.Join(t.TempDir(), "snapshot")
	must(t, os.WriteFile(file, saved.Bytes(), 0o600))
	return file
}

// Under load, a snapshot contains all writes that were acknowledged before its request. A restored
// store has revisions beyond all earlier ones, and a watch from an earlier revision fails (R4). The
// store accepts writes, and can be saved again.
func TestR4_SnapshotUnderLoad(t *testing.T) {
	s := open(t)
	var writing sync.WaitGroup
	var mu sync.Mutex
	var acknowledged []string
	ctx, stop := context.WithCancel(t.Context())
	for w := range 4 {
		writing.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				key := fmt.Sprintf("/configmaps/team/%d-%d", w, i)
				if _, err := s.client.Put(t.Context(), s.prefix+key, "x"); err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acknowledged = append(acknowledged, key)
				mu.Unlock()
			}
		})
	}
	eventually.Succeeds(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(acknowledged) < 500 {
			return errors.New("there is no load")
		}
		return nil
	})
	mu.Lock()
	before := slices.Clone(acknowledged)
	mu.Unlock()
	file := s.save(t)
	stop()
	writing.Wait()
	last, err := s.Revision(t.Context())
	must(t, err)

	restored := reopen(t, file)
	current := restored.keys(t)
	for _, key := range before {
		if !slices.Contains(current, key) {
			t.Fatalf("%s was acknowledged before the snapshot and is not in it", key)
		}
	}
	revision, err := restored.Revision(t.Context())
	must(t, err)
	if revision <= last {
		t.Errorf("the revision is %d, and was %d before", revision, last)
	}
	watch := <-restored.client.Watch(t.Context(), "/registry", clientv3.WithPrefix(), clientv3.WithRev(last))
	if !errors.Is(watch.Err(), rpctypes.ErrCompacted) {
		t.Errorf("a watch from before is told %v", watch.Err())
	}
	restored.put(t, "/configmaps/team/new", "x")
	again := reopen(t, restored.save(t))
	if got := again.keys(t); len(got) != len(current)+1 {
		t.Errorf("restored twice there are %d, want %d", len(got), len(current)+1)
	}
}

// reopen restores a snapshot and opens a store on it.
func reopen(t *testing.T, file string) *Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "etcd")
	must(t, Restore(file, dir))
	return openWith(t, Options{Dir: dir})
}

func TestRestoreRefusesDamagedSnapshots(t *testing.T) {
	s := open(t)
	s.put(t, "/configmaps/team/a", "x")
	whole, err := os.ReadFile(s.save(t))
	must(t, err)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for name, data := range map[string][]byte{
		"nothing":   nil,
		"no hash":   whole[:len(whole)-32],
		"cut short": whole[:len(whole)-1000],
		"one bit":   flipped,
		"too short": []byte("snapshot"),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "snapshot")
			must(t, os.WriteFile(file, data, 0o600))
			dir := filepath.Join(t.TempDir(), "etcd")
			err := Restore(file, dir)
			if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), file) {
				t.Errorf("%v, want that it is damaged", err)
			}
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				t.Errorf("it has left something: %v", err)
			}
		})
	}
}

// CopySnapshot finds the checksum for any split of the data.
func TestChecksumIsFoundInAnyPieces(t *testing.T) {
	s := open(t)
	whole, err := os.ReadFile(s.save(t))
	must(t, err)
	for _, n := range []int{1, 31, 32, 33, 4096, len(whole)} {
		c := &checksum{sum: sha256.New()}
		for piece := range slices.Chunk(whole, n) {
			_, _ = c.Write(piece)
		}
		if !c.matches() {
			t.Errorf("in pieces of %d it does not match", n)
		}
	}
}

// A snapshot of a cluster contains all acknowledged writes, even from a member that was down
// before, and even if the first member is down. It can be restored in this process.
func TestSnapshotOfAClusterHasAllAcknowledgedWrites(t *testing.T) {
	t.Parallel()
	c := etcdcluster.Start(t, 3, nil)
	s := connect(t, Cluster{Servers: c.URLs()})
	c.Stop(1)
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprintf("/configmaps/team/%02d", i))
		eventually.Succeeds(t, func() error { // the client may not have noticed yet that its connection is lost
			_, err := s.client.Put(t.Context(), s.prefix+keys[i], "x")
			return err
		})
	}
	c.Restart(t, 1)
	c.Stop(0) // it would be the first in turn

	file := s.save(t)
	dir := filepath.Join(t.TempDir(), "etcd")
	must(t, Restore(file, dir))
	restored := openWith(t, Options{Dir: dir, Ephemeral: true})
	if all := restored.keys(t); !slices.Equal(all, keys) {
		t.Errorf("restored are %v", all)
	}
	if now, err := restored.Revision(t.Context()); err != nil || now < revisionBump {
		t.Errorf("at revision %d, %v", now, err)
	}

	c.Stop(2) // without a majority no write is acknowledged
	if stream, err := s.Snapshot(t.Context()); err == nil {
		stream.Close()
		t.Error("a snapshot of who knows what")
	}
}
