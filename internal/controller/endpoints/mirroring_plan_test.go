package endpoints

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func endpointsWith(subsets ...corev1.EndpointSubset) *corev1.Endpoints {
	return &corev1.Endpoints{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "db", UID: "uid-1", Labels: map[string]string{"team": "a"},
			Annotations: map[string]string{"example.com/mine": "x", corev1.LastAppliedConfigAnnotation: "{}", corev1.EndpointsLastChangeTriggerTime: "t"},
		},
		Subsets: subsets,
	}
}

func subset(port int32, ready []string, notReady ...string) corev1.EndpointSubset {
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "p", Port: port, Protocol: corev1.ProtocolTCP}}}
	for _, ip := range ready {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
	}
	for _, ip := range notReady {
		s.NotReadyAddresses = append(s.NotReadyAddresses, corev1.EndpointAddress{IP: ip})
	}
	return s
}

// stored returns the slices of a plan as the server has them.
func stored(p mirroringPlan) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for i, s := range p.Create {
		s = s.DeepCopy()
		s.Name, s.ResourceVersion = fmt.Sprint("s", i), "1"
		all = append(all, s)
	}
	return all
}

func text(all []*discoveryv1.EndpointSlice) string {
	var lines []string
	for _, s := range all {
		line := fmt.Sprintf("%s %s", s.Name, s.AddressType)
		for _, p := range s.Ports {
			line += fmt.Sprintf(" %d", *p.Port)
		}
		for _, e := range s.Endpoints {
			line += fmt.Sprintf(" %s=%t", e.Addresses[0], *e.Conditions.Ready)
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "; ")
}

func TestEndpointsWithoutASelectorAreMirrored(t *testing.T) {
	service := &corev1.Service{}
	election := endpointsWith()
	election.Annotations[resourcelock.LeaderElectionRecordAnnotationKey] = "{}"
	skipped := endpointsWith()
	skipped.Labels[discoveryv1.LabelSkipMirror] = "true"
	for name, test := range map[string]struct {
		endpoints *corev1.Endpoints
		service   *corev1.Service
		want      bool
	}{
		"of a service without a selector": {endpointsWith(), service, true},
		"of one with a selector":          {endpointsWith(), &corev1.Service{Spec: corev1.ServiceSpec{Selector: map[string]string{"a": "b"}}}, false},
		"of no service":                   {endpointsWith(), nil, false},
		"none":                            {nil, service, false},
		"of a leader election":            {election, service, false},
		"not to be mirrored":              {skipped, service, false},
	} {
		if got := isMirrored(test.endpoints, test.service); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestMirroringCreatesASlicePerSubsetAndFamily(t *testing.T) {
	e := endpointsWith(subset(80, []string{"10.0.0.1", "fd00::1"}, "10.0.0.2"), subset(81, []string{"10.0.0.3"}))
	e.Subsets[1].Addresses[0].Hostname, e.Subsets[1].Addresses[0].NodeName = "host", new("n1")
	p := decideMirroring(e, nil)
	want := "IPv4 80 10.0.0.1=true 10.0.0.2=false; IPv6 80 fd00::1=true; IPv4 81 10.0.0.3=true"
	if got := text(p.Create); got != want || len(p.Update)+len(p.Remove)+p.Skipped != 0 {
		t.Fatalf("%s, want %s; %+v", got, want, p)
	}
	s := p.Create[2]
	if *s.Endpoints[0].Hostname != "host" || *s.Endpoints[0].NodeName != "n1" {
		t.Errorf("%+v", s.Endpoints[0])
	}
	if s.GenerateName != "db-" || s.Namespace != "ns" || !metav1.IsControlledBy(s, e) || s.OwnerReferences[0].Kind != "Endpoints" {
		t.Errorf("%+v", s.ObjectMeta)
	}
	if len(s.Labels) != 3 || s.Labels["team"] != "a" || s.Labels[discoveryv1.LabelServiceName] != "db" || s.Labels[discoveryv1.LabelManagedBy] != mirroringManagedBy {
		t.Errorf("labels %v", s.Labels)
	}
	if len(s.Annotations) != 1 || s.Annotations["example.com/mine"] != "x" {
		t.Errorf("annotations %v", s.Annotations)
	}
	if e.Labels[discoveryv1.LabelServiceName] != "" {
		t.Error("the Endpoints were changed")
	}
}

func TestMirroringSlicesFollowTheirEndpoints(t *testing.T) {
	before := stored(decideMirroring(endpointsWith(subset(80, []string{"10.0.0.1"}), subset(81, []string{"10.0.0.2"})), nil))
	for name, test := range map[string]struct {
		endpoints              *corev1.Endpoints
		create, update, remove string
	}{
		"nothing":       {endpoints: endpointsWith(subset(80, []string{"10.0.0.1"}), subset(81, []string{"10.0.0.2"}))},
		"an address":    {endpoints: endpointsWith(subset(80, []string{"10.0.0.1"}), subset(81, []string{"10.0.0.2", "10.0.0.4"})), update: "s1 IPv4 81 10.0.0.2=true 10.0.0.4=true"},
		"another port":  {endpoints: endpointsWith(subset(82, []string{"10.0.0.1"}), subset(81, []string{"10.0.0.2"})), update: "s0 IPv4 82 10.0.0.1=true"},
		"one less":      {endpoints: endpointsWith(subset(81, []string{"10.0.0.2"})), remove: "s0 IPv4 80 10.0.0.1=true"},
		"none any more": {endpoints: endpointsWith(), remove: "s0 IPv4 80 10.0.0.1=true; s1 IPv4 81 10.0.0.2=true"},
		"another family": {
			endpoints: endpointsWith(subset(80, []string{"fd00::1"}), subset(81, []string{"10.0.0.2"})),
			create:    "IPv6 80 fd00::1=true", remove: "s0 IPv4 80 10.0.0.1=true",
		},
	} {
		p := decideMirroring(test.endpoints, before)
		if got := text(p.Create); got != test.create {
			t.Errorf("%s: creates %q, want %q", name, got, test.create)
		}
		if got := text(p.Update); got != test.update {
			t.Errorf("%s: updates to %q, want %q", name, got, test.update)
		}
		if got := text(p.Remove); got != test.remove {
			t.Errorf("%s: removes %q, want %q", name, got, test.remove)
		}
		for _, s := range p.Update {
			if s.ResourceVersion != "1" {
				t.Errorf("%s: the update of %s is not conditioned", name, s.Name)
			}
		}
	}
	again := endpointsWith(subset(80, []string{"10.0.0.1"}), subset(81, []string{"10.0.0.2"}))
	again.UID = "uid-2"
	if p := decideMirroring(again, before); len(p.Update) != 2 || !metav1.IsControlledBy(p.Update[0], again) {
		t.Errorf("Endpoints of the same name: %+v", p)
	}
}

func TestMirroringSkipsAddressesOverItsCapacity(t *testing.T) {
	var ready, notReady []string
	for i := range 600 {
		ready = append(ready, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
		notReady = append(notReady, fmt.Sprintf("10.1.%d.%d", i/250, i%250))
	}
	p := decideMirroring(endpointsWith(subset(80, ready, notReady...)), nil)
	isReady := func(e discoveryv1.Endpoint) bool { return *e.Conditions.Ready }
	if p.Skipped != 200 || len(p.Create) != 1 || len(p.Create[0].Endpoints) != 1000 || len(slices.DeleteFunc(p.Create[0].Endpoints, isReady)) != 400 {
		t.Errorf("%d slices, %d addresses skipped", len(p.Create), p.Skipped)
	}
}
