package collector_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/testing/apimodel"
)

var (
	podKind  = ownership.Kind{Kind: "Pod"}
	setKind  = ownership.Kind{Group: "apps", Kind: "ReplicaSet"}
	nodeKind = ownership.Kind{Kind: "Node"}
)

const space = "shop"

// fixture is an API server with some kinds, and a collector that is driven step by step,
// without goroutines.
type fixture struct {
	*apimodel.Server
	t     tester
	c     *collector.Collector
	keys  *keys
	clock *clocktesting.FakeClock
	logs  bytes.Buffer
}

// tester is a *testing.T or a *rapid.T.
type tester interface {
	rapid.TB
	Context() context.Context
	Cleanup(f func())
}

func newFixture(t tester) *fixture { return newFixtureWith(t, collector.Config{}) }

func newFixtureWith(t tester, config collector.Config) *fixture {
	t.Helper()
	w := &fixture{Server: apimodel.New(), t: t, keys: &keys{}, clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0))}
	config.Queue = w.keys
	if config.Clock == nil {
		config.Clock = w.clock
	}
	config.Workers = 1
	config.Logger = slog.New(slog.NewTextHandler(&w.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.c = collector.New(w.Server, config)
	w.Serve(podKind, ownership.Namespaced)
	w.Serve(setKind, ownership.Namespaced)
	w.Serve(nodeKind, ownership.Cluster)
	w.Connect(w.c.Sink())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", w.logs.String())
			for _, r := range w.Requests() {
				t.Logf("request: %s %s uid=%s rv=%s %s", r.Verb, r.Ref, r.UID, r.ResourceVersion, r.Propagation)
			}
		}
	})
	return w
}

// keys is a queue for one goroutine. Keys in back-off come when there are no others.
type keys struct {
	mu      sync.Mutex
	waiting []ownership.UID
	backoff []ownership.UID
}

func (k *keys) Add(uids ...ownership.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, uid := range uids {
		if !slices.Contains(k.waiting, uid) {
			k.waiting = append(k.waiting, uid)
		}
	}
}

func (k *keys) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.waiting)
}

func (k *keys) Retry(uid ownership.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.backoff, uid) {
		k.backoff = append(k.backoff, uid)
	}
}

func (k *keys) After(uid ownership.UID, _ time.Duration) { k.Retry(uid) }
func (k *keys) Forget(ownership.UID)                     {}
func (k *keys) Done(ownership.UID)                       {}
func (k *keys) ShutDown()                                {}

func (k *keys) Take() (ownership.UID, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.waiting) == 0 {
		return "", false
	}
	uid := k.waiting[0]
	k.waiting = k.waiting[1:]
	return uid, true
}

// backoffOver ends all back-off. It returns false when no key is in back-off.
func (k *keys) backoffOver() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	uids := k.backoff
	k.backoff = nil
	k.waiting = append(k.waiting, uids...)
	return len(uids) > 0
}

// drain reconsiders waiting objects until none is left, except those in back-off.
func (w *fixture) drain() {
	w.t.Helper()
	for range 100000 {
		uid, ok := w.keys.Take()
		if !ok {
			return
		}
		if o := w.c.Collect(w.t.Context(), uid); o.Next != collector.Settled {
			w.keys.Retry(uid)
		}
	}
	w.t.Fatal("the collector does not come to rest")
}

// settle drains until nothing is left to do, back-off included.
func (w *fixture) settle() {
	w.t.Helper()
	for range 1000 {
		w.drain()
		w.clock.Step(time.Minute)
		if !w.keys.backoffOver() {
			return
		}
	}
	w.t.Fatal("the collector does not come to rest")
}

func (w *fixture) collect(uid ownership.UID) collector.Outcome {
	return w.c.Collect(w.t.Context(), uid)
}

// set and pod create objects with the given owners.
func (w *fixture) set(name string, owners ...ownership.Reference) ownership.Object {
	return w.Create(ownership.Object{Kind: setKind, Namespace: space, Name: name, UID: ownership.UID(name), Owners: owners})
}

func (w *fixture) pod(name string, owners ...ownership.Reference) ownership.Object {
	return w.Create(ownership.Object{Kind: podKind, Namespace: space, Name: name, UID: ownership.UID(name), Owners: owners})
}

