package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	// connectTimeout bounds the first response of an etcd cluster.
	connectTimeout = 10 * time.Second

	// Keepalives detect a member that hangs, as opposed to a member that has stopped.
	keepaliveTime    = 5 * time.Second
	keepaliveTimeout = 3 * time.Second
)

// Cluster is the address of an etcd cluster, with the credentials for it.
type Cluster struct {
	// Servers are the URLs of its members.
	Servers []string
	// CAFile contains the certificate authorities, in PEM, that verify the members' certificates.
	// Default: the authorities of the system.
	CAFile string
	// CertFile and KeyFile contain the client certificate and its key, in PEM. Both or neither must
	// be set.
	CertFile, KeyFile string
	// Prefix is the prefix of all keys. Default: DefaultPrefix. Control planes that share a cluster
	// but not the objects need different prefixes.
	Prefix string
	// Exclusive promises that no other control plane uses the objects while this one does. Then it
	// need not wait for them: it starts controllers and establishes definitions at once.
	Exclusive bool
}

// Validate validates the fields without connecting.
func (c Cluster) Validate() error {
	secure := 0
	for _, server := range c.Servers {
		u, err := url.Parse(server)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("etcd server %q is not a URL such as https://10.0.0.1:2379", server)
		}
		if u.Scheme == "https" {
			secure++
		}
	}
	switch {
	case len(c.Servers) == 0:
		return errors.New("no etcd server is named")
	case secure != 0 && secure != len(c.Servers):
		return errors.New("some etcd servers are https and some are not")
	case (c.CertFile == "") != (c.KeyFile == ""):
		return errors.New("a client certificate for etcd and its key go together")
	case secure == 0 && (c.CAFile != "" || c.CertFile != ""):
		return errors.New("certificates for etcd servers that are not https")
	}
	return nil
}

// Connect returns the store of an etcd cluster once the cluster responds. The error names the
// servers that did not respond.
func Connect(ctx context.Context, c Cluster) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	secure, err := c.tls()
	if err != nil {
		return nil, fmt.Errorf("read the certificates for etcd: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: c.Servers, TLS: secure, Logger: zap.NewNop(),
		DialKeepAliveTime: keepaliveTime, DialKeepAliveTimeout: keepaliveTimeout,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd: %w", err)
	}
	prefix := c.Prefix
	if prefix == "" {
		prefix = DefaultPrefix
	}
	watches := addressingWatchClient{etcdserverpb.NewWatchClient(client.ActiveConnection())}
	client.Watcher = streamWatcher{clientv3.NewWatchFromWatchClient(watches, client)}
	s := &Store{client: client, tls: secure, exclusive: c.Exclusive, prefix: path.Join("/", prefix)}
	s.newest = newNewest(client, s.prefix)
	s.follower = newFollower(s)
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if err := s.reach(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	if s.opened, err = s.Revision(ctx); err != nil {
		_ = client.Close()
		return nil, err
	}
	s.compact()
	return s, nil
}

// tls returns nil if the servers do not use https.
func (c Cluster) tls() (*tls.Config, error) {
	if !strings.HasPrefix(c.Servers[0], "https:") {
		return nil, nil // etcd's client expects nil then
	}
	info := transport.TLSInfo{CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.CAFile}
	config, err := info.ClientConfig()
	if err != nil {
		return nil, err
	}
	config.MinVersion = tls.VersionTLS12 // the minimum of etcd's servers
	return config, nil
}

// Agree stores a value for all servers that share the store, unless a value is already stored under
// that name. It returns the stored value.
func (s *Store) Agree(ctx context.Context, name, value string) (string, error) {
	key := s.agreementKey(name)
	txn, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, value)).Else(clientv3.OpGet(key)).Commit()
	switch {
	case err != nil:
		return "", fmt.Errorf("write %s to etcd: %w", key, Cause(err))
	case txn.Succeeded:
		return value, nil
	}
	current := txn.Responses[0].GetResponseRange().GetKvs()
	if len(current) == 0 {
		return "", fmt.Errorf("read %s from etcd: it is not there", key)
	}
	return string(current[0].Value), nil
}

// agreementKey returns the key of a value that servers agree on. No resource has keys with this
// prefix.
func (s *Store) agreementKey(name string) string { return path.Join(s.prefix, "coppice", name) }
