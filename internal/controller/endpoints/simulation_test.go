package endpoints

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// simulation has Services that are created, deleted and changed, with Endpoints of the endpoint
// controller, or of users, which are mirrored. Users also change the objects that the controllers
// have written.
type simulation struct {
	*laggingcache.Cluster
	choose histories.Choose
}

func newSimulation(t rapid.TB, choose histories.Choose) *simulation {
	t.Helper()
	c, err := laggingcache.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), choose,
		func(shared *controller.Context) (*controller.Controller, error) {
			return newEndpointsController(shared), nil
		},
		func(shared *controller.Context) (*controller.Controller, error) {
			return newMirroringController(shared), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	s := &simulation{Cluster: c, choose: choose}
	for range choose(8) {
		s.Disturb()
	}
	return s
}

func one[T metav1.Object](s *simulation, all []T) (chosen T, ok bool) {
	if len(all) == 0 {
		return chosen, false
	}
	return all[s.choose(len(all))], true
}

func (s *simulation) services() []*corev1.Service {
	return laggingcache.All[*corev1.Service](s.Cluster, "services")
}

func (s *simulation) endpoints() []*corev1.Endpoints {
	return laggingcache.All[*corev1.Endpoints](s.Cluster, "endpoints")
}

func (s *simulation) slices() []*discoveryv1.EndpointSlice {
	return laggingcache.All[*discoveryv1.EndpointSlice](s.Cluster, "endpointslices")
}

func (s *simulation) pods() []*corev1.Pod { return laggingcache.All[*corev1.Pod](s.Cluster, "pods") }

func named[T metav1.Object](all []T, name string) (found T, ok bool) {
	i := slices.IndexFunc(all, func(o T) bool { return o.GetName() == name })
	if i < 0 {
		return found, false
	}
	return all[i], true
}

// Disturb implements laggingcache.Scenario.
func (s *simulation) Disturb() {
	switch s.choose(6) {
	case 0:
		s.changeService([]string{"a", "b"}[s.choose(2)])
	case 1:
		s.changePod(fmt.Sprint("p", s.choose(4)))
	case 2:
		s.writeEndpoints()
	case 3:
		if service, ok := one(s, s.services()); ok {
			laggingcache.Remove(s.Cluster, "services", service)
		}
	case 4:
		if e, ok := one(s, s.endpoints()); ok && s.choose(2) == 0 {
			laggingcache.Remove(s.Cluster, "endpoints", e)
		} else if ok {
			e.Subsets = nil
			laggingcache.Put(s.Cluster, "endpoints", e)
		}
	case 5:
		if slice, ok := one(s, s.slices()); ok && s.choose(2) == 0 {
			laggingcache.Remove(s.Cluster, "endpointslices", slice)
		} else if ok {
			slice.Endpoints, slice.Annotations = nil, map[string]string{"spoilt": "yes"}
			laggingcache.Put(s.Cluster, "endpointslices", slice)
		}
	}
}

func (s *simulation) changeService(name string) {
	service, ok := named(s.services(), name)
	if !ok {
		service = &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}}
	}
	service.Spec.Ports = []corev1.ServicePort{{Port: int32(80 + s.choose(2)), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(int32(80 + s.choose(2)))}}
	service.Spec.Selector = nil
	if s.choose(2) == 0 {
		service.Spec.Selector = map[string]string{"app": name}
	}
	laggingcache.Put(s.Cluster, "services", service)
}

func (s *simulation) changePod(name string) {
	pod, ok := named(s.pods(), name)
	if ok && s.choose(4) == 0 {
		laggingcache.Remove(s.Cluster, "pods", pod)
		return
	}
	if !ok {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: "n"}}
		pod.Status.PodIP = "10.0.0." + name[1:]
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
	}
	pod.Labels = map[string]string{"app": []string{"a", "b"}[s.choose(2)]}
	s.SetRunning(pod, s.choose(2) == 0)
}

// writeEndpoints writes the Endpoints of a Service without a selector.
func (s *simulation) writeEndpoints() {
	service, ok := one(s, s.services())
	if !ok || service.Spec.Selector != nil {
		return
	}
	e, ok := named(s.endpoints(), service.Name)
	if !ok {
		e = &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: service.Name}}
	}
	e.Subsets = nil
	for i := range s.choose(3) {
		e.Subsets = append(e.Subsets, corev1.EndpointSubset{
			Addresses: []corev1.EndpointAddress{{IP: fmt.Sprint("192.0.2.", s.choose(2))}, {IP: "fd00::1"}},
			Ports:     []corev1.EndpointPort{{Port: int32(90 + i), Protocol: corev1.ProtocolTCP}},
		})
	}
	laggingcache.Put(s.Cluster, "endpoints", e)
}

