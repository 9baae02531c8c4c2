package resourcequota

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	quotav1 "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func secret(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
	}
}

// newTestMonitors returns monitors of a server with secrets, config maps and nodes, and their metadata.
func newTestMonitors(t *testing.T, objects ...*metav1.PartialObjectMetadata) (*monitors, *fake.Clientset, *metadatafake.FakeMetadataClient) {
	t.Helper()
	client := fake.NewClientset()
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "secrets", Namespaced: true, Kind: "Secret"}, {Name: "configmaps", Namespaced: true, Kind: "ConfigMap"}, {Name: "nodes", Kind: "Node"},
	}}}
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metadata := metadatafake.NewSimpleMetadataClient(scheme)
	for _, obj := range objects {
		if err := metadata.Tracker().Create(corev1.SchemeGroupVersion.WithResource("secrets"), obj, obj.Namespace); err != nil {
			t.Fatal(err)
		}
	}
	pods := informers.NewSharedInformerFactory(client, 0).Core().V1().Pods().Informer()
	m := newMonitors(map[schema.GroupResource]cache.SharedIndexInformer{corev1.Resource("pods"): pods}, metadata, newResolver(client.Discovery(), clock.RealClock{}))
	m.log = slog.New(slog.DiscardHandler)
	m.freed = func(context.Context, schema.GroupResource, string, func(*corev1.ResourceQuota) bool) {}
	m.added = func(context.Context, schema.GroupResource, string) {}
	m.known = func(context.Context, cache.ObjectName) {}
	return m, client, metadata
}

// A resource is followed from the first quota that limits it to the last.
func TestMonitorsFollowWhatIsLimited(t *testing.T) {
	m, _, _ := newTestMonitors(t)
	ctx, stop := context.WithCancel(t.Context())
	defer m.started.Wait()
	defer stop()
	a, b := cache.NewObjectName("ns", "a"), cache.NewObjectName("ns", "b")
	secrets, configMaps := corev1.Resource("secrets"), corev1.Resource("configmaps")
	for _, step := range []struct {
		quota     cache.ObjectName
		resources []schema.GroupResource
		want      string
	}{
		{a, []schema.GroupResource{secrets}, "[secrets]"},
		{b, []schema.GroupResource{configMaps, secrets}, "[configmaps secrets]"},
		{a, nil, "[configmaps secrets]"},
		{b, []schema.GroupResource{configMaps}, "[configmaps]"},
		{b, []schema.GroupResource{corev1.Resource("pods")}, "[pods]"},
	} {
		served, err := m.want(ctx, step.quota, step.resources)
		if err != nil || !served {
			t.Fatalf("%v of %v: served %t, %v", step.resources, step.quota, served, err)
		}
		if got := following(m); got != step.want {
			t.Errorf("after %v of %v: %s, want %s", step.resources, step.quota, got, step.want)
		}
	}
	m.forget(b)
	if got := following(m); got != "[]" || len(m.wanted) != 0 {
		t.Errorf("without quotas: %s, %v", got, m.wanted)
	}
}

func following(m *monitors) string {
	all := []string{}
	for _, name := range []string{"configmaps", "pods", "secrets"} {
		if m.running[corev1.Resource(name)] != nil {
			all = append(all, name)
		}
	}
	return fmt.Sprint(all)
}

// Resources that are not served, or not in namespaces, are reported.
func TestMonitorsOfWhatIsNotServed(t *testing.T) {
	m, _, _ := newTestMonitors(t)
	for _, resource := range []schema.GroupResource{{Group: "example.com", Resource: "widgets"}, corev1.Resource("nodes"), {Group: "v", Resource: "secrets"}} {
		if served, err := m.want(t.Context(), cache.NewObjectName("ns", "a"), []schema.GroupResource{resource}); served || err != nil {
			t.Errorf("%s: served %t, %v", resource, served, err)
		}
	}
	if len(m.running) != 0 {
		t.Errorf("following %v", m.running)
	}
}

