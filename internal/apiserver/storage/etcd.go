// Package storage keeps the API server's objects in etcd: in a server that runs in
// this process, or in a cluster elsewhere.
//
// Open starts the etcd member on a directory and waits until it leads. Nothing
// listens: not even a unix socket. Connect (external.go) makes a store of an etcd
// cluster instead. RESTOptions then wraps the library's storage options, so that
// every registry, typed or custom, reaches etcd through the library's watch cache,
// by a function call where etcd is in this process (inprocess.go). The watch of each cache
// has a stream to etcd of its own (streams.go), and one that meets an object which cannot
// be decoded gives way to lists that name it (unreadable.go). What is created
// in a namespace is created on condition of the namespace (creation.go), what only one
// object of a kind may have is kept beside it (unique.go), and what
// etcd refuses is said in the API's own words (refusals.go). Close stops the
// member; what was acknowledged is on disk, whatever way the process ends, unless
// the store was opened Ephemeral.
package storage

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/utils/clock"
)

const (
	// A single member elects itself; the ticks only decide how soon after its start.
	tickMillis     = 10
	electionMillis = 100

	// startTimeout is long because a member that was killed replays its log first.
	startTimeout = 60 * time.Second

	// snapshotCount and catchUpEntries bound the raft log kept in memory: no
	// follower ever has to catch up.
	snapshotCount  = 5000
	catchUpEntries = 500

	// DefaultQuota is how large the database may grow, in bytes: the most that etcd
	// recommends.
	DefaultQuota = 8 << 30

	// compactionInterval is how long old revisions are kept for watches that resume.
	compactionInterval = 5 * time.Minute

	// DefaultPrefix is the prefix of the keys of all objects, the field's convention.
	DefaultPrefix = "/registry"
)

// Options say where and how the data is kept.
type Options struct {
	// Dir is the directory of the etcd member; it is created with mode 0700.
	Dir string
	// Ephemeral trades durability for speed: writes are not synced to disk.
	Ephemeral bool
	// QuotaBytes is how large the database may grow. When it has, writes are refused
	// until objects were deleted. DefaultQuota if 0.
	QuotaBytes int64
	// Log gets a line when the quota is used up, and when it is not any more. Nil: none.
	Log *slog.Logger
	// LastWords is where etcd says why it ends the process, which it does when it
	// finds its files damaged. Nil: nowhere.
	LastWords io.Writer
}

// Store is etcd and the client that calls it. It is safe for concurrent use.
type Store struct {
	member    *embed.Etcd // nil when etcd runs elsewhere
	client    *clientv3.Client
	tls       *tls.Config // of connections to etcd elsewhere; nil for none
	prefix    string
	compactor interface {
		etcd3.Compactor
		Stop()
	}
	namespaces namespaces
	newest     *newest

	quota int64 // bytes that the member's database may have
	log   *slog.Logger
	stop  func() // ends what runs beside the member, and waits for it
}

// Open starts the member and waits until it serves. The caller must have made
// sure that nobody else uses the directory: etcd itself would wait for ever.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	// etcd panics or blocks on a directory it cannot write to, so ask first.
	probe, err := os.CreateTemp(o.Dir, ".writable-*")
	if err != nil {
		return nil, fmt.Errorf("write to the data directory: %w", err)
	}
	probe.Close()
	if err := os.Remove(probe.Name()); err != nil {
		return nil, fmt.Errorf("write to the data directory: %w", err)
	}
	if err := checkDatabase(o.Dir); err != nil {
		return nil, err
	}
	member, err := start(ctx, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("start etcd on %s: %w", o.Dir, err)
		}
		return nil, fmt.Errorf("start etcd on %s: %w; %s", o.Dir, err, advice(err))
	}
	announceFeatures(ctx)
	s := &Store{member: member, client: callServer(member.Server), prefix: DefaultPrefix, quota: o.quota(), log: o.Log}
	s.newest = newNewest(s.client, s.prefix)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.compact()
	// Before anybody lists, so that what was listed is known to be as new.
	s.newest.start(ctx)
	keeping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { s.keepSpace(keeping, clock.RealClock{}.NewTicker(reliefInterval)) })
	s.stop = func() {
		cancel()
		keeper.Wait()
	}
	return s, nil
}

// compact begins to drop old revisions. Servers that share an etcd take turns at it.
func (s *Store) compact() {
	s.compactor = etcd3.NewCompactor(s.client, compactionInterval, clock.RealClock{}, nil)
}

// Prefix is the prefix of the keys of all objects.
func (s *Store) Prefix() string { return s.prefix }

// Shared tells whether other API servers may work on the same objects.
func (s *Store) Shared() bool { return s.member == nil }

func (o Options) quota() int64 { return cmp.Or(o.QuotaBytes, DefaultQuota) }

// start brings the member up.
func start(ctx context.Context, o Options) (*embed.Etcd, error) {
	member, err := embed.StartEtcd(config(o))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case <-member.Server.ReadyNotify():
		return member, nil
	case err = <-member.Err():
	case <-ctx.Done():
		err = fmt.Errorf("it does not become ready: %w", ctx.Err())
	}
	member.Close()
	return nil, err
}

func config(o Options) *embed.Config {
	c := embed.NewConfig()
	c.Dir = filepath.Clean(o.Dir)
	// etcd wants an address to advertise; nobody listens there.
	nowhere := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = nil, []url.URL{nowhere}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{nowhere}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = tickMillis, electionMillis
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotCount, catchUpEntries
	c.QuotaBackendBytes = o.quota()
	c.UnsafeNoFsync = o.Ephemeral
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(lastWords{to: o.LastWords, dir: o.Dir}, zap.WithPanicHook(zapcore.WriteThenFatal)))
	return c
}

// Close stops compaction, the client, and the member if it is in this process.
func (s *Store) Close() error {
	s.compactor.Stop()
	s.newest.close()
	if s.stop != nil {
		s.stop()
	}
	err := s.client.Close()
	if s.member != nil {
		s.member.Close()
	}
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