// Live is the garbage collector, which deletes slices whose Endpoints are gone.
func (s *simulation) Live(int) bool {
	for _, slice := range s.slices() {
		owned := slices.ContainsFunc(s.endpoints(), func(e *corev1.Endpoints) bool { return metav1.IsControlledBy(slice, e) })
		if !owned {
			laggingcache.Remove(s.Cluster, "endpointslices", slice)
			return true
		}
	}
	return false
}

// Observe implements laggingcache.Scenario: wrong intermediate states are corrected later.
func (s *simulation) Observe() string { return "" }

// AtRest implements laggingcache.Scenario.
func (s *simulation) AtRest() string {
	var wrong []string
	for _, name := range []string{"a", "b"} {
		service, served := named(s.services(), name)
		endpoints, listed := named(s.endpoints(), name)
		mirroring := slices.DeleteFunc(s.slices(), func(slice *discoveryv1.EndpointSlice) bool { return slice.Labels[discoveryv1.LabelServiceName] != name })
		switch {
		case !served && listed:
			wrong = append(wrong, "there are Endpoints of "+name+", which is gone")
		case served && service.Spec.Selector != nil:
			wrong = append(wrong, s.wrongEndpoints(service, endpoints))
		case served && listed:
			wrong = append(wrong, wrongSlices(endpoints, mirroring))
			continue
		}
		if len(mirroring) > 0 {
			wrong = append(wrong, fmt.Sprintf("%d slices mirror nothing", len(mirroring)))
		}
	}
	return strings.Join(slices.DeleteFunc(wrong, func(s string) bool { return s == "" }), "; ")
}

func (s *simulation) wrongEndpoints(service *corev1.Service, stored *corev1.Endpoints) string {
	pods := slices.DeleteFunc(s.pods(), func(p *corev1.Pod) bool {
		return !labels.SelectorFromSet(service.Spec.Selector).Matches(labels.Set(p.Labels))
	})
	if stored == nil {
		return "no Endpoints of " + service.Name
	}
	if next := decideEndpoints(service, pods, stored, time.Time{}); next != nil {
		return fmt.Sprintf("the Endpoints of %s are %+v, want %+v", service.Name, stored.Subsets, next.Subsets)
	}
	return ""
}

func wrongSlices(endpoints *corev1.Endpoints, stored []*discoveryv1.EndpointSlice) string {
	desired := decideMirroring(endpoints, nil).Create
	if len(desired) != len(stored) {
		return fmt.Sprintf("%d slices mirror %s, want %d", len(stored), endpoints.Name, len(desired))
	}
	for _, d := range desired {
		if !slices.ContainsFunc(stored, func(s *discoveryv1.EndpointSlice) bool {
			return s.AddressType == d.AddressType && metav1.IsControlledBy(s, endpoints) &&
				equality.Semantic.DeepEqual([]any{s.Endpoints, s.Ports, s.Labels, s.Annotations}, []any{d.Endpoints, d.Ports, d.Labels, d.Annotations})
		}) {
			return fmt.Sprintf("no slice mirrors %+v of %s", d.Endpoints, endpoints.Name)
		}
	}
	return ""
}

func TestEndpointsAndMirroringSlicesSettleAfterRandomHistories(t *testing.T) {
	histories.Check(t, 120, 400, func(t *rapid.T) {
		s := newSimulation(t, histories.Choices(t))
		s.Play(t, s)
	})
}

// R25: slices that were created and deleted while the watch was down have no events.
func TestR25_LostEventDelaysMirroring(t *testing.T) {
	for reconciliations := range 2 {
		s := newSimulation(t, func(int) int { return 0 })
		laggingcache.Put(s.Cluster, "services", &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}})
		endpoints := laggingcache.Put(s.Cluster, "endpoints", &corev1.Endpoints{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}, Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{{IP: "192.0.2.1"}}}},
		})
		s.LoseCreation(t.Context(), "endpointslices", reconciliations)
		s.Rest(t.Context(), 2*controller.LostEventPeriod)
		if wrong := wrongSlices(endpoints, s.slices()); wrong != "" || len(s.Errors) > 0 {
			t.Errorf("reconciled %d times before: %s; errors: %v", reconciliations, wrong, s.Errors)
		}
	}
}
