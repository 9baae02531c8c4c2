// Package storage keeps the API server's objects in etcd: in a member that runs in this process
// (Open), or in a cluster elsewhere (Connect, cluster.go).
//
// RESTOptions makes every registry, of built-in kinds and of custom resources, open its storage here (resource.go). A
// storage is this stack; calls pass through it from the top:
//
//	the caller's Wrap      deleteflow.Guard
//	onDemand               serves reads from etcd until the watch cache is necessary, and watches that begin
//	                       before the cache (ondemand.go)
//	listFallback           lists from etcd if a corrupt object keeps the cache empty (corrupt.go)
//	cacher.CacheDelegator  k8s.io/apiserver: reads from the watch cache, writes to the storage below
//	  cacher.Cacher        the watch cache; its clock is progressClock (progress.go); the layers
//	                       below fill it, too
//	window                 bounds the past events and states that the cache keeps (window.go)
//	separateStreams        the cache's watch has its own stream to etcd (streams.go)
//	corruptErrorStorage    errors name the object that cannot be read (corrupt.go)
//	etcd3.Store            k8s.io/apiserver: objects to bytes; its codec is expiringCodec, its decoder
//	                       and transformer are markCorrupt's (corrupt.go)
//	statusErrors           converts errors of etcd into API errors (statuserrors.go)
//	resourceClient         creations depend on their namespace (namespacecondition.go), unique values
//	                       are reserved in the same transaction (unique.go)
//	clientv3.Client        calls the member, or connects to the cluster; its watches:
//	  streamWatcher        opens the streams of separateStreams (streams.go)
//	  sendQueue            in process only: a stream that does not block its sender (sendqueue.go)
//
// Five of these work around a library. Their comments name the problem, the benefit, and the test that fails when that
// library changes: progressClock, window, separateStreams with streamWatcher, sendQueue, expiringCodec.
//
// The Store also checks the database before etcd opens it (damage.go) and maintains the member: compaction, quota and
// defragmentation (space.go), dropping the history of a burst (quiet.go, emptywindow.go), snapshots (snapshot.go),
// health (health.go). It keeps the revision of the last write of each resource (newest.go), and passes on the writes to
// all objects from one watch (follow.go).
//
// Acknowledged writes are on disk, even after a crash, unless the store is Ephemeral. Nothing listens for connections,
// not even on a unix socket.
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
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/utils/clock"
)

const (
	// A single member elects itself; the ticks only determine how soon after its start.
	tickMillis     = 10
	electionMillis = 100

	// startTimeout is long because a member that was killed first replays its log.
	startTimeout = 60 * time.Second

	// snapshotCount and catchUpEntries bound the raft log in memory, which has complete objects: no follower ever has
	// to catch up. The member keeps another hundred entries.
	snapshotCount  = 5000
	catchUpEntries = 1

	// DefaultQuota is the default maximum size of the database, in bytes: the most that etcd
	// recommends.
	DefaultQuota = 8 << 30

	// compactionInterval is how long old revisions are kept for watches that resume.
	compactionInterval = 5 * time.Minute

	// progressNotifyInterval is the interval at which etcd sends its revision to a watch without events. Bookmarks from
	// a watch cache have the same interval.
	progressNotifyInterval = time.Minute

	// DefaultPrefix is the prefix of the keys of all objects, as in kube-apiserver.
	DefaultPrefix = "/registry"
)

// Options configure the etcd member in this process.
type Options struct {
	// Dir is the directory of the etcd member. It is created with mode 0700.
	Dir string
	// Ephemeral trades durability for speed: writes are not synced to disk.
	Ephemeral bool
	// QuotaBytes is the size of the database above which etcd refuses writes until objects are deleted. Default:
	// DefaultQuota.
	QuotaBytes int64
	// Log gets a line when the quota is used up, and when etcd accepts writes again. Nil: none.
	Log *slog.Logger
	// FatalLog gets one line when etcd ends the process, which it does if its disk is full or its
	// files are damaged. Nil: none.
	FatalLog io.Writer
}

