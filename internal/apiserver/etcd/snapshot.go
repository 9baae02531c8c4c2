package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// revisionBump is the amount by which a restore raises the revision: beyond any revision that the
// store may have reached after the snapshot was taken, which would take four days at three thousand
// writes per second. So no revision is ever used twice, and a watch that resumes from an earlier
// revision must list again.
const revisionBump = 1_000_000_000

// ErrDamaged is the error for a snapshot whose checksum does not match.
var ErrDamaged = errors.New("it is not a snapshot, or is damaged: its checksum does not match its contents")

// Snapshot streams the state of the store in etcd's format: the database and, in the last 32 bytes,
// its SHA-256. It contains every write that was acknowledged before the call, and also the keys of
// other users of an etcd cluster.
func (s *Store) Snapshot(ctx context.Context) (io.ReadCloser, error) {
	if s.isElsewhere() {
		return s.snapshotOfCluster(ctx)
	}
	stream, err := s.client.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("take a snapshot: %w", Cause(err))
	}
	return stream, nil
}

// snapshotOfCluster tries the members of a cluster one by one.
func (s *Store) snapshotOfCluster(ctx context.Context) (io.ReadCloser, error) {
	var refusals []error
	for _, endpoint := range s.client.Endpoints() {
		stream, err := s.snapshotOf(ctx, endpoint)
		if err == nil {
			return stream, nil
		}
		refusals = append(refusals, fmt.Errorf("%s: %w", endpoint, Cause(err)))
		if ctx.Err() != nil {
			break
		}
	}
	return nil, fmt.Errorf("take a snapshot of the etcd cluster: %w", errors.Join(refusals...))
}

// snapshotOf takes the snapshot of one member. A member may lag behind the others. A linearizable
// read returns only when it has caught up.
func (s *Store) snapshotOf(ctx context.Context, endpoint string) (io.ReadCloser, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, TLS: s.tls, Logger: zap.NewNop(),
		DialKeepAliveTime: keepaliveTime, DialKeepAliveTimeout: keepaliveTimeout,
	})
	if err != nil {
		return nil, err
	}
	reading, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if _, err := client.Get(reading, s.healthKey(), clientv3.WithCountOnly()); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	stream, err := client.Snapshot(ctx)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return memberSnapshot{stream, client}, nil
}

// memberSnapshot closes its client with the stream.
type memberSnapshot struct {
	io.ReadCloser
	client *clientv3.Client
}

// Close implements io.Closer.
func (m memberSnapshot) Close() error { return errors.Join(m.ReadCloser.Close(), m.client.Close()) }

// CopySnapshot copies a snapshot and verifies its checksum. The error is ErrDamaged if it does not
// match.
func CopySnapshot(to io.Writer, from io.Reader) error {
	check := &checksum{sum: sha256.New()}
	if _, err := io.Copy(io.MultiWriter(to, check), from); err != nil {
		return err
	}
	if !check.matches() {
		return ErrDamaged
	}
	return nil
}

// checksum compares the last 32 bytes written to it with the SHA-256 of the bytes before them.
type checksum struct {
	sum  hash.Hash
	tail []byte // possibly the checksum
}

// Write implements io.Writer.
func (c *checksum) Write(p []byte) (int, error) {
	c.tail = append(c.tail, p...)
	if n := len(c.tail) - sha256.Size; n > 0 {
		c.sum.Write(c.tail[:n])
		c.tail = append(c.tail[:0], c.tail[n:]...)
	}
	return len(p), nil
}

func (c *checksum) matches() bool { return bytes.Equal(c.sum.Sum(nil), c.tail) }

// Restore creates the directory of an etcd member from a snapshot; dir must not exist. Its revision
// is far beyond the snapshot's, and all earlier revisions count as compacted, so that no client
// mistakes the restored objects for a continuation of an earlier state (R4).
func Restore(file, dir string) error {
	from, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("open the snapshot: %w", err)
	}
	defer from.Close()
	if err := CopySnapshot(io.Discard, from); err != nil {
		return fmt.Errorf("read the snapshot %s: %w", file, err)
	}
	c := config(Options{Dir: dir})
	err = snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: dir, Name: c.Name,
		PeerURLs: []string{c.AdvertisePeerUrls[0].String()}, InitialCluster: c.InitialCluster, InitialClusterToken: c.InitialClusterToken,
		RevisionBump: revisionBump, MarkCompacted: true,
	})
	if err != nil {
		return fmt.Errorf("restore the snapshot %s: %w", file, err)
	}
	return nil
}