// A resource that is no longer served is not counted from the objects left in the cache.
func TestMonitorsOfWhatIsServedNoLonger(t *testing.T) {
	m, client, _ := newTestMonitors(t)
	ctx, stop := context.WithCancel(t.Context())
	defer m.started.Wait()
	defer stop()
	want := func(served bool) {
		t.Helper()
		m.resolver.since = time.Time{} // what discovery has said is long ago
		if got, err := m.want(ctx, cache.NewObjectName("ns", "a"), []schema.GroupResource{corev1.Resource("secrets")}); got != served || err != nil {
			t.Fatalf("served %t, %v", got, err)
		}
		if got := following(m) == "[secrets]"; got != served {
			t.Errorf("following it: %t, want %t", got, served)
		}
	}
	want(true)
	all := client.Resources
	client.Resources = []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: all[0].APIResources[1:]}}
	want(false)
	client.Resources = all
	want(true)
}

// Objects are counted once all of them are known, and the first and the last event of each is noticed.
func TestMonitorsCount(t *testing.T) {
	m, _, metadata := newTestMonitors(t, secret("one"), secret("two"))
	ctx, stop := context.WithCancel(t.Context())
	defer m.started.Wait()
	defer stop()
	added, freed, known := make(chan string, 1), make(chan string, 1), make(chan cache.ObjectName, 1)
	m.added = func(_ context.Context, resource schema.GroupResource, namespace string) {
		added <- resource.String() + " in " + namespace
	}
	m.freed = func(_ context.Context, resource schema.GroupResource, namespace string, _ func(*corev1.ResourceQuota) bool) {
		freed <- resource.String() + " in " + namespace
	}
	m.known = func(_ context.Context, quota cache.ObjectName) { known <- quota }
	a := cache.NewObjectName("ns", "a")
	if _, err := m.want(ctx, a, []schema.GroupResource{corev1.Resource("secrets")}); err != nil {
		t.Fatal(err)
	}
	if quota := <-known; quota != a {
		t.Errorf("the objects of %v are known", quota)
	}
	count := func() string {
		used, err := quotav1.CalculateUsage("ns", nil, amounts(t, map[string]string{"count/secrets": "9"}), m.registry(), nil)
		quantity := used["count/secrets"]
		return fmt.Sprint(quantity.String(), " ", err)
	}
	if got := count(); got != "2 <nil>" {
		t.Errorf("counted %s, want 2", got)
	}
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	if err := metadata.Tracker().Create(secrets, secret("three"), "ns"); err != nil {
		t.Fatal(err)
	}
	if got := <-added; got != "secrets in ns" {
		t.Errorf("added: %s", got)
	}
	eventually.Holds(t, "three are counted", func() bool { return count() == "3 <nil>" })
	if err := metadata.Tracker().Delete(secrets, "ns", "one"); err != nil {
		t.Fatal(err)
	}
	if got := <-freed; got != "secrets in ns" {
		t.Errorf("freed: %s", got)
	}
	eventually.Holds(t, "two are left", func() bool { return count() == "2 <nil>" })
}

// The monitors go on after a panic about one object: it would end the process, in a goroutine of the informer.
func TestMonitorsGoOnAfterAPanic(t *testing.T) {
	m, _, metadata := newTestMonitors(t)
	ctx, stop := context.WithCancel(t.Context())
	defer m.started.Wait()
	defer stop()
	calls, added, known := 0, make(chan string), make(chan cache.ObjectName, 1)
	m.added = func(_ context.Context, resource schema.GroupResource, _ string) {
		if calls++; calls == 1 {
			panic("no such quota")
		}
		added <- resource.String()
	}
	m.known = func(_ context.Context, quota cache.ObjectName) { known <- quota }
	if _, err := m.want(ctx, cache.NewObjectName("ns", "a"), []schema.GroupResource{corev1.Resource("secrets")}); err != nil {
		t.Fatal(err)
	}
	<-known
	secrets := corev1.SchemeGroupVersion.WithResource("secrets")
	for _, name := range []string{"one", "two"} {
		if err := metadata.Tracker().Create(secrets, secret(name), "ns"); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-added; got != "secrets" {
		t.Errorf("added: %s", got)
	}
}
