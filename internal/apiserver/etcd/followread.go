package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/rand"
)

// ErrCompacted is the error for a read or a watch at a revision that etcd has dropped.
var ErrCompacted = errors.New("the revision has been compacted")

// pageOfAll is the number of objects that ReadAll reads at once if etcd cannot stream them.
const pageOfAll = 250

// Stored is a stored object.
type Stored struct {
	Key      string
	Value    []byte
	Revision int64 // of its last write
}

// Page is a part of the stored objects below a prefix.
type Page struct {
	Objects   []Stored
	Revision  int64 // at which it was read
	Remaining int64 // the number of objects after the page
}

// ReadPage reads the objects below a prefix after a key, in the order of keys; limit bounds the
// number of objects. At revision 0 it reads the newest state, with all writes before the call.
func (f *Follower) ReadPage(ctx context.Context, prefix, after string, revision, limit int64) (Page, error) {
	response, err := f.client.Get(ctx, firstKey(prefix, after), clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(limit), clientv3.WithRev(revision))
	if err != nil {
		return Page{}, readError(err)
	}
	page := Page{
		Objects: make([]Stored, len(response.Kvs)), Revision: response.Header.Revision,
		Remaining: response.Count - int64(len(response.Kvs)),
	}
	if revision != 0 {
		page.Revision = revision
	}
	for i, kv := range response.Kvs {
		page.Objects[i] = storedIn(kv)
	}
	return page, nil
}

// ReadAll passes on the objects below a prefix after a key, as they were at a revision, in the order of keys, until
// pass returns false. At revision 0 it reads the newest state, with all writes before the call. Unlike for
// pages, etcd does not count the objects. A member before etcd 3.7 cannot stream: then ReadAll reads pages.
func (f *Follower) ReadAll(ctx context.Context, prefix, after string, revision int64, pass func(Stored) bool) error {
	streaming, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := f.client.GetStream(streaming, firstKey(prefix, after), clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithRev(revision))
	if err == nil {
		err = passAll(stream, pass)
		cancel()
		for range stream { // its sender does not look at ctx
		}
	}
	switch {
	case status.Code(err) == codes.Unimplemented:
		return f.readPages(ctx, prefix, after, revision, pass)
	case err != nil:
		return readError(err)
	}
	return nil
}

func passAll(stream clientv3.GetStreamChan, pass func(Stored) bool) error {
	for chunk := range stream {
		if err := chunk.Err(); err != nil {
			return err
		}
		for _, kv := range chunk.Kvs {
			if !pass(storedIn(kv)) {
				return nil
			}
		}
	}
	return nil
}

// readPages is ReadAll in pages.
func (f *Follower) readPages(ctx context.Context, prefix, after string, revision int64, pass func(Stored) bool) error {
	for {
		page, err := f.ReadPage(ctx, prefix, after, revision, pageOfAll)
		if err != nil {
			return err
		}
		revision = page.Revision // of all pages
		for _, stored := range page.Objects {
			if after = stored.Key; !pass(stored) {
				return nil
			}
		}
		if page.Remaining <= 0 {
			return nil
		}
	}
}

// firstKey returns the first possible key below a prefix after a key.
func firstKey(prefix, after string) string {
	if after == "" {
		return prefix
	}
	return after + "\x00"
}

func storedIn(kv *mvccpb.KeyValue) Stored { return Stored{string(kv.Key), kv.Value, kv.ModRevision} }

func readError(err error) error {
	if errors.Is(err, rpctypes.ErrCompacted) {
		return ErrCompacted
	}
	return fmt.Errorf("read from etcd: %w", err)
}

// Replay passes on the changes below a prefix after one revision and up to another one, which etcd
// has already reached.
func (f *Follower) Replay(ctx context.Context, prefix string, after, upTo int64, pass func(Change)) error {
	return f.replay(ctx, prefix, after, upTo, func(e *clientv3.Event) { pass(changeOf(e)) })
}

// ReplayUpdates passes on the updates of objects after one revision and up to another one, which etcd has already
// reached, with the value before each.
func (f *Follower) ReplayUpdates(ctx context.Context, after, upTo int64, pass func(before, now Stored)) error {
	return f.replay(ctx, f.prefix, after, upTo, func(e *clientv3.Event) {
		if e.IsModify() && e.PrevKv != nil {
			pass(storedIn(e.PrevKv), storedIn(e.Kv))
		}
	})
}

func (f *Follower) replay(ctx context.Context, prefix string, after, upTo int64, pass func(e *clientv3.Event)) error {
	// The watch needs its own stream: on a shared one, the progress may belong to other watches.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(withStream(ctx, "replay-"+rand.String(16))))
	defer cancel()
	changes := f.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1), clientv3.WithPrevKV())
	timer := time.NewTimer(firstProgressRequest)
	defer timer.Stop()
	for wait := firstProgressRequest; after < upTo; {
		select {
		case response, ok := <-changes:
			switch {
			case response.CompactRevision != 0:
				return ErrCompacted
			case !ok || response.Err() != nil:
				return fmt.Errorf("watch etcd: %w", errors.Join(response.Err(), ctx.Err()))
			case response.IsProgressNotify():
				after = response.Header.Revision
			}
			for _, event := range response.Events {
				if after = event.Kv.ModRevision; after <= upTo {
					pass(event)
				}
			}
		case <-timer.C:
			wait *= 2
			timer.Reset(wait)
			// An error means that there is no watch yet, or no longer.
			_ = f.client.RequestProgress(ctx)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
