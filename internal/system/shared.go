package system

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

// agreedAuthority is the name under which control planes on one etcd store the fingerprint of their
// certificate authority.
const agreedAuthority = "certificate-authority"

// openStore starts the etcd in this process, or connects to the cluster.
func openStore(ctx context.Context, o completedOptions, dir *workDir) (*etcd.Store, error) {
	if len(o.Etcd.Servers) > 0 {
		return etcd.Connect(ctx, o.Etcd)
	}
	return etcd.Open(ctx, etcd.Options{
		Dir: dir.join(etcdDir), Ephemeral: o.Ephemeral, QuotaBytes: o.QuotaBytes, Log: o.Log, FatalLog: os.Stderr,
	})
}

// loadAuthority reads the certificate authority, or creates it at the first start. Control planes that
// share an etcd must have the same one: a client has one certificate and trusts one authority, whichever
// control plane serves it. The first one stores the fingerprint in etcd, and a control plane with another
// authority does not start.
func loadAuthority(ctx context.Context, o completedOptions, dir *workDir, store *etcd.Store) (*auth.Authority, error) {
	path := o.PKIDir
	if path == "" {
		path = dir.join(pkiDir)
	}
	authority, err := loadAlone(path)
	if err != nil || !store.Shared() {
		return authority, err
	}
	agreed, err := store.Agree(ctx, agreedAuthority, authority.Fingerprint())
	if err != nil {
		return nil, err
	}
	if agreed != authority.Fingerprint() {
		return nil, fmt.Errorf("control planes on this etcd have the certificate authority %.16s, and %s holds another, %.16s: "+
			"give --pki-dir a copy of the directory that they use", agreed, path, authority.Fingerprint())
	}
	return authority, nil
}

// loadAlone locks the directory, so that control planes that start on it at the same time do not create two
// authorities.
func loadAlone(path string) (*auth.Authority, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory of the certificate authority: %w", err)
	}
	lock, err := fileutil.LockFile(filepath.Join(path, lockFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the directory of the certificate authority: %w", err)
	}
	defer lock.Close()
	return auth.LoadAuthority(path, time.Now) //nolint:forbidigo // dependencies are assembled here
}
