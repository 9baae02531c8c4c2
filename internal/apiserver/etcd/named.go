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

type selectiveKey struct{}

// Selective marks the watches with a context as those of a client that drops events of other objects below the watched
// prefix, and knows what a progress notification is.
//
// Problem: etcd notifies a watch of its progress only if the watch has had no event. The client of a busy prefix never
// got a bookmark, and resumed its watch after some minutes at the revision with which it began. etcd then decodes all
// events since, of all keys, at once: after 800 000 writes that took 750 MB, and held up all other requests for seconds.
//
// Benefit: the watch gets a progress notification after each progressEvents events. TestSelectiveWatchesMakeProgress
// fails without it.
func Selective(ctx context.Context) context.Context {
	return context.WithValue(ctx, selectiveKey{}, true)
}

// progressEvents is the number of events after which a selective watch is notified of its progress. A watch that resumes
// reads no more than these, and the events of a minute.
const progressEvents = 1024

// isSelective reports whether Selective has marked ctx.
func isSelective(ctx context.Context) bool { return ctx.Value(selectiveKey{}) != nil }

// selected passes on the events of the keys that end in a name, or all if it is empty; a response without such an event is
// dropped. It adds the notifications of a selective watch.
func selected(ctx context.Context, name string, all clientv3.WatchChan) clientv3.WatchChan {
	passed := make(chan clientv3.WatchResponse)
	go func() {
		defer close(passed)
		pass := func(response clientv3.WatchResponse) bool {
			select {
			case passed <- response:
				return true
			case <-ctx.Done():
				return false
			}
		}
		since := 0 // events after the last notification
		for response := range all {
			count, progress := len(response.Events), progressOf(response)
			response.Events = slices.DeleteFunc(response.Events, func(e *clientv3.Event) bool {
				return name != "" && path.Base(string(e.Kv.Key)) != name
			})
			if (count == 0 || len(response.Events) > 0) && !pass(response) {
				return
			}
			if since += count; since < progressEvents || !isSelective(ctx) {
				continue
			}
			if since = 0; !pass(progress) {
				return
			}
		}
	}()
	return passed
}

// progressOf returns the notification that the watch has had all events up to the last one of a response.
func progressOf(response clientv3.WatchResponse) clientv3.WatchResponse {
	if len(response.Events) == 0 {
		return response
	}
	revision := response.Events[len(response.Events)-1].Kv.ModRevision
	return clientv3.WatchResponse{Header: &etcdserverpb.ResponseHeader{Revision: revision}}
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
