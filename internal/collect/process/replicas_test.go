package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/testing/wireserver"
)

func TestMain(m *testing.M) {
	// Every bubble of fake time starts at the same time, so the last error may lie in the future, and client-go would
	// wait until then.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	m.Run()
}

// plane is a server with a Lease, for several replicas of a collector.
type plane struct {
	*wireserver.Server

	mu      sync.Mutex
	lease   *coordinationv1.Lease // guarded by mu, like all below
	version int
	holder  *replica // the last replica that has written itself into the Lease
	wrong   []string // deletions by a replica that did not hold the Lease
}

func newPlane() *plane {
	return &plane{Server: wireserver.New(
		wireserver.Resource{Name: "configmaps", Kind: "ConfigMap"}, wireserver.Resource{Name: "secrets", Kind: "Secret"},
		wireserver.Resource{Name: "services", Kind: "Service"}, wireserver.Resource{Group: "apps", Name: "replicasets", Kind: "ReplicaSet"},
	)}
}

// family makes an owner with a number of dependents.
func (p *plane) family(owner types.UID, dependents int) {
	p.Put("configmaps", wireserver.Owned("owner-"+string(owner), owner))
	for i := range dependents {
		name := fmt.Sprintf("%s-%d", owner, i)
		p.Put("secrets", wireserver.Owned(name, types.UID(name), owner))
	}
}

// serveLease answers a request of a replica about the Lease.
func (p *plane) serveLease(from *replica, r *http.Request) *http.Response {
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	p.mu.Lock()
	defer p.mu.Unlock()
	var written coordinationv1.Lease
	switch {
	case r.Method == http.MethodGet && p.lease == nil:
		w.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodGet:
		_ = json.NewEncoder(w).Encode(p.lease)
	case decode(r, &written) != nil:
		w.WriteHeader(http.StatusBadRequest)
	case p.lease != nil && p.lease.ResourceVersion != written.ResourceVersion:
		w.WriteHeader(http.StatusConflict)
	default:
		p.version++
		written.ResourceVersion = strconv.Itoa(p.version)
		written.APIVersion, written.Kind = "coordination.k8s.io/v1", "Lease"
		p.lease, p.holder = &written, nil
		if written.Spec.HolderIdentity != nil && *written.Spec.HolderIdentity != "" {
			p.holder = from
		}
		_ = json.NewEncoder(w).Encode(p.lease)
	}
	return w.Result()
}

// decode reads the object of a request.
func decode(r *http.Request, into runtime.Object) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
	}
	return err
}

// replica is a process that collects while it holds the Lease. It is the transport of its own requests.
type replica struct {
	name      string
	plane     *plane
	role      process.Role
	collector *collector.Collector
	end       context.CancelFunc
	ended     chan error

	mu   sync.Mutex
	away bool // guarded by mu; it does not reach the server
}

// start starts a replica.
func (p *plane) start(t *testing.T, name string) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{name: name, plane: p, end: cancel, ended: make(chan error, 1)}
	config := &rest.Config{Host: "http://server", Transport: r}
	var err error
	if r.collector, err = collector.New(config, collector.Options{}); err != nil {
		t.Fatal(err)
	}
	c := process.Controllers{Collector: r.collector}
	lease := process.Lease{Namespace: "kube-system", Name: "work", Times: process.DefaultLeaseTimes(), Log: slog.New(slog.DiscardHandler)}
	go func() { r.ended <- lease.RunWarm(ctx, config, &r.role, c, c.Lead) }()
	return r
}

// stop stops the replica, which releases the Lease.
func (r *replica) stop(t *testing.T) {
	t.Helper()
	r.end()
	if err := <-r.ended; err != nil {
		t.Errorf("%s: %v", r.name, err)
	}
}

// kill ends the replica without another request.
func (r *replica) kill() {
	r.setAway(true)
	r.end()
	<-r.ended
}

func (r *replica) setAway(away bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = away
}

func (r *replica) leads() bool {
	_, standsBy := r.role.StandsBy()
	return !standsBy
}

