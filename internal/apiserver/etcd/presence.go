package etcd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Presence announces a server to all servers that share the store. It is a key with a lease of
// etcd: it expires if the server does not renew it, for any reason. It is not safe for concurrent
// use.
type Presence struct {
	client      *clientv3.Client
	group, name string // the prefix of the group's keys, with a slash at the end, and the rest of the key
	seconds     int64  // time to live
	lease       clientv3.LeaseID
}

// Presence returns the presence of a server with a name in a group. It begins with Renew, and ends
// when it was not renewed for the time to live, which is rounded up to seconds. A server without a
// name can only read the names of others.
func (s *Store) Presence(group, name string, timeToLive time.Duration) *Presence {
	return &Presence{
		client: s.client, group: s.agreementKey(group) + "/", name: name,
		seconds: int64((timeToLive + time.Second - 1) / time.Second),
	}
}

// Renew begins the presence, or prolongs it.
func (p *Presence) Renew(ctx context.Context) error {
	if p.name == "" {
		return nil
	}
	if p.lease != clientv3.NoLease {
		switch _, err := p.client.KeepAliveOnce(ctx, p.lease); {
		case err == nil:
			return nil
		case !errors.Is(err, rpctypes.ErrLeaseNotFound):
			return fmt.Errorf("renew %s in etcd: %w", p.key(), Cause(err))
		}
		p.lease = clientv3.NoLease // it has expired
	}
	lease, err := p.client.Grant(ctx, p.seconds)
	if err != nil {
		return fmt.Errorf("get a lease from etcd: %w", Cause(err))
	}
	if _, err := p.client.Put(ctx, p.key(), "", clientv3.WithLease(lease.ID)); err != nil {
		return fmt.Errorf("write %s to etcd: %w", p.key(), Cause(err))
	}
	p.lease = lease.ID
	return nil
}

// Names returns the names of all servers that are present in the group, in order.
func (p *Presence) Names(ctx context.Context) ([]string, error) {
	got, err := p.client.Get(ctx, p.group, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("read %s from etcd: %w", path.Clean(p.group), Cause(err))
	}
	var names []string
	for _, kv := range got.Kvs {
		names = append(names, strings.TrimPrefix(string(kv.Key), p.group))
	}
	return names, nil
}

// End ends the presence at once, if it has begun.
func (p *Presence) End(ctx context.Context) error {
	if p.lease == clientv3.NoLease {
		return nil
	}
	if _, err := p.client.Revoke(ctx, p.lease); err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("remove %s from etcd: %w", p.key(), Cause(err))
	}
	p.lease = clientv3.NoLease
	return nil
}

func (p *Presence) key() string { return p.group + p.name }
