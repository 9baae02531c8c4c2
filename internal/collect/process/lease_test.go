package process

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// cluster is a server with a Lease, and counts the workers.
type cluster struct {
	client  *fake.Clientset
	broken  atomic.Bool // no request gets a response
	working atomic.Int32
	most    atomic.Int32 // concurrent workers
	terms   atomic.Int32
}

func newCluster() *cluster {
	c := &cluster{client: fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})}
	version := 0
	var mu sync.Mutex
	// The fake client has no resource versions, which leader election relies on.
	c.client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if c.broken.Load() {
			return true, nil, errors.New("the server does not answer")
		}
		mu.Lock()
		defer mu.Unlock()
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return false, nil, nil
		}
		lease := update.GetObject().(*coordinationv1.Lease)
		there, err := c.client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease.Namespace, lease.Name)
		if err == nil && action.GetVerb() == "update" && there.(*coordinationv1.Lease).ResourceVersion != lease.ResourceVersion {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("it has changed"))
		}
		version++
		lease.ResourceVersion = strings.Repeat("v", version)
		return false, nil, nil
	})
	return c
}

func (c *cluster) lease() Lease {
	return Lease{Namespace: "kube-system", Name: "work", Times: FastLeaseTimes(), Log: slog.New(slog.DiscardHandler)}
}

// work runs until ctx ends, and takes a second to stop.
func (c *cluster) work(ctx context.Context) error {
	c.terms.Add(1)
	c.most.Store(max(c.most.Load(), c.working.Add(1)))
	defer c.working.Add(-1)
	<-ctx.Done()
	time.Sleep(time.Second)
	return nil
}

// Only one of two processes works; when it is stopped the other takes over as soon as the work has
// ended, and never before.
func TestOtherProcessTakesOverAfterTheWorkHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		var roles [2]Role
		var stops [2]context.CancelFunc
		var group sync.WaitGroup
		for i := range 2 {
			ctx, stop := context.WithCancel(t.Context())
			stops[i] = stop
			group.Go(func() {
				if err := c.lease().run(ctx, c.client, &roles[i], c.work); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		if c.working.Load() != 1 || c.terms.Load() != 1 {
			t.Fatalf("%d work, in %d terms", c.working.Load(), c.terms.Load())
		}
		leader := 0
		if _, standsBy := roles[0].StandsBy(); standsBy {
			leader = 1
		}
		stops[leader]()
		time.Sleep(4 * time.Second) // a second to stop, and two attempts
		if c.working.Load() != 1 || c.terms.Load() != 2 {
			t.Errorf("after the hand-over %d work, in %d terms", c.working.Load(), c.terms.Load())
		}
		stops[1-leader]()
		group.Wait()
		if c.most.Load() != 1 {
			t.Errorf("%d worked at a time", c.most.Load())
		}
	})
}

// A leader that cannot renew its Lease stops before another may begin, and returns ErrLost;
// RunAlways stands by again.
func TestLeaderWithoutLeaseStopsBeforeAnotherBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		var lost error
		group.Go(func() { lost = c.lease().run(t.Context(), c.client, &Role{}, c.work) })
		time.Sleep(3 * time.Second)
		c.broken.Store(true)
		time.Sleep(FastLeaseTimes().Duration)
		synctest.Wait() // it takes a second to stop, which may be over at this very moment
		if c.working.Load() != 0 {
			t.Error("it works without the Lease")
		}
		group.Wait()
		if !errors.Is(lost, ErrLost) {
			t.Errorf("%v, want that the Lease is lost", lost)
		}
		c.broken.Store(false)
		group.Go(func() {
			if err := c.lease().runAlways(ctx, c.client, &Role{}, c.work); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Second)
		c.broken.Store(true)
		time.Sleep(10 * time.Second)
		c.broken.Store(false)
		time.Sleep(10 * time.Second)
		if c.working.Load() != 1 || c.terms.Load() != 3 {
			t.Errorf("%d work, in %d terms, want the third", c.working.Load(), c.terms.Load())
		}
		stop()
		group.Wait()
	})
}

func TestNamespaceMustExist(t *testing.T) {
	err := Lease{Namespace: "nowhere", Log: slog.New(slog.DiscardHandler)}.run(t.Context(), fake.NewClientset(), &Role{}, nil)
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("%v, want the namespace", err)
	}
}

// The role names the leader while another process leads.
func TestRoleNamesTheLeader(t *testing.T) {
	var r Role
	for _, holder := range []string{"", "other", ""} {
		r.set(holder)
		if got, yes := r.StandsBy(); got != holder || yes != (holder != "") {
			t.Errorf("StandsBy = %q, %t with the holder %q", got, yes, holder)
		}
	}
}
