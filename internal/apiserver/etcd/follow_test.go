package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// changes is a Subscriber that records its calls.
type changes struct {
	mu   sync.Mutex
	list []string
	lost bool
}

func (c *changes) Changed(change Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, describe(change))
}

func (c *changes) Lost() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = true
}

func (c *changes) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

func (c *changes) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

func describe(c Change) string {
	verb := "change"
	switch {
	case c.Created:
		verb = "create"
	case c.Deleted:
		verb = "delete"
	}
	return fmt.Sprintf("%d %s %s %s", c.Revision, verb, c.Key, c.Value)
}

// A subscriber gets the changes below its prefix after its position; for a deletion it gets the
// last value.
func TestFollowerPassesChangesOn(t *testing.T) {
	s := open(t)
	f := s.Follower()
	s.put(t, "/configmaps/team/before", "x")
	for _, prefix := range []string{"/configmaps/", "/example.com/things/"} {
		got := &changes{}
		position, err := f.Subscribe(t.Context(), s.Prefix()+prefix, got)
		must(t, err)
		key := prefix + "team/a"
		first := s.put(t, key, "one")
		s.put(t, "/secrets/team/a", "another resource")
		s.put(t, "/example.com/others/team/a", "another resource of the group")
		s.put(t, key, "two")
		last := s.remove(t, key)
		full := s.Prefix() + key
		want := []string{
			fmt.Sprintf("%d create %s one", first, full), fmt.Sprintf("%d change %s two", first+3, full), fmt.Sprintf("%d delete %s two", last, full),
		}
		eventually.Agrees(t, func() string { return cmp.Diff(want, got.all()) })
		position.Cancel()
		if position.Revision >= first {
			t.Errorf("%s: the position is %d, the first change %d", prefix, position.Revision, first)
		}
	}
}

// A read with a lower revision than the changes before it shows that a backup was restored:
// subscribers get Lost, and new subscribers get the changes after the read.
func TestFollowerReportsARestoredBackupAsLost(t *testing.T) {
	s := open(t)
	f := s.Follower()
	before, after := &changes{}, &changes{}
	_, err := f.Subscribe(t.Context(), s.Prefix()+"/configmaps/", before)
	must(t, err)
	written := s.put(t, "/configmaps/team/a", "x")
	eventually.Holds(t, "the change arrives", func() bool { return len(before.all()) == 1 })
	f.Read(written, written)
	f.Read(written-1, written-1) // began before the change was passed on
	if before.isLost() {
		t.Fatal("a read of this history ends it")
	}
	f.Read(written+5, written-1)
	if !before.isLost() {
		t.Fatal("the subscriber is not told")
	}
	position, err := f.Subscribe(t.Context(), s.Prefix()+"/configmaps/", after)
	must(t, err)
	if position.Revision != written-1 {
		t.Errorf("the position is %d, want that of the read, %d", position.Revision, written-1)
	}
	eventually.Holds(t, "what follows the read arrives", func() bool { return len(after.all()) == 1 })
	if n := len(before.all()); n != 1 {
		t.Errorf("the first subscriber got %d changes, want 1", n)
	}
}

// Subscribers get Lost when etcd has dropped changes before passing them on.
func TestFollowerReportsCompactedChangesAsLost(t *testing.T) {
	f := open(t).Follower()
	got := &changes{}
	_, err := f.Subscribe(t.Context(), "/registry/configmaps/", got)
	must(t, err)
	if f.take(clientv3.WatchResponse{CompactRevision: 100}) {
		t.Error("the watch goes on")
	}
	if !got.isLost() {
		t.Error("the subscriber is not told")
	}
}

