package apiserver_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func advertise(ip string) func(*apiserver.Config) {
	return func(c *apiserver.Config) { c.AdvertiseAddress = net.ParseIP(ip) }
}

// publishedBy returns the addresses of the service default/kubernetes from its Endpoints if its
// EndpointSlices have the same ones, and otherwise a description of the difference.
func publishedBy(client kubernetes.Interface) string {
	ctx := context.Background()
	service, err := client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	endpoints, err := client.CoreV1().Endpoints("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	sliceList, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=kubernetes"})
	if err != nil {
		return err.Error()
	}
	var inEndpoints, inSlices []string
	for _, subset := range endpoints.Subsets {
		for _, a := range subset.Addresses {
			inEndpoints = append(inEndpoints, fmt.Sprintf("%s:%d", a.IP, subset.Ports[0].Port))
		}
	}
	for _, slice := range sliceList.Items {
		for _, e := range slice.Endpoints {
			inSlices = append(inSlices, fmt.Sprintf("%s:%d", e.Addresses[0], *slice.Ports[0].Port))
		}
	}
	slices.Sort(inEndpoints)
	slices.Sort(inSlices)
	if !slices.Equal(inEndpoints, inSlices) {
		return fmt.Sprintf("the endpoints %v are not those of the slices, %v", inEndpoints, inSlices)
	}
	if len(inEndpoints) == 0 {
		return "there are no endpoints"
	}
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != 443 || !strings.HasSuffix(inEndpoints[0], ":"+service.Spec.Ports[0].TargetPort.String()) {
		return fmt.Sprintf("the service has ports %+v", service.Spec.Ports)
	}
	return strings.Join(inEndpoints, " ")
}

func portOf(t *testing.T, s *server) string {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// The service exists when the server is ready, with the first address of the range, and is restored after a
// deletion or change.
func TestKubernetesService(t *testing.T) {
	t.Parallel()
	s := startServer(t, func(c *apiserver.Config) {
		smallRanges(c)
		c.AdvertiseAddress = net.ParseIP("192.0.2.1")
	})
	client, ctx := clientOf(t, s), context.Background()
	want := "192.0.2.1:" + portOf(t, s)
	if got := publishedBy(client); got != want {
		t.Fatalf("when the server is ready: %s, want %s", got, want)
	}
	service, err := client.CoreV1().Services("default").Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || service.Spec.ClusterIP != "10.7.0.1" || service.Spec.Type != corev1.ServiceTypeClusterIP || service.Labels["provider"] != "kubernetes" {
		t.Errorf("%+v %v", service, err)
	}
	del := metav1.DeleteOptions{}
	for what, spoil := range map[string]func() error{
		"service deleted":   func() error { return client.CoreV1().Services("default").Delete(ctx, "kubernetes", del) },
		"endpoints deleted": func() error { return client.CoreV1().Endpoints("default").Delete(ctx, "kubernetes", del) },
		"slice deleted":     func() error { return client.DiscoveryV1().EndpointSlices("default").Delete(ctx, "kubernetes", del) },
		"service changed": func() error {
			_, err := client.CoreV1().Services("default").Patch(ctx, "kubernetes", "application/merge-patch+json", []byte(`{"spec":{"ports":[{"name":"http","port":80}]}}`), metav1.PatchOptions{})
			return err
		},
		"endpoints changed": func() error {
			_, err := client.CoreV1().Endpoints("default").Patch(ctx, "kubernetes", "application/merge-patch+json", []byte(`{"subsets":null}`), metav1.PatchOptions{})
			return err
		},
		"slice changed": func() error {
			_, err := client.DiscoveryV1().EndpointSlices("default").Patch(ctx, "kubernetes", "application/merge-patch+json", []byte(`{"endpoints":[],"metadata":{"labels":null}}`), metav1.PatchOptions{})
			return err
		},
	} {
		if err := spoil(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		eventually.Agrees(t, func() string {
			if got := publishedBy(client); got != want {
				return fmt.Sprintf("%s: %s, want %s", what, got, want)
			}
			return ""
		})
	}
	thief := plainService("thief")
	thief.Spec.ClusterIP = "10.7.0.1"
	if _, err := client.CoreV1().Services("kube-system").Create(ctx, thief, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), "already allocated") {
		t.Errorf("the address of the service: %v", err)
	}
}

// Each server on a store publishes its address beside those of the others, and withdraws it when it stops.
func TestKubernetesServiceOfTwoServers(t *testing.T) {
	t.Parallel()
	first := startServer(t, advertise("192.0.2.1"))
	second := &server{store: first.store, authority: first.authority, dir: t.TempDir(), ended: make(chan error, 1)}
	if err := second.serve(advertise("192.0.2.2")); err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, first)
	alone := "192.0.2.1:" + portOf(t, first)
	both := alone + " 192.0.2.2:" + portOf(t, second)
	becomes := func(when, want string) {
		t.Helper()
		eventually.Agrees(t, func() string {
			if got := publishedBy(client); got != want {
				return fmt.Sprintf("%s: %s, want %s", when, got, want)
			}
			return ""
		})
	}
	becomes("two", both)
	if err := client.DiscoveryV1().EndpointSlices("default").DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	becomes("all slices deleted", both)
	second.ends()
	if err := <-second.ended; err != nil {
		t.Fatal(err)
	}
	becomes("one has stopped", alone)
}
