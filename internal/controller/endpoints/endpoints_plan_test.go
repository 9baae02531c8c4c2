package endpoints

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func podAt(name string, ready bool, ips ...string) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{
			{Name: "web", ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, ip := range ips {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	if len(ips) > 0 {
		p.Status.PodIP = ips[0]
	}
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}
	return p
}

func with(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	change(p)
	return p
}

func webService(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "uid-service", Labels: map[string]string{"team": "a"}},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, ClusterIP: "10.96.0.10", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Type: corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	if change != nil {
		change(s)
	}
	return s
}

func TestEndpointsListThePodsThatServe(t *testing.T) {
	headlessService := func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }
	twoPorts := func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "named", Port: 81, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString("web")})
	}
	a, b, notReady := podAt("a", true, "10.0.0.2"), podAt("b", true, "10.0.0.1"), podAt("c", false, "10.0.0.3")
	ending := with(podAt("d", true, "10.0.0.4"), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} })
	done := with(podAt("e", false, "10.0.0.5"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	nameless := with(podAt("f", true, "10.0.0.6"), func(p *corev1.Pod) { p.Spec.Containers[0].Ports = nil })
	both := podAt("g", true, "10.0.0.7", "fd00::7")
	for name, test := range map[string]struct {
		service func(*corev1.Service)
		pods    []*corev1.Pod
		want    string
	}{
		"no pods":                   {want: ""},
		"in the order of addresses": {pods: []*corev1.Pod{a, b}, want: "10.0.0.1 10.0.0.2 | : http=8080"},
		"not ready":                 {pods: []*corev1.Pod{a, notReady}, want: "10.0.0.2 | 10.0.0.3 : http=8080"},
		"without an address":        {pods: []*corev1.Pod{podAt("x", true)}, want: ""},
		"terminating, or done":      {pods: []*corev1.Pod{ending, done}, want: ""},
		"publish all but what is done": {
			service: func(s *corev1.Service) { s.Spec.PublishNotReadyAddresses = true },
			pods:    []*corev1.Pod{notReady, ending, done}, want: "10.0.0.3 10.0.0.4 | : http=8080",
		},
		"two ports, the same pods":   {service: twoPorts, pods: []*corev1.Pod{a, b}, want: "10.0.0.1 10.0.0.2 | : http=8080 named=8080"},
		"a pod without a named port": {service: twoPorts, pods: []*corev1.Pod{a, nameless}, want: "10.0.0.2 10.0.0.6 | : http=8080; 10.0.0.2 | : named=8080"},
		"headless":                   {service: headlessService, pods: []*corev1.Pod{a}, want: "10.0.0.2 | : http=8080"},
		"headless without ports": {
			service: func(s *corev1.Service) { headlessService(s); s.Spec.Ports = nil },
			pods:    []*corev1.Pod{a, notReady}, want: "10.0.0.2 | 10.0.0.3 :",
		},
		"the other family":             {service: func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }, pods: []*corev1.Pod{a, both}, want: "fd00::7 | : http=8080"},
		"the family of the cluster IP": {service: func(s *corev1.Service) { s.Spec.IPFamilies, s.Spec.ClusterIP = nil, "fd00::1" }, pods: []*corev1.Pod{a, both}, want: "fd00::7 | : http=8080"},
		"the family of the pod":        {service: func(s *corev1.Service) { headlessService(s); s.Spec.IPFamilies = nil }, pods: []*corev1.Pod{podAt("h", true, "fd00::8", "10.0.0.8")}, want: "fd00::8 | : http=8080"},
	} {
		got := decideEndpoints(webService(test.service), test.pods, nil, time.Time{})
		if got == nil {
			t.Errorf("%s: none are written", name)
		} else if subsetsText(got.Subsets) != test.want {
			t.Errorf("%s: %q, want %q", name, subsetsText(got.Subsets), test.want)
		}
	}
}

func TestAddressNamesItsPodAndHost(t *testing.T) {
	pod := with(podAt("a", true, "10.0.0.1"), func(p *corev1.Pod) { p.Spec.Hostname, p.Spec.Subdomain = "host", "web" })
	got := decideEndpoints(webService(nil), []*corev1.Pod{pod}, nil, time.Time{}).Subsets[0].Addresses[0]
	if got.Hostname != "host" || *got.NodeName != "n1" || *got.TargetRef != (corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "a", UID: "uid-a"}) {
		t.Errorf("%+v", got)
	}
	other := webService(func(s *corev1.Service) { s.Name = "other" })
	if got := decideEndpoints(other, []*corev1.Pod{pod}, nil, time.Time{}).Subsets[0].Addresses[0]; got.Hostname != "" {
		t.Errorf("the host name of another service's domain: %s", got.Hostname)
	}
}

