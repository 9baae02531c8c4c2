package etcd

import (
	"errors"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// uniquePrefix is the prefix of the keys that reserve unique values for objects below DefaultPrefix.
	uniquePrefix = "/coppice/unique/"
	// uniqueElsewhere is the prefix of these keys for objects below another prefix, which follows.
	uniqueElsewhere = "/coppice/unique-below"

	// releasesTogether bounds the operations that Releases adds to each level of a transaction.
	releasesTogether = 8
)

// ErrTooManyReserved is the error of a write for rpctypes.ErrTooManyOps. A write reserves each new value under a condition of
// its own, so only the number of new values can exceed the limit (Releases). A member in this process has a limit that no
// object reaches.
//
// With the default limit, a write may reserve about 120 values, and 90 values if it also releases thousands.
var ErrTooManyReserved = errors.New("the object gets more node ports or other unique values at once than one transaction of etcd can reserve: " +
	"add at most 90 with each write, or start etcd with a higher --max-txn-ops than its default of 128")

// UniquePrefix returns the prefix of the keys that reserve unique values for objects. The value of such a key is the key of
// the object that has the unique value. Control planes with different prefixes share no values. Nothing lists or watches
// these keys.
func (s *Store) UniquePrefix() string {
	if s.prefix == DefaultPrefix {
		return uniquePrefix
	}
	return uniqueElsewhere + s.prefix + "/"
}

// Releases returns operations of one transaction that remove reservations, except those that another object has.
//
// An object may have got its reservations in many transactions, and one transaction must remove all of them. So the operations
// are a tree: etcd limits the operations of a transaction together with those on the way to its deepest nested one, 128 by
// default, and a tree of 4096 reservations has 33 of them on each way.
func Releases(reservations []string, holder string) []clientv3.Op {
	ops := make([]clientv3.Op, 0, len(reservations))
	for _, reservation := range reservations {
		ops = append(ops, release(reservation, holder))
	}
	for len(ops) > releasesTogether {
		var nested []clientv3.Op
		for together := range slices.Chunk(ops, releasesTogether) {
			nested = append(nested, clientv3.OpTxn(nil, together, nil))
		}
		ops = nested
	}
	return ops
}

// release returns the operation that removes a reservation, unless another object has it.
func release(reservation, holder string) clientv3.Op {
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.Value(reservation), "=", holder)}, []clientv3.Op{clientv3.OpDelete(reservation)}, nil)
}

// reservations are the keys that reserve unique values, at one revision.
type reservations struct {
	holders map[string]holder   // by reservation
	of      map[string][]string // by the key of their object
}

// holder is the object that has a reservation.
type holder struct {
	key      string
	revision int64 // of the reservation
}

func newReservations() reservations {
	return reservations{holders: map[string]holder{}, of: map[string][]string{}}
}

func (r reservations) add(reservation, object string, revision int64) {
	r.holders[reservation] = holder{object, revision}
	r.of[object] = append(r.of[object], reservation)
}

// notOf returns the reservations of an object that it does not have in others.
func (r reservations) notOf(others reservations, object string) []string {
	return slices.DeleteFunc(slices.Clone(r.of[object]), func(reservation string) bool { return others.holders[reservation].key == object })
}
