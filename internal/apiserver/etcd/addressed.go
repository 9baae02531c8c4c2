package etcd

import (
	"context"
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// addressingWatchClient is a client for watches whose streams address each report of progress to a watch.
type addressingWatchClient struct{ etcdserverpb.WatchClient }

// Watch implements etcdserverpb.WatchClient.
func (a addressingWatchClient) Watch(ctx context.Context, options ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	stream, err := a.WatchClient.Watch(ctx, options...)
	if err != nil {
		return nil, err
	}
	return &addressedStream{Watch_WatchClient: stream, watches: map[int64]bool{}}, nil
}

// addressedStream is a watch stream that turns a report of progress for all its watches into one for each of them that has
// begun and has not ended. One goroutine receives from it, as clientv3 does.
//
// Problem: clientv3 v3.7 passes a report for all on to a watch that the server has just ended, whose channel it has closed:
// "panic: send on closed channel" (etcd-io/etcd#21969). API servers ask for progress with each consistent read.
//
// Benefit: without it, the process ends when many watches end under load. TestReportsOfProgressAreAddressed fails.
type addressedStream struct {
	etcdserverpb.Watch_WatchClient

	watches map[int64]bool // that have begun and not ended
	waiting []*etcdserverpb.WatchResponse
}

// Recv implements etcdserverpb.Watch_WatchClient.
func (s *addressedStream) Recv() (*etcdserverpb.WatchResponse, error) {
	for len(s.waiting) == 0 {
		response, err := s.Watch_WatchClient.Recv()
		if err != nil {
			return nil, err
		}
		switch {
		case response.Canceled:
			delete(s.watches, response.WatchId)
		case response.Created:
			s.watches[response.WatchId] = true
		case response.WatchId == clientv3.InvalidWatchID && len(response.Events) == 0 && response.CompactRevision == 0:
			for _, id := range slices.Sorted(maps.Keys(s.watches)) {
				s.waiting = append(s.waiting, &etcdserverpb.WatchResponse{Header: response.Header, WatchId: id})
			}
			continue
		}
		return response, nil
	}
	next := s.waiting[0]
	s.waiting = s.waiting[1:]
	return next, nil
}
