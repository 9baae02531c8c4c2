// Package recyclebin keeps removed objects for some time, so that their deletion can be undone (R29). It does not take
// part in deletions, and does not slow them down.
//
// The main flow: Follow reads removals from etcd, with the last value of each object, after the last revision that it
// has reached (etcd.Removals). keep decodes the objects and writes them, encrypted, into a database in the data
// directory, with the owner references that an orphan deletion has removed from dependents (orphans.go). The same
// transaction writes the revision, so a crash loses nothing that etcd still has. The oldest objects are dropped when
// the bounds are exceeded (database.go). An index in memory has the facts for authorization, so that it needs no
// decryption (index.go). The handler waits until the bin has all removals before the request (progress.go), checks the
// rights of the user, and returns kept objects (handler.go, rights.go). A damaged database is renamed, and a new one
// begins (damage.go).
package recyclebin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/apiserver/keyfile"
	"github.com/coppice-dev/coppice/internal/collect/pace"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

const (
	databaseFile = "recycle.db"
	keyFile      = "recycle.key"
	// retryDelay is the time between two attempts to follow etcd.
	retryDelay = time.Second
	// history bounds the number of older versions in which keep looks for the state of an object before its deletion.
	history = 20
	// maxItems bounds the number of kept objects: each takes about 100 bytes of memory.
	maxItems = 500_000
	// readAhead bounds the number of responses of etcd that the bin reads during a write to the database.
	readAhead = 256
	// maxBatch bounds the total size of the values that one write keeps, unless one response of etcd has more.
	maxBatch = 4 << 20
)

// Bounds limits the kept objects. If either limit is exceeded, the oldest objects are dropped.
type Bounds struct {
	Bytes int64 // encrypted and compressed
	Age   time.Duration
}

// Bin keeps removed objects. It is safe for concurrent use.
type Bin struct {
	path   string
	key    *keyfile.Key
	store  *etcd.Store
	bounds Bounds
	decode decoder
	clock  clock.Clock
	log    *slog.Logger
	index  *index
	// living returns the UID of a namespace; empty if it does not exist.
	living func(ctx context.Context, namespace string) (types.UID, error)
	// current returns the current revision of the store.
	current  func(ctx context.Context) (int64, error)
	progress *progress

	mu sync.RWMutex
	db *bolt.DB // guarded by mu; another one after damage
}

// Open opens the bin in a directory, which must be locked. It creates a missing bin and a missing key. It fails if the
// bin was written with another key. It sets a damaged bin aside.
func Open(dir string, store *etcd.Store, bounds Bounds, log *slog.Logger) (*Bin, error) {
	key, _, err := keyfile.LoadOrMakeKey(filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("open the recycle bin: %w", err)
	}
	decode, err := newDecoder()
	if err != nil {
		return nil, err
	}
	b := &Bin{
		path: filepath.Join(dir, databaseFile), key: key, store: store, bounds: bounds, decode: decode,
		clock: clock.RealClock{}, log: log, index: newIndex(), current: store.Revision, progress: newProgress(),
	}
	b.living = func(ctx context.Context, namespace string) (types.UID, error) {
		return b.namespaceAt(ctx, namespace, 0)
	}
	err = b.open()
	if errors.Is(err, errAnotherKey) {
		return nil, fmt.Errorf("%s does not fit %s: put back the key, or remove both files to begin with an empty bin: %w",
			filepath.Join(dir, keyFile), b.path, err)
	}
	if isDamage(err) {
		err = b.startAnew(err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the recycle bin: %w", err)
	}
	return b, nil
}

// Close closes the bin, once Follow has returned.
func (b *Bin) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.db == nil { // it was set aside, and opening a new one failed
		return nil
	}
	if err := b.db.Close(); err != nil {
		return fmt.Errorf("close the recycle bin: %w", err)
	}
	return nil
}

// Follow keeps the objects that are removed from the store, until ctx ends.
func (b *Bin) Follow(ctx context.Context) error {
	failures := pace.NewFailures(b.log, b.clock)
	for ctx.Err() == nil {
		err := b.follow(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the caller has ended it
		}
		failures.Warn(ctx, "the recycle bin does not follow the store", "", err)
		select {
		case <-b.clock.After(retryDelay):
		case <-ctx.Done():
		}
	}
	return nil
}

func (b *Bin) follow(ctx context.Context) error {
	after, err := b.reached()
	if err != nil {
		return err
	}
	now, err := b.store.Revision(ctx)
	if err != nil {
		return fmt.Errorf("read the revision: %w", err)
	}
	if after > now { // a backup was restored
		b.log.WarnContext(ctx, "the store has another history: objects that were removed meanwhile are not in the recycle bin")
	}
	if after == 0 || after > now {
		if err := b.write(nil, now); err != nil {
			return err
		}
		after = now
	}
	b.progress.set(after)
	err = b.followFrom(ctx, after)
	if errors.Is(err, etcd.ErrCompacted) {
		b.log.WarnContext(ctx, "etcd was compacted before the recycle bin has read all removed objects", "after", after)
		return errors.Join(err, b.write(nil, now))
	}
	return err
}

// batch has removals, and the revision up to which it has all.
type batch struct {
	removed []etcd.Removal
	upTo    int64
}

