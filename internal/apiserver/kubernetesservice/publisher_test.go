package kubernetesservice

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// room is a store that several servers share.
type room struct {
	mu      sync.Mutex
	present []string
	broken  error
}

func (r *room) set(broken error, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.present, r.broken = names, broken
}

// member is the Presence of one server.
type member struct {
	*room
	name string
}

func (m member) Renew(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == nil && !slices.Contains(m.present, m.name) {
		m.present = append(m.present, m.name)
	}
	return m.broken
}

func (m member) Names(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.present), m.broken
}

func (m member) End(context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.present = slices.DeleteFunc(m.present, func(name string) bool { return name == m.name })
	return m.broken
}

func publisher(t *testing.T, client *fake.Clientset, presence Presence) *Publisher {
	t.Helper()
	p, err := New(Config{
		Client: client, Presence: presence, IP: serviceIP, Port: 6443, Clock: clock.RealClock{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func published(t *testing.T, client *fake.Clientset) (endpoints, slices string) {
	t.Helper()
	e, err := client.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err.Error(), ""
	}
	list, err := client.DiscoveryV1().EndpointSlices("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return "", err.Error()
	}
	var all []*discoveryv1.EndpointSlice
	for i := range list.Items {
		all = append(all, &list.Items[i])
	}
	return endpointsText(e), slicesText(all)
}

// The published servers are the servers that are present: new servers are added, and stopped
// servers removed.
func TestPublisherFollowsPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := fake.NewClientset(), &room{}
		store.set(nil, "192.0.2.2:7443")
		p := publisher(t, client, member{store, "192.0.2.1:6443"})
		p.Start(t.Context())
		want := func(endpoints, slices string) {
			t.Helper()
			eventually.Agrees(t, func() string {
				gotEndpoints, gotSlices := published(t, client)
				if gotEndpoints == endpoints && gotSlices == slices {
					return ""
				}
				return "published are " + gotEndpoints + " and " + gotSlices + ", want " + endpoints + " and " + slices
			})
		}
		want("6443 192.0.2.1; 7443 192.0.2.2", "kubernetes IPv4 6443 192.0.2.1; kubernetes-ipv4-7443 IPv4 7443 192.0.2.2")
		store.set(nil, "192.0.2.1:6443")
		want("6443 192.0.2.1", "kubernetes IPv4 6443 192.0.2.1")
		store.set(nil, "192.0.2.1:6443", "192.0.2.3:6443")
		want("6443 192.0.2.1 192.0.2.3", "kubernetes IPv4 6443 192.0.2.1 192.0.2.3")
		p.Stop()
		if names, _ := (member{store, ""}).Names(t.Context()); !slices.Equal(names, []string{"192.0.2.3:6443"}) {
			t.Errorf("after it has stopped, %v are present", names)
		}
	})
}

// A server that cannot publish starts anyway, and publishes when it can.
func TestPublisherDoesNotHoldUpTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, store := fake.NewClientset(), &room{}
		store.set(errors.New("no space"))
		p := publisher(t, client, member{store, "192.0.2.1:6443"})
		began := time.Now()
		p.Start(t.Context())
		if took := time.Since(began); took != startLimit {
			t.Errorf("the start took %s, want %s", took, startLimit)
		}
		store.set(nil)
		eventually.Agrees(t, func() string {
			if endpoints, _ := published(t, client); endpoints != "6443 192.0.2.1" {
				return endpoints
			}
			return ""
		})
		p.Stop()
		p.Stop() // a second call does nothing
	})
}

func TestFailuresBackOff(t *testing.T) {
	f, now, failure := failures{log: slog.New(slog.DiscardHandler)}, time.Unix(100, 0), errors.New("no")
	var waits []time.Duration
	for range 3 {
		waits = append(waits, f.observe(t.Context(), failure, now))
	}
	if !slices.Equal(waits, []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry}) {
		t.Errorf("waits %v", waits)
	}
	for range 20 {
		waits = append(waits, f.observe(t.Context(), failure, now))
	}
	if last := waits[len(waits)-1]; last != interval {
		t.Errorf("waits %s in the end, want %s", last, interval)
	}
	if f.observe(t.Context(), nil, now) != interval || f.observe(t.Context(), failure, now) != firstRetry {
		t.Error("a success is not forgotten")
	}
}
