// Package etcd keeps keys with their values in etcd: in a member that runs in this process (Open), or in a cluster
// elsewhere (Connect, cluster.go). Package storage keeps the API server's objects in it.
//
// A Store hides how etcd is called:
//
//	clientv3.Client   calls the member in this process, or connects to the cluster
//	  countingKV      in process only: counts the written bytes for raftLog (raftlog.go)
//	  streamingKV     in process only: streams ranges (inprocess.go)
//	  streamCalls     in process only: the watches and streams that Close waits for (inprocess.go)
//	  streamWatcher   opens the streams of SeparateStreams (streams.go), and leaves out what OnlyNamed does (named.go)
//	  sendQueue       in process only: a stream that does not block its sender (sendqueue.go)
//	embed.Etcd        the member; its logger is fatalLog (fatallog.go)
//
// Six of these work around a library. Their comments name the problem, the benefit, and the test that fails when that
// library changes: countingKV with raftLog, streamingKV, streamCalls, SeparateStreams with streamWatcher, OnlyNamed,
// sendQueue.
//
// The Store also checks the database before etcd opens it (damage.go) and maintains the member: compaction, quota and
// defragmentation (space.go), dropping the past of a burst of writes (quiet.go), snapshots (snapshot.go), health
// (health.go). It keeps the revision of the last write of each resource (newest.go), and passes on the writes to all
// keys from one watch (follow.go) and their removals (removals.go). Servers that share a cluster agree on values
// (cluster.go) and find each other (presence.go).
//
// Acknowledged writes are on disk, even after a crash, unless the store is Ephemeral. Nothing listens for connections,
// not even on a unix socket.
package etcd

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

	"go.etcd.io/etcd/api/v3/version"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/feature"
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

	// maxTxnOps bounds the operations of one transaction. A Service reserves each of its node ports in the transaction that
	// writes it. The default of etcd, 128, would refuse Services that kube-apiserver accepts; this is more than there are
	// ports.
	maxTxnOps = 1 << 16

	// walFiles is the number of files of the log, of 64 MB each, that the member keeps. It also keeps all files that it
	// needs to start. A start reads all of them, 0.1 s each, and one has the entries of several snapshots of small objects.
	walFiles = 2

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
	member    *embed.Etcd  // nil if etcd runs in other processes
	calls     *streamCalls // to the member
	client    *clientv3.Client
	tls       *tls.Config // for the connections to an etcd cluster; nil for none
	exclusive bool        // no other API server uses the objects of a cluster
	prefix    string
	opened    int64 // the revision when the store was opened
	compactor interface {
		etcd3.Compactor
		Stop()
	}
	newest   *newest
	follower *Follower
	windows  windows

	raftLog *raftLog // of the member
	quota   int64    // maximum size of the member's database, in bytes
	log     *slog.Logger
	stop    func() // stops the maintenance of the member; nil if etcd runs in other processes
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
		member: member, raftLog: &raftLog{}, prefix: DefaultPrefix, quota: o.quota(), log: o.Log,
		opened: member.Server.KV().Rev(),
	}
	s.client, s.calls = inProcessClient(member.Server, s.raftLog)
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

// Client returns the client of etcd, which Close closes.
func (s *Store) Client() *clientv3.Client { return s.client }

// Compactor returns the compactor of old revisions, which Close stops.
func (s *Store) Compactor() etcd3.Compactor { return s.compactor }

// Prefix returns the prefix of the keys of all objects.
func (s *Store) Prefix() string { return s.prefix }

// Opened returns the revision when the store was opened.
func (s *Store) Opened() int64 { return s.opened }

// Shared reports whether other API servers may use the same objects.
func (s *Store) Shared() bool { return s.isElsewhere() && !s.exclusive }

// isElsewhere reports whether etcd runs in other processes.
func (s *Store) isElsewhere() bool { return s.member == nil }

func (o Options) quota() int64 { return cmp.Or(o.QuotaBytes, DefaultQuota) }

// announceEtcdFeatures tells k8s.io/apiserver that this etcd supports progress requests for
// watches. Otherwise, k8s.io/apiserver would check this over a connection. Without the feature, the
// watch cache does not serve consistent and streaming lists.
func announceEtcdFeatures(ctx context.Context) {
	feature.DefaultFeatureSupportChecker.CheckClient(ctx, inProcess{}, apistorage.RequestWatchProgress)
}

// inProcess is an etcd client that only returns the version of its endpoint.
type inProcess struct{}

// Endpoints returns the only endpoint.
func (inProcess) Endpoints() []string { return []string{"in-process"} }

// Status returns the version of the etcd in this binary.
func (inProcess) Status(context.Context, string) (*clientv3.StatusResponse, error) {
	return &clientv3.StatusResponse{Version: version.Version}, nil
}

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
	c.MaxTxnOps = maxTxnOps
	c.MaxWalFiles = walFiles
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
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if s.member != nil {
		err = errors.Join(err, s.calls.end())
		s.member.Close()
	}
	return err
}