// RoundTrip implements http.RoundTripper.
func (r *replica) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	away := r.away
	r.mu.Unlock()
	switch {
	case away:
		return nil, errors.New("the server is away")
	case strings.Contains(request.URL.Path, "/leases"):
		return r.plane.serveLease(r, request), nil
	}
	if request.Method != http.MethodGet {
		r.plane.mu.Lock()
		if r.plane.holder != r {
			r.plane.wrong = append(r.plane.wrong, r.name+" "+request.Method+" "+request.URL.Path)
		}
		r.plane.mu.Unlock()
	}
	response, err := r.plane.RoundTrip(request)
	if err == nil && request.URL.Query().Get("watch") != "" {
		response.Body = &wire{r, response.Body}
	}
	return response, err
}

// wire is the response to a watch; it breaks when its replica does not reach the server.
type wire struct {
	of *replica
	io.ReadCloser
}

// Read implements io.Reader.
func (w *wire) Read(into []byte) (int, error) {
	n, err := w.ReadCloser.Read(into)
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	if w.of.away {
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// The leader dies. The replica that stands by deletes the dependents of an owner that went meanwhile as soon as it has the
// Lease, from what it has observed, without a list.
func TestReplicaThatStandsByNeedsNoListToLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane()
		p.family("a", 3)
		p.family("b", 3)
		first := p.start(t, "first")
		advance(3 * time.Second)
		second := p.start(t, "second")
		advance(3 * time.Second)
		if !first.leads() || second.leads() {
			t.Fatal("the first one does not lead alone")
		}
		if err := second.collector.Warm(); err != nil || second.collector.Synced() {
			t.Fatalf("the second one is not warm: %v, or works: %t", err, second.collector.Synced())
		}
		p.Remove("configmaps", "a")
		advance(time.Second)
		if left := p.UIDs("secrets"); len(left) != 3 {
			t.Fatalf("the leader leaves %v", left)
		}
		first.kill()
		p.Remove("configmaps", "b")
		p.Requests()
		advance(process.DefaultLeaseTimes().Duration - time.Second)
		if r := p.Requests(); r.Deletes != 0 {
			t.Errorf("requests before the Lease has run out: %+v", r)
		}
		// The standby may have seen the last renewal 2.2 retries late, and may look as late again.
		advance(time.Second + 5*process.DefaultLeaseTimes().Retry)
		r := p.Requests()
		if left := p.UIDs("secrets"); !second.leads() || len(left) > 0 {
			t.Errorf("the second one leads: %t; objects left: %v", second.leads(), left)
		}
		if r.Lists+r.Probes+r.Watches+r.Gets != 0 || r.Deletes != 3 {
			t.Errorf("requests of the new leader: %+v, want 3 deletions alone", r)
		}
		second.stop(t)
		if wrong := p.wrong; len(wrong) > 0 {
			t.Errorf("writes without the Lease: %v", wrong)
		}
	})
}

// A leader that loses the Lease stands by, keeps its graph, and leads again with what has changed meanwhile.
func TestFormerLeaderLeadsAgainWithoutLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane()
		for _, owner := range []types.UID{"a", "b", "c"} {
			p.family(owner, 2)
		}
		first := p.start(t, "first")
		advance(3 * time.Second)
		second := p.start(t, "second")
		advance(3 * time.Second)
		first.setAway(true)
		advance(30 * time.Second)
		if first.leads() || !second.leads() || first.collector.Synced() {
			t.Fatal("the second one does not lead alone")
		}
		first.setAway(false)
		p.Remove("configmaps", "a")
		advance(time.Minute)
		if left := p.UIDs("secrets"); len(left) != 4 {
			t.Fatalf("the second leader leaves %v", left)
		}
		second.kill()
		p.Remove("configmaps", "b")
		p.Requests()
		advance(30 * time.Second)
		if left := p.UIDs("secrets"); !first.leads() || len(left) != 2 {
			t.Errorf("the first one leads again: %t; objects left: %v", first.leads(), left)
		}
		if r := p.Requests(); r.Lists != 0 || r.Deletes != 2 {
			t.Errorf("requests of the leader: %+v, want 2 deletions and no list", r)
		}
		p.Remove("configmaps", "c")
		advance(time.Second)
		if left := p.UIDs("secrets"); len(left) > 0 {
			t.Errorf("objects left: %v", left)
		}
		first.stop(t)
		if wrong := p.wrong; len(wrong) > 0 {
			t.Errorf("writes without the Lease: %v", wrong)
		}
	})
}
