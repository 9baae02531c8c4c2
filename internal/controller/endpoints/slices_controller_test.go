package endpoints

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// newSlicesCluster returns a cluster whose caches never lag: events come before all other steps.
func newSlicesCluster(t *testing.T) *laggingcache.Cluster {
	t.Helper()
	c, err := laggingcache.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), func(int) int { return 0 },
		func(shared *controller.Context) (*controller.Controller, error) {
			return newSlicesController(shared), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	laggingcache.Put(c, "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	return c
}

func putService(c *laggingcache.Cluster, selector map[string]string) *corev1.Service {
	return laggingcache.Put(c, "services", &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: selector, ClusterIP: "10.96.0.10", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	})
}

func putPod(c *laggingcache.Cluster, n int, ready bool) *corev1.Pod {
	pod := laggingcache.Put(c, "pods", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", n), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: "n"},
		Status:     corev1.PodStatus{PodIP: fmt.Sprintf("10.0.%d.%d", n/250, n%250), PodIPs: []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", n/250, n%250)}}},
	})
	c.SetRunning(pod, ready)
	return pod
}

func quiesce(t *testing.T, c *laggingcache.Cluster) {
	t.Helper()
	if !c.Quiesce(context.Background()) || len(c.Errors) > 0 {
		t.Fatalf("it does not come to rest: %v", c.Errors)
	}
}

