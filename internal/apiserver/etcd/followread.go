package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/rand"
)

// ErrCompacted is the error for a read or a watch at a revision that etcd has dropped.
var ErrCompacted = errors.New("the revision has been compacted")

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
	from := prefix
	if after != "" {
		from = after + "\x00"
	}
	response, err := f.client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(limit), clientv3.WithRev(revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return Page{}, ErrCompacted
	case err != nil:
		return Page{}, fmt.Errorf("read from etcd: %w", err)
	}
	page := Page{
		Objects: make([]Stored, len(response.Kvs)), Revision: response.Header.Revision,
		Remaining: response.Count - int64(len(response.Kvs)),
	}
	if revision != 0 {
		page.Revision = revision
	}
	for i, kv := range response.Kvs {
		page.Objects[i] = Stored{string(kv.Key), kv.Value, kv.ModRevision}
	}
	return page, nil
}

// Replay passes on the changes below a prefix after one revision and up to another one, which etcd
// has already reached.
func (f *Follower) Replay(ctx context.Context, prefix string, after, upTo int64, pass func(Change)) error {
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
					pass(changeOf(event))
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
