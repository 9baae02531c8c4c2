package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/util/rand"
)

// Removal is the removal of a key, with the last value.
type Removal struct {
	Stored

	// At is the revision of the removal.
	At int64
}

// Removals passes on the removals after a revision, in order, until ctx ends or pass returns an error. Each call of
// pass has all further removals up to a revision, possibly none. For each value of progress, etcd reports a revision
// soon, unless removals are on their way. The error is ErrCompacted if etcd has dropped revisions after the first one.
func (s *Store) Removals(ctx context.Context, after int64, progress <-chan struct{}, pass func(removed []Removal, upTo int64) error) error {
	// The watch needs its own stream: on a shared one, the progress may belong to other watches.
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(withStream(ctx, "removals-"+rand.String(16))))
	defer cancel()
	options := []clientv3.OpOption{
		clientv3.WithPrefix(), clientv3.WithRev(after + 1), clientv3.WithPrevKV(), clientv3.WithFilterPut(), clientv3.WithProgressNotify(),
	}
	responses := s.client.Watch(ctx, s.prefix+"/", options...) // etcd has created the watch, so progress is the watch's
	defer s.requestProgress(ctx, progress)()
	for response := range responses {
		if response.CompactRevision != 0 {
			return ErrCompacted
		}
		if err := response.Err(); err != nil {
			return fmt.Errorf("watch etcd: %w", err)
		}
		var removed []Removal
		for _, event := range response.Events {
			if old := event.PrevKv; old != nil {
				removed = append(removed, Removal{Stored{string(old.Key), old.Value, old.ModRevision}, event.Kv.ModRevision})
			}
		}
		upTo := response.Header.Revision
		if count := len(response.Events); count > 0 {
			upTo = response.Events[count-1].Kv.ModRevision
		}
		if err := pass(removed, upTo); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.New("watch etcd: it has ended")
}

// requestProgress makes etcd report the progress of a watch for each value of requests, until the returned function is
// called. ctx is the context of the watch.
func (s *Store) requestProgress(ctx context.Context, requests <-chan struct{}) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var requester sync.WaitGroup
	requester.Go(func() {
		for {
			select {
			case <-requests:
				_ = s.client.RequestProgress(ctx) // an error means that the watch has ended
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		requester.Wait() // a later request would open the stream again
	}
}

// ReadAt returns the value of a key at a revision; false if there was none, or if etcd has dropped it.
func (s *Store) ReadAt(ctx context.Context, key string, revision int64) (Stored, bool, error) {
	response, err := s.client.Get(ctx, key, clientv3.WithRev(revision))
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return Stored{}, false, nil
	case err != nil:
		return Stored{}, false, fmt.Errorf("read from etcd: %w", err)
	case len(response.Kvs) == 0:
		return Stored{}, false, nil
	}
	kv := response.Kvs[0]
	return Stored{string(kv.Key), kv.Value, kv.ModRevision}, true, nil
}