// Replay passes on the changes between two revisions, unless they have been compacted.
func TestReplayHasTheChangesBetweenRevisions(t *testing.T) {
	s := open(t)
	f := s.Follower()
	prefix := s.Prefix() + "/configmaps/"
	first := s.put(t, "/configmaps/team/a", "one")
	s.put(t, "/secrets/team/a", "x")
	last := s.remove(t, "/configmaps/team/a")
	quiet := s.put(t, "/secrets/team/a", "y")
	s.put(t, "/configmaps/team/b", "later")
	for _, test := range []struct {
		after, upTo int64
		want        []string
	}{
		{first - 1, quiet, []string{fmt.Sprintf("%d create %steam/a one", first, prefix), fmt.Sprintf("%d delete %steam/a one", last, prefix)}},
		{first, last, []string{fmt.Sprintf("%d delete %steam/a one", last, prefix)}},
		{last, quiet, nil},
		{quiet, quiet, nil},
	} {
		got := &changes{}
		must(t, f.Replay(t.Context(), prefix, test.after, test.upTo, got.Changed))
		if diff := cmp.Diff(test.want, got.all()); diff != "" {
			t.Errorf("after %d, up to %d: (-want +got)\n%s", test.after, test.upTo, diff)
		}
	}
	_, err := s.client.Compact(t.Context(), last)
	must(t, err)
	if err := f.Replay(t.Context(), prefix, first-1, quiet, func(Change) {}); !errors.Is(err, ErrCompacted) {
		t.Errorf("after compaction: %v, want %v", err, ErrCompacted)
	}
}

// Pages have one revision, even when objects are written meanwhile.
func TestPagesHaveOneRevision(t *testing.T) {
	s := open(t)
	f := s.Follower()
	var revision int64
	var want []string
	for i := range 5 {
		key := "/configmaps/team/" + strconv.Itoa(i)
		revision = s.put(t, key, "x")
		want = append(want, s.Prefix()+key)
	}
	s.put(t, "/configmapsandmore/team/a", "x")
	var got []string
	after, at := "", int64(0)
	for remaining := int64(1); remaining > 0; {
		page, err := f.ReadPage(t.Context(), s.Prefix()+"/configmaps/", after, at, 2)
		must(t, err)
		for _, object := range page.Objects {
			after = object.Key
			got = append(got, object.Key)
		}
		at, remaining = page.Revision, page.Remaining
		s.remove(t, "/configmaps/team/3")
		s.put(t, "/configmaps/team/9", "x")
	}
	if diff := cmp.Diff(want, got); diff != "" || at != revision+1 {
		t.Errorf("at revision %d, want %d: (-want +got)\n%s", at, revision+1, diff)
	}
	now, err := s.Revision(t.Context())
	must(t, err)
	_, err = s.client.Compact(t.Context(), now)
	must(t, err)
	if _, err := f.ReadPage(t.Context(), s.Prefix()+"/configmaps/", after, at, 2); !errors.Is(err, ErrCompacted) {
		t.Errorf("after compaction: %v, want %v", err, ErrCompacted)
	}
}