// Store is etcd and its client. It is safe for concurrent use.
type Store struct {
	member    *embed.Etcd // nil if etcd runs in other processes
	client    *clientv3.Client
	tls       *tls.Config // for the connections to an etcd cluster; nil for none
	exclusive bool        // no other API server uses the objects of a cluster
	prefix    string
	opened    int64 // the revision when the store was opened
	compactor interface {
		etcd3.Compactor
		Stop()
	}
	namespaces namespaces
	newest     *newest
	follower   *Follower
	windows    windows

	heldForWatches atomic.Int64 // bytes, see clientWatch
	raftLog        raftLog

	// The workarounds that benchmarks compare with upstream's behavior: the clock of the watch
	// caches, and the codec of the watches that fill them.
	cacheClock clock.WithTicker
	watchCodec func(codec runtime.Codec, corrupt *atomic.Bool) runtime.Codec

	quota int64 // maximum size of the member's database, in bytes
	log   *slog.Logger
	stop  func() // stops the maintenance of the member; nil if etcd runs in other processes
}

// Open starts the member and waits until it serves. The caller must hold a lock on the directory:
// etcd itself waits forever if another process uses it.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the data directory: %w", err)
	}
	// etcd panics or blocks on a directory it cannot write to, so try that first.
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
	announceEtcdFeatures(ctx)
	s := &Store{
		member: member, client: inProcessClient(member.Server), prefix: DefaultPrefix, quota: o.quota(), log: o.Log,
		opened: member.Server.KV().Rev(), cacheClock: progressClock{}, watchCodec: newExpiringCodec,
	}
	s.newest = newNewest(s.client, s.prefix)
	s.follower = newFollower(s)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.compact()
	// newest must observe every write that a list may contain.
	s.newest.start(ctx)
	keeping, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var keeper sync.WaitGroup
	keeper.Go(func() { s.maintainSpace(keeping, clock.RealClock{}.NewTicker(spaceInterval)) })
	keeper.Go(func() { s.dropPast(keeping, clock.RealClock{}.NewTicker(quietInterval)) })
	s.stop = func() {
		cancel()
		keeper.Wait()
	}
	return s, nil
}

// compact starts the compactor, which drops old revisions. Servers that share an etcd take turns.
func (s *Store) compact() {
	s.compactor = etcd3.NewCompactor(s.client, compactionInterval, clock.RealClock{}, nil)
}

// Prefix returns the prefix of the keys of all objects.
func (s *Store) Prefix() string { return s.prefix }

// Shared reports whether other API servers may use the same objects.
func (s *Store) Shared() bool { return s.isElsewhere() && !s.exclusive }

// isElsewhere reports whether etcd runs in other processes.
func (s *Store) isElsewhere() bool { return s.member == nil }

func (o Options) quota() int64 { return cmp.Or(o.QuotaBytes, DefaultQuota) }

func start(ctx context.Context, o Options) (*embed.Etcd, error) {
	// A member that is stopped before it has stored its own membership leaves a directory on which no member becomes
	// ready again. So do not start a member after ctx has ended.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
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
	// etcd requires an address to advertise. It does not listen there.
	nowhere := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c.ListenClientUrls, c.AdvertiseClientUrls = nil, []url.URL{nowhere}
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{nowhere}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.TickMs, c.ElectionMs = tickMillis, electionMillis
	c.SnapshotCount, c.SnapshotCatchUpEntries = snapshotCount, catchUpEntries
	c.QuotaBackendBytes = o.quota()
	c.UnsafeNoFsync = o.Ephemeral
	c.WatchProgressNotifyInterval = progressNotifyInterval
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(fatalLog{to: o.FatalLog, dir: o.Dir}, zap.WithPanicHook(zapcore.WriteThenFatal)))
	return c
}

// Close stops compaction, the client, and the member if it is in this process.
func (s *Store) Close() error {
	s.compactor.Stop()
	s.newest.close()
	s.follower.close()
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
