package apiserver_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/core"
	"github.com/coppice-dev/coppice/internal/controller/resourcequota"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// startQuotas runs the ResourceQuota controller until the test ends.
func (s *server) startQuotas(t *testing.T) {
	t.Helper()
	s.startQuotasAt(t, clock.RealClock{})
}

// startQuotasAt is like startQuotas, with a clock.
func (s *server) startQuotasAt(t *testing.T, clock clock.WithTicker) {
	t.Helper()
	config, err := s.ResourceQuotaController()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	shared := informers.NewSharedInformerFactory(typed(t, s.config), 0)
	core := shared.Core().V1()
	controller, err := resourcequota.New(resourcequota.Config{
		Client: typed(t, config), Metadata: objects, Clock: clock, Log: slog.New(slog.DiscardHandler),
		Pods: core.Pods().Informer(), Services: core.Services().Informer(), Claims: core.PersistentVolumeClaims().Informer(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	shared.StartWithContext(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		if err := controller.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
		shared.Shutdown()
	})
}

func (s *server) quotas(t *testing.T, namespace string, hard map[string]any) collection {
	return s.collection(t, gvk("", "v1", "ResourceQuota"), "resourcequotas", namespace, map[string]any{"spec": map[string]any{"hard": hard}})
}

func (s *server) limitRanges(t *testing.T, namespace string, limits map[string]any) collection {
	return s.collection(t, gvk("", "v1", "LimitRange"), "limitranges", namespace, map[string]any{"spec": map[string]any{"limits": []any{limits}}})
}

// uses waits until the status of a quota reports this usage.
func (c collection) uses(name, resource, want string) {
	c.t.Helper()
	eventually.Agrees(c.t, func() string {
		used, _, err := unstructured.NestedString(c.get(name).Object, "status", "used", resource)
		if err != nil || used != want {
			return fmt.Sprintf("used of %s: %q (%v), want %s", resource, used, err, want)
		}
		return ""
	})
}

// accepts creates an object, as soon as admission knows that the quota permits it. Clients repeat a request that gets
// 409, as with upstream: admission has charged the quota three times, and the controller has written it each time.
func (c collection) accepts(name string) {
	c.t.Helper()
	eventually.Succeeds(c.t, func() error {
		_, err := c.tryPost(c.named(name))
		return err
	})
}

// refuses checks that an object is refused, as soon as admission knows the reason. It removes objects that
// are accepted before.
func (c collection) refuses(name, want string) {
	c.t.Helper()
	eventually.Agrees(c.t, func() string {
		_, err := c.tryPost(c.named(name))
		if apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), want) {
			return ""
		}
		if err == nil && !strings.Contains(c.path, "dryRun") {
			c.mustRemove(name, nil)
		}
		return fmt.Sprintf("got %v, want %s", err, want)
	})
}

// A pod is charged to its namespace's quota until it is removed: neither deletionTimestamp nor the end of
// its grace period frees quota.
func TestQuotaIsFreedWhenAPodIsGone(t *testing.T) {
	s := startServer(t, nil)
	s.startQuotas(t)
	namespace := s.namespace(t)
	quotas, pods := s.quotas(t, namespace, map[string]any{"pods": "2"}), s.pods(t, namespace)
	quotas.create("two")
	quotas.uses("two", "pods", "0")
	pods.content = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}}}
	pods.create("a", foreign)
	pods.accepts("b")
	quotas.uses("two", "pods", "2")
	const exceeded = "exceeded quota: two, requested: pods=1, used: pods=2, limited: pods=2"
	pods.refuses("c", `pods "c" is forbidden: `+exceeded)

	marked := pods.mustRemove("a", nil)
	if marked.GetDeletionTimestamp() == nil {
		t.Fatal("the pod with a finalizer is not marked")
	}
	pods.mustRemove("b", nil)
	quotas.uses("two", "pods", "1") // so the controller has observed the earlier mark, too
	pods.accepts("c")
	pods.refuses("d", exceeded)

	if _, err := pods.patch("a", types.MergePatchType, mergeFinalizers()); err != nil {
		t.Fatal(err)
	}
	quotas.uses("two", "pods", "1")
	pods.accepts("d")
	pods.refuses("e", exceeded)

	// A finished pod does not count as one of the pods that a quota limits.
	if _, err := pods.patch("d", types.MergePatchType, map[string]any{"status": map[string]any{"phase": "Succeeded"}}, "status"); err != nil {
		t.Fatal(err)
	}
	quotas.uses("two", "pods", "1")
	pods.accepts("e")
	quotas.uses("two", "pods", "2")
}

