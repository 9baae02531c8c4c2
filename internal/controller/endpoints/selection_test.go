package endpoints

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
)

func serviceSelecting(namespace, name string, selector map[string]string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Selector: selector}}
}

func podOn(node, name, ip string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": "web", "tier": "front"}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIP: ip},
	}
}

// finderOn returns a podFinder on caches with these objects.
func finderOn(t *testing.T, services []*corev1.Service, pods ...*corev1.Pod) podFinder {
	t.Helper()
	shared, err := controller.NewContext(fake.NewClientset(), clocktesting.NewFakeClock(time.Unix(0, 0)), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	add := func(to cache.SharedIndexInformer, obj any) {
		if err := to.GetIndexer().Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range services {
		add(shared.Informers.Services.Informer(), s)
	}
	for _, p := range pods {
		add(shared.Informers.Pods.Informer(), p)
	}
	return newPodFinder(shared)
}

func TestServicesThatSelectAPodAreFound(t *testing.T) {
	f := finderOn(t, []*corev1.Service{
		serviceSelecting("ns", "by-one", map[string]string{"app": "web"}), serviceSelecting("ns", "by-both", map[string]string{"app": "web", "tier": "front"}),
		serviceSelecting("ns", "another", map[string]string{"app": "db"}), serviceSelecting("ns", "everything", nil), serviceSelecting("elsewhere", "by-one", map[string]string{"app": "web"}),
	})
	var got []string
	for _, key := range f.selecting(podOn("n", "p", "10.0.0.1")) {
		got = append(got, key.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"ns/by-both", "ns/by-one"}) {
		t.Errorf("selected by %v", got)
	}
	if keys := f.selecting(podOn("n", "p", "")); len(keys) != 0 {
		t.Errorf("a pod without an address matters to %v", keys)
	}
	if keys := f.selecting(&corev1.Node{}); len(keys) != 0 {
		t.Errorf("a node matters to %v", keys)
	}
}

func TestOnlyBoundPodsOfTheSelectorAreFound(t *testing.T) {
	other := podOn("n", "other", "10.0.0.3")
	other.Labels = map[string]string{"app": "db"}
	f := finderOn(t, nil, podOn("n", "bound", "10.0.0.1"), podOn("", "pending", "10.0.0.2"), other)
	pods, err := f.selected(serviceSelecting("ns", "web", map[string]string{"app": "web"}))
	if err != nil || len(pods) != 1 || pods[0].Name != "bound" {
		t.Errorf("%v, %v", pods, err)
	}
}

func TestServicesWithoutASelectorSelectNoPods(t *testing.T) {
	outside := serviceSelecting("ns", "outside", map[string]string{"app": "web"})
	outside.Spec.Type = corev1.ServiceTypeExternalName
	for service, want := range map[*corev1.Service]bool{
		serviceSelecting("ns", "web", map[string]string{"app": "web"}): true, serviceSelecting("ns", "by-hand", nil): false, outside: false,
	} {
		if selects(service) != want {
			t.Errorf("%s: %t", service.Name, !want)
		}
	}
}
