package kubelet

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// objects is a registry.
type objects map[string]runtime.Object

// Get implements rest.Getter.
func (o objects) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if object, ok := o[name]; ok {
		return object, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("objects"), name)
}

func podAt(node, ip string, ports ...int32) *corev1.Pod {
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}}}
	pod.Status.PodIP = ip
	for _, port := range ports {
		pod.Spec.Containers[1].Ports = append(pod.Spec.Containers[1].Ports, corev1.ContainerPort{ContainerPort: port})
	}
	return pod
}

func nodeRunning(runtime string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.NodeInfo.ContainerRuntimeVersion = runtime
	return node
}

// backed returns Endpoints of a service with an address; pod is the name of its pod, if it has one.
func backed(address, pod string) *corev1.Endpoints {
	e := &corev1.Endpoints{Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: address}},
		Ports:     []corev1.EndpointPort{{Name: "web", Port: 8080}, {Name: "other", Port: 9090}},
	}}}
	if pod != "" {
		e.Subsets[0].Addresses[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: pod}
	}
	return e
}

func proxied() podProxy {
	return podProxy{
		nodes: objects{"real": nodeRunning("containerd://2"), "sim": nodeRunning("simulated://1")},
		pods: objects{
			"web": podAt("real", "192.0.2.7", 8080, 9090), "bare": podAt("real", "192.0.2.8"), "six": podAt("real", "2001:db8::7", 80),
			"loop": podAt("real", "127.0.0.1", 80), "link": podAt("real", "169.254.169.254", 80), "new": podAt("real", ""),
			"sim": podAt("sim", "192.0.2.9", 80), "lost": podAt("gone", "192.0.2.10", 80),
		},
		services: objects{
			"front": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "front"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "web", Port: 80}, {Name: "other", Port: 90}}}},
			"empty": &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "empty"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		},
	}
}

func TestPodProxyLocates(t *testing.T) {
	for name, test := range map[string]struct{ scheme, pod, port, want, wrong string }{
		"the first port":      {"", "web", "", "//192.0.2.7:8080", ""},
		"another":             {"https", "web", "9090", "https://192.0.2.7:9090", ""},
		"none":                {"http", "bare", "", "http://192.0.2.8", ""},
		"IPv6":                {"http", "six", "", "http://[2001:db8::7]:80", ""},
		"a loopback":          {"", "loop", "", "", "address not allowed"},
		"a link-local one":    {"", "link", "", "", "address not allowed"},
		"no address yet":      {"", "new", "80", "", "address not allowed"},
		"a simulated node":    {"", "sim", "", "", "pod  is on node n, which is simulated: nothing is served there"},
		"a node that is gone": {"", "lost", "", "", `cannot reach pod : find its node: objects "gone" not found`},
		"no pod":              {"", "none", "", "", `objects "none" not found`},
	} {
		got, err := proxied().pod(t.Context(), test.scheme, test.pod, test.port)
		if test.wrong != "" {
			if err == nil || err.Error() != test.wrong {
				t.Errorf("%s: %v, %v; want %s", name, got, err, test.wrong)
			}
			continue
		}
		if err != nil || got.String() != test.want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, test.want)
		}
	}
}

// Requests to a service go to its pods only, whatever addresses its Endpoints have.
func TestServiceProxyLocates(t *testing.T) {
	const none = `no endpoints available for service "front"`
	for name, test := range map[string]struct {
		service, port string
		endpoints     *corev1.Endpoints
		want, wrong   string
	}{
		"by name":             {"front", "web", backed("192.0.2.7", "web"), "//192.0.2.7:8080", ""},
		"by number":           {"front", "90", backed("192.0.2.7", "web"), "//192.0.2.7:9090", ""},
		"no such name":        {"front", "x", backed("192.0.2.7", "web"), "", none},
		"no such number":      {"front", "91", backed("192.0.2.7", "web"), "", `no service port 91 found for service "front"`},
		"no pod":              {"front", "web", backed("192.0.2.7", ""), "", none},
		"not the pod's":       {"front", "web", backed("192.0.2.66", "web"), "", none},
		"a pod on a loopback": {"front", "web", backed("127.0.0.1", "loop"), "", none},
		"a pod that is gone":  {"front", "web", backed("192.0.2.7", "none"), "", none},
		"no endpoints":        {"empty", "", nil, "", `no endpoints available for service "empty"`},
		"no service":          {"none", "", nil, "", `objects "none" not found`},
	} {
		r := proxied()
		r.endpoints = objects{}
		if test.endpoints != nil {
			r.endpoints = objects{test.service: test.endpoints}
		}
		got, err := r.service(t.Context(), "", test.service, test.port)
		if test.wrong != "" {
			if err == nil || err.Error() != test.wrong {
				t.Errorf("%s: %v, %v; want %s", name, got, err, test.wrong)
			}
			continue
		}
		if err != nil || got.String() != test.want {
			t.Errorf("%s: %v, %v; want %s", name, got, err, test.want)
		}
	}
}