// All objects are those of the revision, in one stream; and in pages, if etcd cannot stream.
func TestReadAll(t *testing.T) {
	const n = pageOfAll + 50
	for name, unsupported := range map[string]bool{"stream": false, "pages": true} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			f, reads := newFollower(s), &countedReads{KV: s.client.KV, unsupported: unsupported}
			f.client = clientv3.NewCtxClient(t.Context()) // the store's own is in use
			f.client.KV = reads
			var at int64
			var want []string
			for i := range n {
				key := fmt.Sprintf("/configmaps/team/%04d", i)
				at = s.put(t, key, "x")
				if i > 0 {
					want = append(want, s.Prefix()+key)
				}
			}
			s.put(t, "/configmapsandmore/team/a", "x")
			s.remove(t, "/configmaps/team/0003")
			s.put(t, "/configmaps/team/9999", "x")
			gets := reads.gets.Load()
			count := 0
			must(t, f.ReadAll(t.Context(), s.Prefix()+"/configmaps/", "", 0, func(Stored) bool { count++; return true }))
			if count != n {
				t.Errorf("%d objects now, want %d", count, n)
			}
			read := func(ctx context.Context, most int) (got []string, err error) {
				err = f.ReadAll(ctx, s.Prefix()+"/configmaps/", s.Prefix()+"/configmaps/team/0000", at, func(object Stored) bool {
					got = append(got, object.Key)
					return len(got) < most
				})
				return got, err
			}
			got, err := read(t.Context(), n)
			must(t, err)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if more := reads.gets.Load() - gets; (more > 0) != unsupported {
				t.Errorf("%d pages were read", more)
			}
			for _, most := range []int{1, 11, n - 2} {
				if got, err := read(t.Context(), most); err != nil || len(got) != most {
					t.Errorf("%d objects, want %d: %v", len(got), most, err)
				}
			}
			ended, end := context.WithCancel(t.Context())
			end()
			if _, err := read(ended, n); !errors.Is(err, context.Canceled) {
				t.Errorf("with a context that has ended: %v", err)
			}
			now, err := s.Revision(t.Context())
			must(t, err)
			_, err = s.client.Compact(t.Context(), now)
			must(t, err)
			if _, err := read(t.Context(), n); !errors.Is(err, ErrCompacted) {
				t.Errorf("after compaction: %v, want %v", err, ErrCompacted)
			}
		})
	}
}

// BenchmarkReadAll reads 100 000 objects of 1 kB in one stream, and in pages, for each of which etcd counts all objects
// that come after it.
func BenchmarkReadAll(b *testing.B) {
	const n, atOnce = 100_000, 100
	s, value := open(b), strings.Repeat("x", 1000)
	for i := range n / atOnce {
		var puts []clientv3.Op
		for j := range atOnce {
			puts = append(puts, clientv3.OpPut(fmt.Sprintf("%s/configmaps/team/%06d", s.Prefix(), i*atOnce+j), value))
		}
		_, err := s.client.Txn(b.Context()).Then(puts...).Commit()
		must(b, err)
	}
	at, err := s.Revision(b.Context())
	must(b, err)
	for name, read := range map[string]func(context.Context, string, string, int64, func(Stored) bool) error{
		"stream": s.Follower().ReadAll, "pages": s.Follower().readPages,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				count := 0
				must(b, read(b.Context(), s.Prefix()+"/configmaps/", "", at, func(Stored) bool { count++; return true }))
				if count != n {
					b.Fatalf("%d objects, want %d", count, n)
				}
			}
		})
	}
}

// countedReads counts pages, and may be an etcd that cannot stream.
type countedReads struct {
	clientv3.KV
	unsupported bool
	gets        atomic.Int32
}

func (c *countedReads) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	c.gets.Add(1)
	return c.KV.Get(ctx, key, opts...)
}

func (c *countedReads) GetStream(ctx context.Context, key string, opts ...clientv3.OpOption) (clientv3.GetStreamChan, error) {
	if c.unsupported {
		return nil, status.Error(codes.Unimplemented, "unknown method RangeStream for service etcdserverpb.KV")
	}
	return c.KV.GetStream(ctx, key, opts...)
}

// R15: custom resources without a request are in the answer, too.
func TestR15_NewestOfFollowedResources(t *testing.T) {
	s := open(t)
	things := schema.GroupResource{Group: "example.com", Resource: "things"}
	_, err := s.Newest(t.Context())
	must(t, err)
	if _, ok := s.Follower().PrefixOf(things); ok {
		t.Error("the resource is open before it is asked for")
	}
	if got, want := s.Follower().CustomPrefix(things), s.Prefix()+"/example.com/things/"; got != want {
		t.Errorf("the prefix is %s, want %s", got, want)
	}
	written := s.put(t, "/example.com/things/team/a", "x")
	newest, err := s.Newest(t.Context())
	must(t, err)
	if got := newest.Writes[things.String()]; got != written {
		t.Errorf("the last write is %d, want %d", got, written)
	}
}