func setRef(name string) client.Ref {
	return client.Ref{Kind: setKind, Namespace: space, Name: name}
}

func podRef(name string) client.Ref {
	return client.Ref{Kind: podKind, Namespace: space, Name: name}
}

// ownedBy returns a reference to an object; blocking makes it one that blocks.
func ownedBy(o ownership.Object) ownership.Reference {
	version := "v1"
	if o.Kind.Group != "" {
		version = o.Kind.Group + "/v1"
	}
	return ownership.Reference{APIVersion: version, Kind: o.Kind.Kind, Name: o.Name, UID: o.UID}
}

func blocking(r ownership.Reference) ownership.Reference {
	r.BlockOwnerDeletion = ownership.True
	return r
}

// absent returns a reference to a set that never existed.
func absent(name string) ownership.Reference {
	return ownership.Reference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: ownership.UID("never-" + name)}
}

func addFinalizer(f string) func(*ownership.Object) {
	return func(o *ownership.Object) { o.Finalizers = append(o.Finalizers, f) }
}

func removeFinalizer(f string) func(*ownership.Object) {
	return func(o *ownership.Object) {
		o.Finalizers = slices.DeleteFunc(o.Finalizers, func(other string) bool { return other == f })
	}
}

func addOwner(r ownership.Reference) func(*ownership.Object) {
	return func(o *ownership.Object) { o.Owners = append(o.Owners, r) }
}

func removeOwner(uid ownership.UID) func(*ownership.Object) {
	return func(o *ownership.Object) {
		o.Owners = slices.DeleteFunc(o.Owners, func(r ownership.Reference) bool { return r.UID == uid })
	}
}

func (w *fixture) mustExist(refs ...client.Ref) {
	w.t.Helper()
	for _, ref := range refs {
		if _, ok := w.Lookup(ref); !ok {
			w.t.Errorf("%s is gone, want it to exist", ref)
		}
	}
}

func (w *fixture) mustBeGone(refs ...client.Ref) {
	w.t.Helper()
	for _, ref := range refs {
		if o, ok := w.Lookup(ref); ok {
			w.t.Errorf("%s exists (%s, finalizers %v), want it gone", ref, o.Phase, o.Finalizers)
		}
	}
}

// mustHaveOwners compares the UIDs of an object's owner references.
func (w *fixture) mustHaveOwners(ref client.Ref, want ...ownership.UID) {
	w.t.Helper()
	o, ok := w.Lookup(ref)
	if !ok {
		w.t.Errorf("%s is gone, want it to exist", ref)
		return
	}
	var got []ownership.UID
	for _, r := range o.Owners {
		got = append(got, r.UID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("owners of %s (-want +got):\n%s", ref, diff)
	}
}

func (w *fixture) mustHaveRequested(verbs ...string) {
	w.t.Helper()
	var got []string
	for _, r := range w.Requests() {
		got = append(got, r.Verb)
	}
	if diff := cmp.Diff(verbs, got); diff != "" {
		w.t.Errorf("requests (-want +got):\n%s", diff)
	}
}

// onRequest runs a hook before the n-th request of a verb only.
func (w *fixture) onRequest(verb string, n int, hook func()) {
	seen := 0
	w.Before(func(r apimodel.Request) {
		if r.Verb == verb {
			if seen++; seen == n {
				hook()
			}
		}
	})
}

// running runs a test with a collector and all its workers, on fake time.
func running(t *testing.T, config collector.Config, test func(s *apimodel.Server, c *collector.Collector)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := apimodel.New()
		c := collector.New(s, config)
		s.Serve(podKind, ownership.Namespaced)
		s.Serve(setKind, ownership.Namespaced)
		s.Serve(nodeKind, ownership.Cluster)
		s.Connect(c.Sink())
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			c.Run(ctx)
		}()
		test(s, c)
		cancel()
		<-stopped
		// The bubble fails the test when a goroutine is left.
	})
}

var _ collector.Queue = (*keys)(nil)

type propagation = verdict.Propagation

const (
	background = verdict.Background
	foreground = verdict.Foreground
	orphan     = verdict.Orphan
)
