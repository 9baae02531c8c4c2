package election

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

	"github.com/coppice-dev/coppice/internal/web"
)

// arena is a server with a Lease, and how many work at a time.
type arena struct {
	client  *fake.Clientset
	broken  atomic.Bool // no request is answered
	working atomic.Int32
	most    atomic.Int32
	terms   atomic.Int32
}

func newArena() *arena {
	a := &arena{client: fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}})}
	version := 0
	var mu sync.Mutex
	// The fake has no versions, which elections stand on.
	a.client.PrependReactor("*", "leases", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if a.broken.Load() {
			return true, nil, errors.New("the server does not answer")
		}
		mu.Lock()
		defer mu.Unlock()
		update, ok := action.(clienttesting.UpdateAction)
		if !ok {
			return false, nil, nil
		}
		lease := update.GetObject().(*coordinationv1.Lease)
		there, err := a.client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), lease.Namespace, lease.Name)
		if err == nil && action.GetVerb() == "update" && there.(*coordinationv1.Lease).ResourceVersion != lease.ResourceVersion {
			return true, nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("it has changed"))
		}
		version++
		lease.ResourceVersion = strings.Repeat("v", version)
		return false, nil, nil
	})
	return a
}

func (a *arena) lease() Lease {
	return Lease{Namespace: "kube-system", Name: "work", Times: Brisk(), Log: slog.New(slog.DiscardHandler)}
}

// work is done until ctx ends, and takes a second to stop.
func (a *arena) work(ctx context.Context) error {
	a.terms.Add(1)
	a.most.Store(max(a.most.Load(), a.working.Add(1)))
	defer a.working.Add(-1)
	<-ctx.Done()
	time.Sleep(time.Second)
	return nil
}

// One of two works; when it is stopped the other takes over as soon as it has ended,
// and never before.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena()
		var roles [2]Role
		var stops [2]context.CancelFunc
		var group sync.WaitGroup
		for i := range 2 {
			ctx, stop := context.WithCancel(t.Context())
			stops[i] = stop
			group.Go(func() {
				if err := a.lease().run(ctx, a.client, &roles[i], a.work); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		if a.working.Load() != 1 || a.terms.Load() != 1 {
			t.Fatalf("%d work, in %d terms", a.working.Load(), a.terms.Load())
		}
		leader := 0
		if roles[0].leader != "" {
			leader = 1
		}
		stops[leader]()
		time.Sleep(4 * time.Second) // a second to stop, and two tries
		if a.working.Load() != 1 || a.terms.Load() != 2 {
			t.Errorf("after the hand-over %d work, in %d terms", a.working.Load(), a.terms.Load())
		}
		stops[1-leader]()
		group.Wait()
		if a.most.Load() != 1 {
			t.Errorf("%d worked at a time", a.most.Load())
		}
	})
}

// A leader whose Lease cannot be renewed stops before another may begin, and says so;
// RunAlways campaigns again.
func TestLostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena()
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		var lost error
		group.Go(func() { lost = a.lease().run(t.Context(), a.client, &Role{}, a.work) })
		time.Sleep(3 * time.Second)
		a.broken.Store(true)
		time.Sleep(Brisk().Duration)
		synctest.Wait() // it takes a second to stop, and may until this very moment
		if a.working.Load() != 0 {
			t.Error("it works without the Lease")
		}
		group.Wait()
		if !errors.Is(lost, ErrLost) {
			t.Errorf("%v, want that the Lease is lost", lost)
		}
		a.broken.Store(false)
		group.Go(func() {
			if err := a.lease().runAlways(ctx, a.client, &Role{}, a.work); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(10 * time.Second)
		a.broken.Store(true)
		time.Sleep(10 * time.Second)
		a.broken.Store(false)
		time.Sleep(10 * time.Second)
		if a.working.Load() != 1 || a.terms.Load() != 3 {
			t.Errorf("%d work, in %d terms, want the third", a.working.Load(), a.terms.Load())
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

// One that stands by is well, and says who can answer.
func TestRoleAnswers(t *testing.T) {
	var r Role
	handler := r.Answering(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, test := range []struct {
		leader, path string
		code         int
	}{
		{"", web.Graph, http.StatusTeapot},
		{"other", web.Graph, http.StatusServiceUnavailable},
		{"other", web.Readyz, http.StatusOK},
		{"other", web.Metrics, http.StatusTeapot},
	} {
		r.standBy(test.leader)
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, test.path, nil))
		if recorder.Code != test.code || test.code != http.StatusTeapot && !strings.Contains(recorder.Body.String(), "other leads") {
			t.Errorf("%+v: %d %s", test, recorder.Code, recorder.Body)
		}
	}
}
