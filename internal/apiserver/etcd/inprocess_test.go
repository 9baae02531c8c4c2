package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A store that is closed while objects change waits for its watches and streams: none reads from a closed database.
func TestCloseWaitsForStreams(t *testing.T) {
	const objects, watches = 200, 20
	for range 5 {
		s, err := Open(t.Context(), Options{Dir: t.TempDir(), Ephemeral: true})
		must(t, err)
		for i := range objects {
			s.put(t, fmt.Sprintf("/configmaps/team/%d", i), "x")
		}
		for i := range watches {
			s.client.Watch(withStream(t.Context(), strconv.Itoa(i)), s.prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(1))
		}
		stream, err := s.client.GetStream(t.Context(), s.prefix, clientv3.WithPrefix())
		must(t, err)
		var writers sync.WaitGroup
		writing, stop := context.WithCancel(t.Context())
		writers.Go(func() {
			for i := 0; writing.Err() == nil; i++ {
				// It fails once the store is closed.
				_, _ = s.client.Put(writing, fmt.Sprintf("%s/configmaps/team/%d", s.prefix, i%objects), "y")
			}
		})
		<-stream
		stop()
		writers.Wait()
		must(t, s.Close())
		if err := s.calls.do(func() error { return nil }); !errors.Is(err, rpctypes.ErrGRPCStopped) {
			t.Errorf("a watch of a closed store: %v", err)
		}
		for range stream { // it ends
		}
	}
}

// A client that drops each object from a chunk, as the watch cache does, leaves the member its own list: the member
// takes the size of the chunk after it has sent it.
func TestChunksAreTheClientsOwn(t *testing.T) {
	s := &rangeStream{chunks: make(chan *etcdserverpb.RangeStreamResponse, 1)}
	server := rangeStreamServer{context: t.Context, chunks: s.chunks}
	read := &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("a")}, {Key: []byte("b")}}}
	must(t, server.Send(&etcdserverpb.RangeStreamResponse{RangeResponse: &etcdserverpb.RangeResponse{Kvs: read.Kvs}}))
	chunk, err := s.Recv()
	must(t, err)
	if n := len(chunk.RangeResponse.Kvs); n != len(read.Kvs) {
		t.Fatalf("%d objects, want %d", n, len(read.Kvs))
	}
	clear(chunk.RangeResponse.Kvs)
	for i, kv := range read.Kvs {
		if kv == nil {
			t.Errorf("object %d is gone from what the member has read", i)
		}
	}
}
