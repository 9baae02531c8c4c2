package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// mostMarked bounds the values of a Mark, in bytes.
	mostMarked = 256 << 20
	// returning is the number of concurrent writes of Return.
	returning = 16
)

// ErrMarkTooLarge is the error of a Mark of too many objects.
var ErrMarkTooLarge = fmt.Errorf("the objects have more than %d MiB, the most that a mark can have", mostMarked>>20)

// Mark is a state of all keys, to which Store.Return leads back. It is not safe for concurrent use.
type Mark struct {
	below string            // the prefix of all keys
	keys  map[string]Stored // by key
}

// Has reports whether a mark has a key, given its part after Prefix and a slash.
func (m *Mark) Has(key string) bool {
	_, ok := m.keys[m.below+key]
	return ok
}

// Difference is how a key differs from a Mark.
type Difference int

const (
	// Made is a key that the mark does not have.
	Made Difference = iota
	// Changed is a key that was written after the mark.
	Changed
	// Gone is a key that was deleted after the mark.
	Gone
)

// Returned is the result of Return.
type Returned struct {
	Deleted, Restored int
	// Missed are the keys that somebody else has written at the same time.
	Missed int
	// Writes has the latest revision that Return has written, by resource.
	Writes map[schema.GroupResource]int64
}

// None reports whether there was nothing to do.
func (r Returned) None() bool { return r.Deleted == 0 && r.Restored == 0 && r.Missed == 0 }

// add adds a write.
func (r *Returned) add(d Difference, resource schema.GroupResource, revision int64) {
	if d == Made {
		r.Deleted++
	} else {
		r.Restored++
	}
	r.Writes[resource] = max(r.Writes[resource], revision)
}

// Mark returns the present state of all keys. If their values have more than 256 MiB, the error is ErrMarkTooLarge.
func (s *Store) Mark(ctx context.Context) (*Mark, error) {
	m, size := &Mark{below: s.prefix + "/", keys: map[string]Stored{}}, 0
	err := s.follower.ReadAll(ctx, m.below, "", 0, func(o Stored) bool {
		m.keys[o.Key] = o
		size += len(o.Key) + len(o.Value)
		return size <= mostMarked
	})
	if err != nil {
		return nil, err
	}
	if size > mostMarked {
		return nil, ErrMarkTooLarge
	}
	return m, nil
}

// Return leads back to a mark: it deletes the keys that the mark does not have, and writes those that were changed or
// deleted as they were. It leaves the keys for which includes is false; the part of a key after Prefix and a slash is
// passed. Each write has a revision of its own, because a watch that resumes after a revision does not get other events
// of that revision.
func (s *Store) Return(ctx context.Context, m *Mark, includes func(key string, d Difference) bool) (Returned, error) {
	differences, err := s.differences(ctx, m, includes)
	result := Returned{Writes: map[schema.GroupResource]int64{}}
	if err != nil {
		return result, err
	}
	var mu sync.Mutex // guards result and m.keys
	group, writing := errgroup.WithContext(ctx)
	group.SetLimit(returning)
	for key, d := range differences {
		group.Go(func() error {
			revision, err := s.undo(writing, key, d)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if revision == 0 {
				result.Missed++
				return nil
			}
			if d.kind != Made {
				m.keys[key] = Stored{Key: key, Value: d.value, Revision: revision}
			}
			result.add(d.kind, s.newest.resourceOf(key), revision)
			return nil
		})
	}
	return result, group.Wait()
}

// difference is the difference of a key.
type difference struct {
	kind     Difference
	revision int64  // at which the key was written last; 0 if it is gone
	value    []byte // that the mark has
}

// differences returns how the included keys differ from a mark.
func (s *Store) differences(ctx context.Context, m *Mark, includes func(key string, d Difference) bool) (map[string]difference, error) {
	found := map[string]difference{}
	note := func(key string, d difference) {
		if includes(strings.TrimPrefix(key, m.below), d.kind) {
			found[key] = d
		}
	}
	present, err := s.client.Get(ctx, m.below, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, readError(err)
	}
	seen := make(map[string]bool, len(present.Kvs))
	for _, kv := range present.Kvs {
		key := string(kv.Key)
		seen[key] = true
		switch marked, ok := m.keys[key]; {
		case !ok:
			note(key, difference{kind: Made, revision: kv.ModRevision})
		case marked.Revision != kv.ModRevision:
			note(key, difference{Changed, kv.ModRevision, marked.Value})
		}
	}
	for key, marked := range m.keys {
		if !seen[key] {
			note(key, difference{kind: Gone, value: marked.Value})
		}
	}
	return found, nil
}

// undo undoes a difference unless the key has been written since. It returns the revision of its write, or 0.
func (s *Store) undo(ctx context.Context, key string, d difference) (int64, error) {
	write := clientv3.OpPut(key, string(d.value))
	if d.kind == Made {
		write = clientv3.OpDelete(key)
	}
	response, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", d.revision)).Then(write).Commit()
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", key, Cause(err))
	}
	if !response.Succeeded {
		return 0, nil
	}
	return response.Header.Revision, nil
}
