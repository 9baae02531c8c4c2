package protected_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

// TestMain removes the pauses of client-go after errors: they are in real time, and the tests are in bubbles of synctest.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// lateDiscovery does not know widgets at first. It counts the looks at it.
type lateDiscovery struct {
	feed.Discovery

	shown atomic.Bool
	looks atomic.Int32
}

// ServerGroupsAndResourcesWithContext implements feed.Discovery.
func (d *lateDiscovery) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	d.looks.Add(1)
	groups, lists, err := d.Discovery.ServerGroupsAndResourcesWithContext(ctx)
	for n := range lists {
		if lists[n].GroupVersion == "acme.io/v1" && !d.shown.Load() {
			lists[n] = &metav1.APIResourceList{GroupVersion: "acme.io/v1"}
		}
	}
	return groups, lists, err
}

// observing returns closures that have observed all objects of a server, and its discovery.
func observing(ctx context.Context, t *testing.T, s *wireserver.Server) (*protected.Closures, *lateDiscovery) {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	client, err := feed.NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	late := &lateDiscovery{Discovery: d}
	closures := protected.NewClosures(late, client, slog.New(slog.DiscardHandler))
	go closures.Run(ctx)
	if err := closures.WaitForInitialSync(ctx); err != nil {
		t.Fatal(err)
	}
	return closures, late
}

// The objects of a resource that is newer than the last look at discovery are counted, as roots and as dependents (R32).
func TestR32_ResourcesThatWereJustDefinedAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"}, wireserver.Resource{Group: "acme.io", Name: "widgets", Kind: "Widget"})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		closures, late := observing(ctx, t, s)
		count := func(roots ownership.Roots) int { return closures.Of(roots, protection.Limits{}).Objects }

		s.Put("configmaps", metav1.ObjectMeta{Namespace: "shop", Name: "root", UID: "root"})
		var widgets []ownership.UID
		for n := range 10 {
			uid := types.UID(fmt.Sprint("widget-", n))
			widgets = append(widgets, ownership.UID(uid))
			s.Put("widgets", metav1.ObjectMeta{Namespace: "shop", Name: string(uid), UID: uid, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: "root", UID: "root"},
			}})
		}
		late.shown.Store(true)
		if err := closures.CatchUp(ctx, map[string]int64{"configmaps": 102, "widgets.acme.io": 112}); err != nil {
			t.Fatal(err)
		}
		if n := count(ownership.Roots{UIDs: widgets}); n != 10 {
			t.Errorf("a collection of 10 counts as %d", n)
		}
		if n := count(ownership.Roots{UIDs: []ownership.UID{"root"}}); n != 11 {
			t.Errorf("an owner with 10 dependents counts as %d", n)
		}

		// A resource that discovery does not have, because its definition is gone, is looked for once after each write.
		for _, look := range []struct {
			written int64
			looks   int32
		}{{113, 1}, {113, 0}, {114, 1}, {113, 0}} {
			before := late.looks.Load()
			if err := closures.CatchUp(ctx, map[string]int64{"gone.acme.io": look.written}); err != nil {
				t.Fatal(err)
			}
			if looks := late.looks.Load() - before; looks != look.looks {
				t.Errorf("after the write %d, discovery is looked at %d times, want %d", look.written, looks, look.looks)
			}
		}
		stop()
		synctest.Wait()
	})
}

// noPermits are Permits of which there are none.
type noPermits struct{}

func (noPermits) Put(context.Context, string, []byte) error   { return nil }
func (noPermits) Names(context.Context) ([]string, error)     { return nil, nil }
func (noPermits) Get(context.Context, string) ([]byte, error) { return nil, nil }

// keptPermits keeps what was put last.
type keptPermits struct {
	noPermits

	last []byte
}

// Put implements protected.Permits.
func (k *keptPermits) Put(_ context.Context, _ string, permit []byte) error {
	k.last = permit
	return nil
}

// R32: what a controller deletes takes dependents with it that were created a moment ago, and are not observed yet.
func TestR32_ControllersPermitWhatWasJustCreated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
		owner := metav1.ObjectMeta{Namespace: "shop", Name: "owner", UID: "owner"}
		s.Put("configmaps", owner)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		closures, _ := observing(ctx, t, s)
		var permits keptPermits
		c := protected.NewConfirming(protected.Confirming{
			Limits: protection.Limits{MoreThan: 5, Controllers: []string{"expirer"}}, Closures: closures, Permits: &permits, Now: time.Now,
			CatchUp: func(context.Context) error {
				for n := range 12 {
					s.Put("configmaps", metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint("part-", n)), OwnerReferences: []metav1.OwnerReference{
						{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"},
					}})
				}
				synctest.Wait()
				return nil
			},
		})
		d := protected.Deleting{Resource: schema.GroupResource{Resource: "configmaps"}, Object: &owner, Namespace: "shop"}
		if err := c.Check(ctx, "expirer", d); err != nil {
			t.Fatal(err)
		}
		permit, err := protection.DecodePermit(permits.last)
		if err != nil || !permit.Has("part-0") || !permit.Has("part-11") {
			t.Errorf("permitted is %v (%v), want the dependents, too", permit, err)
		}
		stop()
		synctest.Wait()
	})
}

// R32: a collector deletes no more than may go because of an owner that is not where its dependents look for it (R5), although
// an object of another namespace has its UID.
func TestR32_OwnersOfOtherNamespacesAreGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := wireserver.New(wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"})
		s.Put("configmaps", metav1.ObjectMeta{Namespace: "there", Name: "owner", UID: "owner"})
		var objects []metav1.Object
		for _, namespace := range []string{"shop", "there"} {
			for n := range 12 {
				m := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(n), UID: types.UID(fmt.Sprint(namespace, n)), OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "owner"},
				}}
				s.Put("configmaps", m)
				objects = append(objects, &m)
			}
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		closures, _ := observing(ctx, t, s)
		c := protected.NewConfirming(protected.Confirming{
			Limits: protection.Limits{MoreThan: 5}, Closures: closures, Permits: noPermits{}, Now: time.Now, CatchUp: func(context.Context) error { return nil },
		})
		for n, want := range map[int]bool{0: true, 11: true, 12: false} {
			d := protected.Deleting{Resource: schema.GroupResource{Resource: "configmaps"}, Object: objects[n], Namespace: objects[n].GetNamespace()}
			err := c.Check(ctx, "system:coppice:collector", d)
			if _, isRefused := protection.NeedsConfirmation(err); isRefused != want {
				t.Errorf("%s/%s is refused: %t (%v)", objects[n].GetNamespace(), objects[n].GetName(), isRefused, err)
			}
		}
		stop()
		synctest.Wait()
	})
}
