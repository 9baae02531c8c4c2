package etcd

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A selective watch is notified of its progress although there are events all the time, up to the last of them and no
// further, whether the events are passed on or not.
func TestSelectiveWatchesMakeProgress(t *testing.T) {
	s := open(t)
	for what, ctx := range map[string]context.Context{
		"all names": Selective(t.Context()), "one name": OnlyNamed(Selective(t.Context()), "wanted"),
	} {
		events := s.client.Watch(ctx, s.Prefix()+"/configmaps/", clientv3.WithPrefix())
		var last int64
		for range progressEvents {
			last = s.put(t, "/configmaps/a/other", what)
		}
		seen := int64(0)
		for response := range events {
			must(t, response.Err())
			if response.IsProgressNotify() {
				if got := response.Header.GetRevision(); got != last {
					t.Errorf("%s: progress up to revision %d, want %d after %d", what, got, last, seen)
				}
				break
			}
			seen = response.Events[len(response.Events)-1].Kv.ModRevision
		}
		if isNamed := what == "one name"; isNamed != (seen == 0) {
			t.Errorf("%s: the last event was at revision %d", what, seen)
		}
	}
}

// A range and a watch for a name have only the keys of that name, as of one revision.
func TestOnlyNamed(t *testing.T) {
	s := open(t)
	for _, namespace := range []string{"a", "b", "empty"} {
		s.put(t, "/namespaces/"+namespace, namespace)
	}
	for _, key := range []string{"a/wanted", "a/unwanted", "b/wanted", "gone/wanted", "wanted"} {
		s.put(t, "/configmaps/"+key, key)
	}
	ctx, prefix := OnlyNamed(t.Context(), "wanted"), s.Prefix()+"/configmaps/"
	at, err := s.Revision(t.Context())
	must(t, err)
	s.remove(t, "/configmaps/b/wanted")
	for revision, want := range map[int64][]string{at: {"wanted", "a/wanted", "b/wanted"}, 0: {"wanted", "a/wanted"}} {
		stream, err := s.client.GetStream(ctx, prefix, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithRev(revision))
		must(t, err)
		var got []string
		for chunk := range stream {
			must(t, chunk.Err())
			if chunk.Header.GetRevision() < at {
				t.Errorf("a chunk has the revision %d, before %d", chunk.Header.GetRevision(), at)
			}
			for _, kv := range chunk.Kvs {
				got = append(got, string(kv.Value))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("at revision %d (-want +got)\n%s", revision, diff)
		}
	}

	events := s.client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(at+1))
	s.put(t, "/configmaps/b/unwanted", "x")
	s.put(t, "/configmaps/b/wanted", "x")
	for got := 0; got < 2; {
		for _, event := range (<-events).Events {
			got++
			if key := string(event.Kv.Key); key != prefix+"b/wanted" {
				t.Errorf("an event of %s", key)
			}
		}
	}
}
