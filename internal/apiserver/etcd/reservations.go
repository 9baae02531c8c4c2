package etcd

import (
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// uniquePrefix is the prefix of the keys that reserve unique values for objects below DefaultPrefix.
	uniquePrefix = "/coppice/unique/"
	// uniqueElsewhere is the prefix of these keys for objects below another prefix, which follows.
	uniqueElsewhere = "/coppice/unique-below"
)

// UniquePrefix returns the prefix of the keys that reserve unique values for objects. The value of such a key is the key of
// the object that has the unique value. Control planes with different prefixes share no values. Nothing lists or watches
// these keys.
func (s *Store) UniquePrefix() string {
	if s.prefix == DefaultPrefix {
		return uniquePrefix
	}
	return uniqueElsewhere + s.prefix + "/"
}

// Release returns the operation that removes a reservation, unless another object has it.
func Release(reservation, holder string) clientv3.Op {
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