// The limited resources can change, and so can the watched ones; custom resources are counted like all
// others.
func TestQuotaOfNumbers(t *testing.T) {
	s := startServer(t, nil)
	s.startQuotas(t)
	namespace := s.namespace(t)
	s.define(t, definition(widgetGroup, "widgets", "Widget"))
	widgets := s.collection(t, gvk(widgetGroup, "v1", "Widget"), "widgets", namespace, nil)
	configMaps := s.configMaps(t, namespace)
	configMaps.create("before")
	widgets.create("before")
	const name, counted = "numbers", "count/widgets." + widgetGroup
	quotas := s.quotas(t, namespace, map[string]any{counted: "2"})
	quotas.create(name)
	quotas.uses(name, counted, "1")
	widgets.accepts("a")
	quotas.uses(name, counted, "2")
	widgets.refuses("b", "exceeded quota: numbers, requested: "+counted+"=1, used: "+counted+"=2, limited: "+counted+"=2")
	widgets.mustRemove("before", nil)
	quotas.uses(name, counted, "1")

	more := map[string]any{"spec": map[string]any{"hard": map[string]any{counted: nil, "configmaps": "1", "services": "5", "services.nodeports": "1"}}}
	if _, err := quotas.patch(name, types.MergePatchType, more); err != nil {
		t.Fatal(err)
	}
	quotas.uses(name, "configmaps", "1")
	quotas.uses(name, counted, "") // it is no longer limited
	configMaps.refuses("c", "exceeded quota: numbers, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
	widgets.accepts("b")
	widgets.accepts("c")

	services := s.collection(t, gvk("", "v1", "Service"), "services", namespace, map[string]any{"spec": map[string]any{
		"type": "NodePort", "ports": []any{map[string]any{"port": int64(80)}},
	}})
	services.accepts("s")
	quotas.uses(name, "services.nodeports", "1")
	services.refuses("t", "requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1")
	if _, err := services.patch("s", types.MergePatchType, map[string]any{"spec": map[string]any{"type": "ClusterIP"}}); err != nil {
		t.Fatal(err)
	}
	quotas.uses(name, "services.nodeports", "0")
	quotas.uses(name, "services", "1")
}

// Concurrent creations never exceed a quota. The controller counts nothing meanwhile, however long that takes
// here, because its clock does not advance.
func TestQuotaUnderLoad(t *testing.T) {
	s := startServer(t, nil)
	s.startQuotasAt(t, clocktesting.NewFakeClock(time.Now()))
	namespace := s.namespace(t)
	const limit, clients = 10, 40
	quotas, configMaps := s.quotas(t, namespace, map[string]any{"configmaps": "0"}), s.configMaps(t, namespace)
	quotas.create("ten")
	dry := configMaps
	dry.path += "?dryRun=All" // objects that admission accepts before it has the quota are not created, so nothing is freed later
	dry.refuses("early", "exceeded quota: ten, requested: configmaps=1, used: configmaps=0, limited: configmaps=0")
	if _, err := quotas.patch("ten", types.MergePatchType, map[string]any{"spec": map[string]any{"hard": map[string]any{"configmaps": fmt.Sprint(limit)}}}); err != nil {
		t.Fatal(err)
	}
	var creating sync.WaitGroup
	var lost atomic.Int64 // requests that may have been charged, and created nothing
	create := func(name string) error {
		_, err := configMaps.tryPost(configMaps.named(name))
		if err != nil && !apierrors.IsForbidden(err) && !apierrors.IsConflict(err) {
			lost.Add(1)
		}
		return err
	}
	for i := range clients {
		creating.Go(func() {
			// A refusal may refer to the old limit, and a conflict among so many requests is possible.
			_ = create(fmt.Sprint("c-", i))
		})
	}
	creating.Wait()
	eventually.Agrees(t, func() string { // the rest of the quota is used one by one
		err := create(unique("more"))
		n := len(configMaps.names())
		if n > limit {
			t.Fatalf("%d objects", n)
		}
		if apierrors.IsForbidden(err) && strings.HasSuffix(err.Error(), "used: configmaps=10, limited: configmaps=10") && n >= limit-int(lost.Load()) {
			return ""
		}
		return fmt.Sprintf("%d objects, %v", n, err)
	})
}

// A request that guesses a node port again because another service has the first one is charged once. Nearly all node
// ports are in use, so nearly every request guesses again.
func TestQuotaIsChargedOnceForSeveralGuesses(t *testing.T) {
	const ports, free = 64, 3
	s := startServer(t, func(c *apiserver.Config) {
		c.Services = core.DefaultServiceRanges()
		c.Services.LastPort = c.Services.FirstPort + ports - 1
	})
	s.startQuotasAt(t, clocktesting.NewFakeClock(time.Now())) // the controller returns no charge
	namespace := s.namespace(t)
	ofType := func(in, of string, count int) collection {
		list := make([]any, count)
		for i := range list {
			list[i] = map[string]any{"port": int64(i + 1), "name": fmt.Sprint("p", i)}
		}
		return s.collection(t, gvk("", "v1", "Service"), "services", in, map[string]any{"spec": map[string]any{"type": of, "ports": list}})
	}
	ofType(s.namespace(t), "NodePort", ports-free).create("many")
	ofType(namespace, "ClusterIP", 1).create("changed")
	s.quotas(t, namespace, map[string]any{"services.nodeports": "2"}).create("two")
	early := ofType(namespace, "NodePort", free)
	early.path += "?dryRun=All"
	early.refuses("early", "exceeded quota: two, requested: services.nodeports=3, used: services.nodeports=0, limited: services.nodeports=2")

	services := ofType(namespace, "NodePort", 1)
	if _, err := services.tryPost(services.named("created")); err != nil {
		t.Errorf("create: %v", err)
	}
	if _, err := services.patch("changed", types.MergePatchType, map[string]any{"spec": map[string]any{"type": "NodePort"}}); err != nil {
		t.Errorf("change: %v", err)
	}
	services.refuses("more", "exceeded quota: two, requested: services.nodeports=1, used: services.nodeports=2, limited: services.nodeports=2")
}

// The charge of a request that creates no object is returned.
func TestQuotaOfARequestThatFails(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	s.startQuotas(t)
	namespace := s.namespace(t)
	quotas, configMaps := s.quotas(t, namespace, map[string]any{"configmaps": "5"}), s.configMaps(t, namespace)
	configMaps.create("a")
	quotas.create("five")
	quotas.uses("five", "configmaps", "1")
	eventually.Agrees(t, func() string { // until admission has the quota
		if _, err := configMaps.tryPost(configMaps.named("a")); !apierrors.IsAlreadyExists(err) {
			return fmt.Sprintf("a second one of that name: %v", err)
		}
		if used, _, _ := unstructured.NestedString(quotas.get("five").Object, "status", "used", "configmaps"); used == "1" {
			return "nothing was charged"
		}
		return ""
	})
	quotas.uses("five", "configmaps", "1")
}

// A LimitRange sets the defaults of containers, and refuses values outside its limits.
func TestLimitRanges(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	ranges := s.limitRanges(t, namespace, map[string]any{
		"type": "Container", "default": map[string]any{"cpu": "200m"}, "defaultRequest": map[string]any{"cpu": "100m"}, "max": map[string]any{"cpu": "1"},
	})
	ranges.create("containers")
	pods := s.pods(t, namespace)
	pods.content = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{
		"name": "a", "image": "a", "resources": map[string]any{"limits": map[string]any{"cpu": "2"}},
	}}}}
	pods.refuses("large", `pods "large" is forbidden: maximum cpu usage per Container is 1, but limit is 2`)
	pods.content = map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}}}
	created := pods.create("plain")
	containers, _, err := unstructured.NestedSlice(created.Object, "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	resources := containers[0].(map[string]any)["resources"]
	if got := fmt.Sprint(resources); got != "map[limits:map[cpu:200m] requests:map[cpu:100m]]" {
		t.Errorf("resources %s", got)
	}
	if class, _, _ := unstructured.NestedString(created.Object, "status", "qosClass"); class != "Burstable" {
		t.Errorf("class %q", class)
	}
	if set := created.GetAnnotations()["kubernetes.io/limit-ranger"]; set != "LimitRanger plugin set: cpu request for container a; cpu limit for container a" {
		t.Errorf("annotated with %q", set)
	}

	// The limits of volume claims apply to updates, too, but not to claims that are being deleted.
	claims := s.claims(t, namespace)
	claims.create("small")
	s.limitRanges(t, namespace, map[string]any{"type": "PersistentVolumeClaim", "max": map[string]any{"storage": "500Mi"}}).create("claims")
	const tooLarge = "maximum storage usage per PersistentVolumeClaim is 500Mi, but request is "
	eventually.Agrees(t, func() string {
		if _, err := claims.tryPost(claims.named(unique("large"))); !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), tooLarge+"1Gi") {
			return fmt.Sprintf("a large one: %v", err)
		}
		return ""
	})
	bound := map[string]any{"status": map[string]any{"phase": "Bound"}} // no other claim may grow
	if _, err := claims.patch("small", types.MergePatchType, bound, "status"); err != nil {
		t.Fatal(err)
	}
	grow := map[string]any{"spec": map[string]any{"resources": map[string]any{"requests": map[string]any{"storage": "2Gi"}}}}
	if _, err := claims.patch("small", types.MergePatchType, grow); !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), tooLarge+"2Gi") {
		t.Errorf("it grows: %v", err)
	}
	claims.mustRemove("small", nil)
	if _, err := claims.patch("small", types.MergePatchType, mergeFinalizers()); err != nil {
		t.Errorf("it is held: %v", err)
	}
}