// followFrom keeps the removals after a revision. It reads on while it writes, because each write waits for the disk:
// the next write keeps all removals that were read meanwhile.
func (b *Bin) followFrom(ctx context.Context, after int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, ended := make(chan batch, readAhead), make(chan error, 1)
	go func() {
		defer close(batches)
		ended <- b.store.Removals(ctx, after, b.progress.requests, func(removed []etcd.Removal, upTo int64) error {
			select {
			case batches <- batch{removed, upTo}:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	var failed error
	for next := range batches {
		if failed != nil {
			continue // until Removals has ended
		}
		next.extend(batches)
		if failed = b.keep(ctx, next.removed, next.upTo); failed != nil {
			cancel()
		}
	}
	if failed != nil {
		return failed
	}
	return <-ended
}

// extend appends the batches that were read already, up to maxBatch.
func (t *batch) extend(read <-chan batch) {
	size := t.size()
	for len(read) > 0 && size < maxBatch {
		next := <-read
		size += next.size()
		t.removed, t.upTo = append(t.removed, next.removed...), next.upTo
	}
}

func (t *batch) size() (bytes int) {
	for n := range t.removed {
		bytes += len(t.removed[n].Value)
	}
	return bytes
}

// keep writes removed objects and the revision that was reached, and the objects that have lost removed owners.
func (b *Bin) keep(ctx context.Context, removed []etcd.Removal, upTo int64) error {
	var entries []entry
	namespaces, orphaned := map[string]types.UID{}, newOrphaned()
	for n := range removed {
		o, err := b.decode.decode(removed[n].Value)
		if err != nil {
			b.log.DebugContext(ctx, "not kept: no object", "key", removed[n].Key, "error", err)
			continue // for example the lease of a server or a reserved address
		}
		in, err := b.namespaceOf(ctx, namespaces, o, removed[n].At)
		if err != nil {
			return err
		}
		if undo.LeavesOut(o.GroupVersionKind().GroupKind()) || o.GetUID() == "" {
			continue
		}
		before, err := b.before(ctx, removed[n].Stored, o)
		if err != nil {
			return err
		}
		if before.orphans {
			orphaned.add(o.GetUID(), before.marked, removed[n].At)
		}
		if status, has := before.Object["status"]; has {
			o.Object["status"] = status
		}
		o.SetManagedFields(nil)
		e, err := b.entryOf(o, removed[n].Key, removed[n].At)
		if err != nil {
			return err
		}
		e.NamespaceUID, e.Finalizers = in, before.GetFinalizers()
		entries = append(entries, e)
	}
	survivors, err := b.survivors(ctx, orphaned)
	if errors.Is(err, errOrphansUnknown) {
		for n := range entries {
			entries[n].OrphansUnknown = orphaned.owners[entries[n].UID]
		}
	} else if err != nil {
		return err
	}
	return b.write(append(entries, survivors...), upTo)
}

// entryOf returns the entry of an object that had a key until a revision.
func (b *Bin) entryOf(o *unstructured.Unstructured, key string, at int64) (entry, error) {
	body, err := o.MarshalJSON()
	if err != nil {
		return entry{}, fmt.Errorf("encode %s: %w", key, err)
	}
	return entry{body: body, Item: Item{
		Group: o.GroupVersionKind().Group, Version: o.GroupVersionKind().Version, Kind: o.GetKind(),
		Resource:  resourceOf(b.store.Prefix(), key, o.GroupVersionKind()),
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Owners: o.GetOwnerReferences(),
		DeletionTimestamp: o.GetDeletionTimestamp(), Grace: o.GetDeletionGracePeriodSeconds(),
		Revision: at, Removed: b.clock.Now().UTC(),
	}}, nil
}

// namespaceOf returns the UID of the namespace that an object was in when it was removed. known has the namespaces of
// earlier removals; after the removal of a namespace, there may be another one with its name.
func (b *Bin) namespaceOf(ctx context.Context, known map[string]types.UID, o *unstructured.Unstructured, at int64) (types.UID, error) {
	name := o.GetNamespace()
	if name == "" {
		if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Namespace"}) {
			delete(known, o.GetName())
		}
		return "", nil
	}
	if uid, is := known[name]; is {
		return uid, nil
	}
	uid, err := b.namespaceAt(ctx, name, at)
	if err == nil {
		known[name] = uid
	}
	return uid, err
}

// namespaceAt returns the UID of a namespace at a revision; revision 0 is the current one. The UID is empty if there
// was no such namespace, or if etcd has dropped it.
func (b *Bin) namespaceAt(ctx context.Context, name string, revision int64) (types.UID, error) {
	stored, found, err := b.store.ReadAt(ctx, b.store.Prefix()+"/namespaces/"+name, revision)
	if err != nil || !found {
		return "", err
	}
	namespace, err := b.decode.decode(stored.Value)
	if err != nil {
		return "", err
	}
	return namespace.GetUID(), nil
}

// past is the state of an object before its deletion began.
type past struct {
	*unstructured.Unstructured

	marked  int64 // the revision at which the deletion began; of a later state if the bin does not know it
	orphans bool  // the deletion kept the dependents
}

// before returns the state of an object before its deletion began, with its finalizers and its status. At its removal
// an object has no finalizers any more, and the containers of a pod have ended.
func (b *Bin) before(ctx context.Context, last etcd.Stored, o *unstructured.Unstructured) (past, error) {
	found := past{Unstructured: o, marked: last.Revision}
	for range history {
		if found.GetDeletionTimestamp() == nil {
			break
		}
		found.marked = last.Revision
		found.orphans = found.orphans || slices.Contains(found.GetFinalizers(), metav1.FinalizerOrphanDependents)
		older, isThere, err := b.store.ReadAt(ctx, last.Key, last.Revision-1)
		if err != nil {
			return past{}, err
		}
		if !isThere {
			break
		}
		decoded, unreadable := b.decode.decode(older.Value)
		if isSame := unreadable == nil && decoded.GetUID() == o.GetUID(); !isSame {
			break // without an older state, the last one is used
		}
		last, found.Unstructured = older, decoded
	}
	return found, nil
}

func encodeJSON(value any) []byte {
	text, _ := json.Marshal(value) // of texts and numbers
	return text
}
