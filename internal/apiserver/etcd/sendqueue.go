package etcd

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// queueingWatchClient is a client for watches whose streams never block the sender.
type queueingWatchClient struct{ etcdserverpb.WatchClient }

// Watch implements etcdserverpb.WatchClient.
func (u queueingWatchClient) Watch(ctx context.Context, options ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	stream, err := u.WatchClient.Watch(ctx, options...)
	if err != nil {
		return nil, err
	}
	queue := &sendQueue{Watch_WatchClient: stream, filled: make(chan struct{}, 1)}
	go queue.forward()
	return queue, nil
}

// sendQueue is a watch stream that queues the requests of its sender.
//
// Problem: at each end of a watch stream, clientv3 and etcd's server have one goroutine that sends
// and receives in turn. Over a network, the buffers of a connection are between them; in process,
// grpcproxy's adapter has no buffer. When some twenty watches that share a stream end at once, each
// end waits for the other to receive.
//
// Benefit: without it, no watch of the process got another event after the deletion of as many
// custom resource definitions. TestWatchesThatEndTogetherDoNotBlockTheirStream fails without it.
type sendQueue struct {
	etcdserverpb.Watch_WatchClient
	filled chan struct{} // signals that requests may not be empty

	mu       sync.Mutex
	requests []*etcdserverpb.WatchRequest
}

// Send implements etcdserverpb.Watch_WatchClient. It does not block. The queue is at most as long
// as the number of watches that begin or end: Send keeps only one of several consecutive progress
// requests.
func (q *sendQueue) Send(request *etcdserverpb.WatchRequest) error {
	if err := q.Context().Err(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.requests); n == 0 || request.GetProgressRequest() == nil || q.requests[n-1].GetProgressRequest() == nil {
		q.requests = append(q.requests, request)
	}
	select {
	case q.filled <- struct{}{}:
	default:
	}
	return nil
}

// forward sends the requests in the queue until the stream ends. The receiver gets the error.
func (q *sendQueue) forward() {
	for {
		select {
		case <-q.filled:
		case <-q.Context().Done():
			return
		}
		q.mu.Lock()
		requests := q.requests
		q.requests = nil
		q.mu.Unlock()
		for _, request := range requests {
			if q.Watch_WatchClient.Send(request) != nil {
				return
			}
		}
	}
}