// The ResourceQuota controller writes the status of ResourceQuotas, and reads only metadata of all other
// objects (R16).
func TestForgedRequestsOfTheResourceQuotaController(t *testing.T) {
	s := sharedServer(t)
	config, err := s.ResourceQuotaController()
	if err != nil {
		t.Fatal(err)
	}
	namespace := s.namespace(t)
	secret, _ := s.secret(t, namespace, "a")
	quotas := s.quotas(t, namespace, map[string]any{"pods": "2"})
	quotas.create("q")
	const status = `{"apiVersion":"v1","kind":"ResourceQuota","metadata":{"name":"q"},"status":{"hard":{"pods":"2"},"used":{"pods":"1"}}}`
	secrets := strings.TrimSuffix(secret, "/a")
	for name, f := range map[string]forged{
		"read a secret":    {http.MethodGet, secret, asMetadata, "", ""},
		"list secrets":     {http.MethodGet, secrets, "application/json", "", ""},
		"update a quota":   {http.MethodPut, quotas.at("q"), "", "application/json", status},
		"patch a status":   {http.MethodPatch, quotas.at("q", "status"), "", string(types.MergePatchType), `{"status":{}}`},
		"delete a quota":   {http.MethodDelete, quotas.at("q"), "", "", ""},
		"create a quota":   {http.MethodPost, quotas.path, "", "application/json", status},
		"annotate a quota": {http.MethodPut, quotas.at("q", "status"), "", "application/json", strings.Replace(status, `"name":"q"`, `"name":"q","annotations":{"a":"b"}`, 1)},
		"write another's":  {http.MethodPut, "/api/v1/namespaces/" + namespace + "/pods/x/status", "", "application/json", `{}`},
	} {
		if code, answer := forge(t, config, f); code != http.StatusForbidden || strings.Contains(answer, secretContent) {
			t.Errorf("%s: %d %s", name, code, answer)
		}
	}
	if code, answer := forge(t, config, forged{http.MethodGet, secrets, asMetadataList, "", ""}); code != http.StatusOK || strings.Contains(answer, secretContent) {
		t.Errorf("metadata of secrets: %d %s", code, answer)
	}
	if code, answer := forge(t, config, forged{http.MethodPut, quotas.at("q", "status"), "", "application/json", status}); code != http.StatusOK {
		t.Errorf("its own request: %d %s", code, answer)
	}
}
