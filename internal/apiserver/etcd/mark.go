package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

// Mark is a state of all objects, with their reservations, to which Store.Return leads back. It is not safe for concurrent
// use.
type Mark struct {
	below    string            // the prefix of the keys of all objects
	keys     map[string]Stored // by key
	reserved reservations
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

// Mark returns the present state of all objects. If their values have more than 256 MiB, the error is ErrMarkTooLarge.
func (s *Store) Mark(ctx context.Context) (*Mark, error) {
	m, size := &Mark{below: s.prefix + "/", keys: map[string]Stored{}, reserved: newReservations()}, 0
	revision, err := s.Revision(ctx) // of both reads
	if err != nil {
		return nil, err
	}
	fits := func(o Stored) bool {
		size += len(o.Key) + len(o.Value)
		return size <= mostMarked
	}
	err = s.follower.ReadAll(ctx, m.below, "", revision, func(o Stored) bool {
		m.keys[o.Key] = o
		return fits(o)
	})
	if err != nil {
		return nil, err
	}
	err = s.follower.ReadAll(ctx, s.UniquePrefix(), "", revision, func(o Stored) bool {
		m.reserved.add(o.Key, string(o.Value), o.Revision)
		return fits(o)
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
// of that revision. The reservations of an object follow it in the same transaction.
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
	kind      Difference
	revision  int64  // at which the key was written last; 0 if it is gone
	value     []byte // that the mark has
	recreated bool   // the key was deleted and created again, so it is another object

	reserve map[string]int64 // the missing reservations, with the revision of the reservation of another object, or 0
	release []string         // the reservations that the mark does not have
	blocked bool             // an object that Return leaves has one of the missing reservations
}

// differences returns how the included keys differ from a mark.
func (s *Store) differences(ctx context.Context, m *Mark, includes func(key string, d Difference) bool) (map[string]difference, error) {
	present, reserved, err := s.present(ctx, m.below)
	if err != nil {
		return nil, err
	}
	found := map[string]difference{}
	note := func(key string, d difference) {
		if includes(strings.TrimPrefix(key, m.below), d.kind) {
			found[key] = d
		}
	}
	for key, kv := range present {
		switch marked, ok := m.keys[key]; {
		case !ok:
			note(key, difference{kind: Made, revision: kv.ModRevision})
		case marked.Revision != kv.ModRevision:
			note(key, difference{kind: Changed, revision: kv.ModRevision, value: marked.Value, recreated: kv.CreateRevision > marked.Revision})
		}
	}
	for key, marked := range m.keys {
		if _, ok := present[key]; !ok {
			note(key, difference{kind: Gone, value: marked.Value})
		}
	}
	for key, d := range found {
		d.release = reserved.notOf(m.reserved, key)
		d.reserve = map[string]int64{}
		for _, missing := range m.reserved.notOf(reserved, key) {
			other := reserved.holders[missing]
			_, exists := present[other.key]
			_, returns := found[other.key]
			d.reserve[missing], d.blocked = other.revision, d.blocked || exists && !returns
		}
		found[key] = d
	}
	return found, nil
}

// present returns all objects below a prefix, without their values, and their reservations.
func (s *Store) present(ctx context.Context, below string) (map[string]*mvccpb.KeyValue, reservations, error) {
	read, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(below, clientv3.WithPrefix(), clientv3.WithKeysOnly()), clientv3.OpGet(s.UniquePrefix(), clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, reservations{}, readError(err)
	}
	objects, reserved := map[string]*mvccpb.KeyValue{}, newReservations()
	for _, kv := range read.Responses[0].GetResponseRange().GetKvs() {
		objects[string(kv.Key)] = kv
	}
	for _, kv := range read.Responses[1].GetResponseRange().GetKvs() {
		reserved.add(string(kv.Key), string(kv.Value), kv.ModRevision)
	}
	return objects, reserved, nil
}

// undo undoes a difference unless the key has been written since. It returns the revision of its last write, or 0.
func (s *Store) undo(ctx context.Context, key string, d difference) (int64, error) {
	if d.blocked {
		return 0, nil
	}
	remove, restore := clientv3.OpDelete(key), clientv3.OpPut(key, string(d.value))
	if d.kind == Made {
		return s.write(ctx, remove, d)
	}
	if d.recreated {
		// Watches get a DELETED event for the UID that goes. From one MODIFIED event with another UID, the collector would never
		// learn that it is gone.
		if revision, err := s.write(ctx, remove, difference{revision: d.revision}); err != nil || revision == 0 {
			return 0, err
		}
		d.revision = 0
	}
	return s.write(ctx, restore, d)
}

// write writes or deletes the key of a difference, with its reservations, unless the key or a reservation has been written
// since. It returns the revision, or 0.
func (s *Store) write(ctx context.Context, op clientv3.Op, d difference) (int64, error) {
	key, ops := string(op.KeyBytes()), []clientv3.Op{op}
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", d.revision)}
	for reservation, revision := range d.reserve {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(reservation), "=", revision))
		ops = append(ops, clientv3.OpPut(reservation, key))
	}
	ops = append(ops, Releases(d.release, key)...)
	response, err := s.client.Txn(ctx).If(conditions...).Then(ops...).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return 0, fmt.Errorf("write %s: %w", key, ErrTooManyReserved)
	case err != nil:
		return 0, fmt.Errorf("write %s: %w", key, Cause(err))
	case !response.Succeeded:
		return 0, nil
	}
	return response.Header.Revision, nil
}