// slicesText returns the endpoints in all slices, in order.
func slicesText(c *laggingcache.Cluster) string {
	var all []string
	for _, s := range laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices") {
		for _, e := range s.Endpoints {
			all = append(all, fmt.Sprintf("%s:%d=%t", e.Addresses[0], *s.Ports[0].Port, *e.Conditions.Ready))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

var web = map[string]string{"app": "web"}

func TestSlicesFollowPodsAndService(t *testing.T) {
	c := newSlicesCluster(t)
	service := putService(c, web)
	first := putPod(c, 1, true)
	putPod(c, 2, false)
	quiesce(t, c)
	if got, want := slicesText(c), "10.0.0.1:8080=true 10.0.0.2:8080=false"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	slice := laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices")[0]
	if !metav1.IsControlledBy(slice, service) || slice.Labels[discoveryv1.LabelServiceName] != "web" || slice.Labels[discoveryv1.LabelManagedBy] != slicesManagedBy {
		t.Errorf("%+v", slice.ObjectMeta)
	}
	laggingcache.Remove(c, "pods", first)
	putPod(c, 3, true)
	unbound := putPod(c, 4, true)
	unbound.Spec.NodeName = ""
	c.SetRunning(unbound, true)
	quiesce(t, c)
	if got, want := slicesText(c), "10.0.0.2:8080=false 10.0.0.3:8080=true"; got != want {
		t.Errorf("later: %s, want %s", got, want)
	}
	service.Spec.Ports[0].TargetPort = intstr.FromInt32(9090)
	laggingcache.Put(c, "services", service)
	quiesce(t, c)
	if got, want := slicesText(c), "10.0.0.2:9090=false 10.0.0.3:9090=true"; got != want {
		t.Errorf("another port: %s, want %s", got, want)
	}
}

// A slice that another client deletes or changes is restored.
func TestSlicesAreRestored(t *testing.T) {
	c := newSlicesCluster(t)
	putService(c, web)
	putPod(c, 1, true)
	quiesce(t, c)
	for what, spoil := range map[string]func(*discoveryv1.EndpointSlice){
		"deleted": func(s *discoveryv1.EndpointSlice) { laggingcache.Remove(c, "endpointslices", s) },
		"changed": func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = nil
			s.Generation++
			laggingcache.Put(c, "endpointslices", s)
		},
		"orphaned": func(s *discoveryv1.EndpointSlice) {
			s.OwnerReferences = nil
			laggingcache.Put(c, "endpointslices", s)
		},
		"terminating": func(s *discoveryv1.EndpointSlice) {
			s.DeletionTimestamp, s.Endpoints = &metav1.Time{Time: c.Clock.Now()}, nil
			laggingcache.Put(c, "endpointslices", s)
		},
	} {
		spoil(laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices")[0])
		quiesce(t, c)
		if got, want := slicesText(c), "10.0.0.1:8080=true"; got != want {
			t.Errorf("%s: %q, want %s", what, got, want)
		}
	}
}

// A slice that was created and deleted while the watch was down has no event.
func TestLostEventDelaysSlices(t *testing.T) {
	for reconciliations := range 2 {
		c := newSlicesCluster(t)
		putService(c, web)
		putPod(c, 1, true)
		c.LoseCreation(t.Context(), "endpointslices", reconciliations)
		c.Rest(t.Context(), 2*controller.LostEventPeriod)
		if got, want := slicesText(c), "10.0.0.1:8080=true"; got != want {
			t.Errorf("reconciled %d times before: %q, want %s", reconciliations, got, want)
		}
	}
}

// A slice that another client has taken away, by its labels, is replaced, and is not waited for afterwards.
func TestHiddenSliceIsReplaced(t *testing.T) {
	c := newSlicesCluster(t)
	putService(c, web)
	putPod(c, 1, true)
	quiesce(t, c)
	hidden := laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices")[0]
	hidden.Labels, hidden.Endpoints = nil, nil
	laggingcache.Put(c, "endpointslices", hidden)
	c.Rest(t.Context(), 2*controller.LostEventPeriod)
	if got, want := slicesText(c), "10.0.0.1:8080=true"; got != want {
		t.Errorf("%q, want %s", got, want)
	}
	if c.Wait(2 * controller.LostEventPeriod) {
		t.Error("it is still waited for")
	}
}

// The slices of an earlier Service of that name, which was deleted without them, are replaced.
func TestSlicesOfAnEarlierServiceAreReplaced(t *testing.T) {
	c := newSlicesCluster(t)
	former := putService(c, web)
	putPod(c, 1, true)
	quiesce(t, c)
	left := laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices")[0]
	left.OwnerReferences = nil
	laggingcache.Remove(c, "services", former)
	laggingcache.Put(c, "endpointslices", left)
	laggingcache.Remove(c, "pods", laggingcache.All[*corev1.Pod](c, "pods")[0])
	quiesce(t, c)
	service := putService(c, web)
	putPod(c, 2, true)
	quiesce(t, c)
	if got, want := slicesText(c), "10.0.0.2:8080=true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for _, slice := range laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices") {
		if !metav1.IsControlledBy(slice, service) {
			t.Errorf("%s is not owned by the new Service", slice.Name)
		}
	}
}

func TestSlicesHoldAtMostAHundredEndpoints(t *testing.T) {
	c := newSlicesCluster(t)
	putService(c, web)
	for n := range 2*perSlice + 1 {
		putPod(c, n, true)
	}
	quiesce(t, c)
	all := laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices")
	endpoints := 0
	for _, s := range all {
		if endpoints += len(s.Endpoints); len(s.Endpoints) > perSlice {
			t.Errorf("%s has %d endpoints", s.Name, len(s.Endpoints))
		}
	}
	if endpoints != 2*perSlice+1 {
		t.Errorf("%d endpoints in %d slices", endpoints, len(all))
	}
}

// Services that select no pods get no slices, nor does one that is being deleted.
func TestServicesWithoutSelectedPodsGetNoSlices(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"no selector": func(s *corev1.Service) { s.Spec.Selector = nil },
		"outside":     func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"terminating": func(s *corev1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
	} {
		c := newSlicesCluster(t)
		putPod(c, 1, true)
		service := putService(c, web)
		change(service)
		laggingcache.Put(c, "services", service)
		quiesce(t, c)
		if all := laggingcache.All[*discoveryv1.EndpointSlice](c, "endpointslices"); len(all) > 0 {
			t.Errorf("%s: %d slices", name, len(all))
		}
	}
}
