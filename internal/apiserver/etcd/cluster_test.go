package etcd

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/testing/etcdcluster"
)

// stores returns the ways to open a store: in this process, and in an etcd cluster.
func stores() map[string]func(testing.TB) *Store {
	return map[string]func(testing.TB) *Store{
		"in process": open,
		"elsewhere": func(t testing.TB) *Store {
			return connect(t, Cluster{Servers: etcdcluster.Start(t, 1, nil).URLs()})
		},
	}
}

func connect(t testing.TB, c Cluster) *Store {
	t.Helper()
	s, err := Connect(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// certificates creates the certificates of the members and of their clients.
func certificates(t testing.TB) (server, client transport.TLSInfo) {
	t.Helper()
	dir := t.TempDir()
	authority, err := auth.LoadAuthority(dir, time.Now)
	must(t, err)
	serving, err := authority.Serving(nil)
	must(t, err)
	admin, err := authority.Admin()
	must(t, err)
	files := func(name string, pair auth.Pair) transport.TLSInfo {
		info := transport.TLSInfo{
			TrustedCAFile: filepath.Join(dir, "ca.crt"), ClientCertAuth: true,
			CertFile: filepath.Join(dir, name+".crt"), KeyFile: filepath.Join(dir, name+".key"),
		}
		must(t, os.WriteFile(info.CertFile, pair.Certificate, 0o600))
		must(t, os.WriteFile(info.KeyFile, pair.Key, 0o600))
		return info
	}
	return files("serving", serving), files("admin", admin)
}

// A store with exclusive use of a cluster waits for no other server, but still uses the cluster.
func TestExclusiveStoreWaitsForNoOtherServer(t *testing.T) {
	urls := etcdcluster.Start(t, 1, nil).URLs()
	for exclusive, shared := range map[bool]bool{true: false, false: true} {
		s := connect(t, Cluster{Servers: urls, Exclusive: exclusive})
		if s.Shared() != shared || !s.isElsewhere() {
			t.Errorf("exclusive %t: shared %t, elsewhere %t", exclusive, s.Shared(), s.isElsewhere())
		}
		snapshot, err := s.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		snapshot.Close()
	}
}
