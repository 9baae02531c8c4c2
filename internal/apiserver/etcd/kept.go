package etcd

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Kept are values that servers on one store keep for each other for a limited time. It is safe for concurrent use.
type Kept struct {
	client *clientv3.Client
	group  string // the prefix of the keys, with a slash at the end
}

// Kept returns the values of a group.
func (s *Store) Kept(group string) Kept { return Kept{s.client, s.agreementKey(group) + "/"} }

// Put keeps a value under a name for a time, which is rounded up to seconds.
func (k Kept) Put(ctx context.Context, name string, value []byte, timeToLive time.Duration) error {
	lease, err := k.client.Grant(ctx, int64((timeToLive+time.Second-1)/time.Second))
	if err != nil {
		return fmt.Errorf("get a lease from etcd: %w", Cause(err))
	}
	if _, err := k.client.Put(ctx, k.group+name, string(value), clientv3.WithLease(lease.ID)); err != nil {
		return fmt.Errorf("write %s to etcd: %w", k.group+name, Cause(err))
	}
	return nil
}

// Names returns the names of all values that are kept, in order.
func (k Kept) Names(ctx context.Context) ([]string, error) {
	got, err := k.client.Get(ctx, k.group, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", path.Clean(k.group), Cause(err))
	}
	var names []string
	for _, kv := range got.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), k.group))
	}
	return names, nil
}

// Get returns a value; nil if it is kept no longer.
func (k Kept) Get(ctx context.Context, name string) ([]byte, error) {
	got, err := k.client.Get(ctx, k.group+name)
	if err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", k.group+name, Cause(err))
	}
	if len(got.Kvs) == 0 {
		return nil, nil
	}
	return got.Kvs[0].Value, nil
}
