package storage

import (
	"context"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
)

// callServer is a client that calls the member by function call. It is that of the
// library but for its watches, see outbox.
func callServer(server *etcdserver.EtcdServer) *clientv3.Client {
	client := v3client.New(server)
	watches := clientv3.NewWatchFromWatchClient(unblocking{adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(server))}, client)
	client.Watcher = apart{watches}
	return client
}

// unblocking is a client for watches whose streams never block who sends.
type unblocking struct{ etcdserverpb.WatchClient }

// Watch implements etcdserverpb.WatchClient.
func (u unblocking) Watch(ctx context.Context, options ...grpc.CallOption) (etcdserverpb.Watch_WatchClient, error) {
	stream, err := u.WatchClient.Watch(ctx, options...)
	if err != nil {
		return nil, err
	}
	box := &outbox{Watch_WatchClient: stream, filled: make(chan struct{}, 1)}
	go box.forward()
	return box, nil
}

// outbox is a stream that takes what is sent into a queue. The two ends of a stream in
// the library each have one goroutine that sends and receives in turns. Over a network
// the buffers of the connection lie between them. In process nothing does: while the
// watches of a process shared a stream, and some twenty ended at once, as when as many
// custom resource definitions are deleted, each end waited for the other to receive,
// and no watch of the process got another event.
type outbox struct {
	etcdserverpb.Watch_WatchClient
	filled chan struct{} // has a token when requests may not be empty

	mu       sync.Mutex
	requests []*etcdserverpb.WatchRequest
}

// Send implements etcdserverpb.Watch_WatchClient. It does not wait. The queue is as
// long as there are watches that begin or end: of questions for the progress that stand
// one behind the other, one is kept.
func (b *outbox) Send(request *etcdserverpb.WatchRequest) error {
	if err := b.Context().Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.requests); n == 0 || request.GetProgressRequest() == nil || b.requests[n-1].GetProgressRequest() == nil {
		b.requests = append(b.requests, request)
	}
	select {
	case b.filled <- struct{}{}:
	default:
	}
	return nil
}

// forward sends what is in the queue until the stream ends, which its receiver is told.
func (b *outbox) forward() {
	for {
		select {
		case <-b.filled:
		case <-b.Context().Done():
			return
		}
		b.mu.Lock()
		requests := b.requests
		b.requests = nil
		b.mu.Unlock()
		for _, request := range requests {
			if b.Watch_WatchClient.Send(request) != nil {
				return
			}
		}
	}
}