// decideEndpoints writes only wrong Endpoints, with the time of the change.
func TestOnlyWrongEndpointsAreWritten(t *testing.T) {
	service, pods := webService(nil), []*corev1.Pod{podAt("a", true, "10.0.0.1")}
	at := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	stored := decideEndpoints(service, pods, nil, at)
	if got := stored.Annotations[corev1.EndpointsLastChangeTriggerTime]; got != "2026-01-02T03:04:05.0000006Z" {
		t.Errorf("triggered at %s", got)
	}
	if stored.Name != "web" || stored.Namespace != "ns" || stored.Labels[managedByLabel] != endpointsManagedBy || stored.Labels["team"] != "a" {
		t.Errorf("%+v", stored.ObjectMeta)
	}
	if again := decideEndpoints(service, pods, stored, time.Time{}); again != nil {
		t.Errorf("written again: %+v", again)
	}
	for name, change := range map[string]func(*corev1.Endpoints){
		"an address":        func(e *corev1.Endpoints) { e.Subsets[0].Addresses[0].IP = "10.0.0.9" },
		"no subsets":        func(e *corev1.Endpoints) { e.Subsets = nil },
		"a label":           func(e *corev1.Endpoints) { e.Labels["more"] = "x" },
		"no label":          func(e *corev1.Endpoints) { delete(e.Labels, managedByLabel) },
		"headless":          func(e *corev1.Endpoints) { e.Labels[corev1.IsHeadlessService] = "" },
		"over its capacity": func(e *corev1.Endpoints) { e.Annotations[corev1.EndpointsOverCapacity] = overCapacity },
	} {
		wrong := stored.DeepCopy()
		wrong.ResourceVersion = "7"
		change(wrong)
		got := decideEndpoints(service, pods, wrong, time.Time{})
		if got == nil || got.ResourceVersion != "7" || subsetsText(got.Subsets) != subsetsText(stored.Subsets) || len(got.Labels) != len(stored.Labels) {
			t.Errorf("%s: corrected to %+v", name, got)
		} else if _, ok := got.Annotations[corev1.EndpointsLastChangeTriggerTime]; ok {
			t.Errorf("%s: an old time of change stays", name)
		}
	}
	annotated := stored.DeepCopy()
	annotated.Annotations["example.com/mine"] = "x"
	if got := decideEndpoints(service, pods, annotated, time.Time{}); got != nil {
		t.Errorf("an annotation of somebody is a reason to write %+v", got)
	}
	if got := decideEndpoints(webService(func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }), pods, stored, at); got == nil {
		t.Error("no label for a headless service")
	} else if _, ok := got.Labels[corev1.IsHeadlessService]; !ok {
		t.Errorf("labels %v", got.Labels)
	}
}

func TestEndpointsOverCapacityAreTruncated(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 1200 {
		pods = append(pods, podAt(fmt.Sprint("p", i), i < 700, fmt.Sprintf("10.0.%d.%d", i/250, i%250+1)))
	}
	count := func(e *corev1.Endpoints) (ready, notReady int) {
		for _, s := range e.Subsets {
			ready += len(s.Addresses)
			notReady += len(s.NotReadyAddresses)
		}
		return ready, notReady
	}
	stored := decideEndpoints(webService(nil), pods, nil, time.Time{})
	if ready, notReady := count(stored); ready != 700 || notReady != 300 || stored.Annotations[corev1.EndpointsOverCapacity] != "truncated" {
		t.Errorf("%d ready and %d others, %v", ready, notReady, stored.Annotations)
	}
	if again := decideEndpoints(webService(nil), pods, stored, time.Time{}); again != nil {
		t.Error("written again")
	}
	for _, p := range pods {
		p.Status.Conditions[0].Status = corev1.ConditionTrue
	}
	if ready, notReady := count(decideEndpoints(webService(nil), pods, stored, time.Time{})); ready != 1000 || notReady != 0 {
		t.Errorf("all ready: %d ready and %d others", ready, notReady)
	}
	fewer := decideEndpoints(webService(nil), pods[:1000], stored, time.Time{})
	if _, ok := fewer.Annotations[corev1.EndpointsOverCapacity]; ok {
		t.Errorf("%v with 1000 pods", fewer.Annotations)
	}
}

// Each subset loses its share, and one that has nothing left is dropped: it would be refused.
func TestTruncateIsInProportion(t *testing.T) {
	of := func(n int) []corev1.EndpointAddress { return make([]corev1.EndpointAddress, n) }
	kept, truncated := truncate([]corev1.EndpointSubset{
		{Addresses: of(900), NotReadyAddresses: of(5)}, {Addresses: of(300)}, {NotReadyAddresses: of(100)}, {Addresses: of(300)},
	})
	var got []int
	for _, s := range kept {
		got = append(got, len(s.Addresses), len(s.NotReadyAddresses))
	}
	if !truncated || !slices.Equal(got, []int{600, 0, 200, 0, 200, 0}) {
		t.Errorf("kept %v", got)
	}
}
