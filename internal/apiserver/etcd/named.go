package etcd

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

type nameKey struct{}

// OnlyNamed limits the watches with a context, and the state with which they begin, to objects of one name, in any
// namespace that exists. Only a member in this process observes it.
//
// Problem: k8s.io/apiserver decodes every object below the watched prefix, and then applies the field selector. The
// controller of kube-root-ca.crt, which watches the ConfigMaps of that name, decoded all ConfigMaps at its start, and both
// values of each update.
//
// Benefit: with a million ConfigMaps, a start takes half of the processor time. BenchmarkWatchOfName in package storage
// prints the time of a watch with and without it. TestWatchOfNameDecodesNothingElse there fails without it.
func OnlyNamed(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// nameFrom returns the name to which ctx is limited, or the empty string.
func nameFrom(ctx context.Context) string {
	name, _ := ctx.Value(nameKey{}).(string)
	return name
}

// eventsOfName passes on the events of the keys that end in a name. A response without such an event is dropped.
func eventsOfName(ctx context.Context, name string, all clientv3.WatchChan) clientv3.WatchChan {
	named := make(chan clientv3.WatchResponse)
	go func() {
		defer close(named)
		for response := range all {
			count := len(response.Events)
			response.Events = slices.DeleteFunc(response.Events, func(e *clientv3.Event) bool {
				return path.Base(string(e.Kv.Key)) != name
			})
			if count > 0 && len(response.Events) == 0 {
				continue
			}
			select {
			case named <- response:
			case <-ctx.Done():
				return
			}
		}
	}()
	return named
}

// streamOfName is RangeStream for the keys below a prefix that end in a name. It reads one key for each namespace.
func (k streamingKV) streamOfName(ctx context.Context, request *etcdserverpb.RangeRequest, name string) (*rangeStream, error) {
	result := &etcdserverpb.RangeResponse{}
	err := k.calls.do(func() error {
		const namespaces = DefaultPrefix + "/namespaces/" // a member in this process has no other prefix
		all, err := k.server.Range(ctx, &etcdserverpb.RangeRequest{
			Key: []byte(namespaces), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(namespaces)), KeysOnly: true, Revision: request.Revision,
		})
		if err != nil {
			return err
		}
		result.Header = all.Header
		within := []string{""} // the resource may not be in namespaces
		for _, kv := range all.Kvs {
			within = append(within, strings.TrimPrefix(string(kv.Key), namespaces)+"/")
		}
		for _, namespace := range within {
			one, err := k.server.Range(ctx, &etcdserverpb.RangeRequest{
				Key: []byte(string(request.Key) + namespace + name), Revision: cmp.Or(request.Revision, all.Header.Revision), Serializable: true,
			})
			if err != nil {
				return err
			}
			result.Kvs = append(result.Kvs, one.Kvs...)
		}
		result.Count = int64(len(result.Kvs))
		return nil
	})
	if err != nil {
		return nil, err
	}
	s := &rangeStream{chunks: make(chan *etcdserverpb.RangeStreamResponse, 1)}
	s.chunks <- &etcdserverpb.RangeStreamResponse{RangeResponse: result}
	close(s.chunks)
	return s, nil
}
