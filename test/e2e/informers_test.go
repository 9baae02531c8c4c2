package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// TestInformersSurviveARestart watches with client-go's informers across a restart of the server: they have the
// server's objects, and no event is repeated or missed.
func TestInformersSurviveARestart(t *testing.T) {
	t.Parallel()
	port := freeport.Find(t)
	args := []string{"--data-dir", t.TempDir(), "--secure-port", port}
	p := startPlane(t, args...)
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	seen := &sightings{}
	factory := informers.NewSharedInformerFactory(client, 0)
	configMaps := factory.Core().V1().ConfigMaps()
	if _, err := configMaps.Informer().AddEventHandler(seen.handler()); err != nil {
		t.Fatal(err)
	}
	factory.Apps().V1().Deployments().Informer()
	factory.Core().V1().Pods().Informer()
	ctx, cancel := context.WithCancel(t.Context())
	defer factory.Shutdown()
	defer cancel()
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			t.Fatalf("the cache of %v is not filled", kind)
		}
	}

	applied := func(name, value string) {
		t.Helper()
		settings := corev1apply.ConfigMap(name, "default").WithLabels(map[string]string{"app": "shop"}).WithData(map[string]string{"mode": value})
		if _, err := client.CoreV1().ConfigMaps("default").Apply(t.Context(), settings, metav1.ApplyOptions{FieldManager: "e2e"}); err != nil {
			t.Fatal(err)
		}
	}
	applied("a", "1")
	applied("a", "2")
	applied("b", "1")
	seen.eventually(t, "added a", "updated a", "added b")

	p.kill(t)
	startPlane(t, args...)
	applied("b", "2")
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	applied("c", "1")
	seen.eventually(t, "added a", "updated a", "added b", "updated b", "deleted a", "added c")
	left, err := configMaps.Lister().ConfigMaps("default").List(labels.SelectorFromSet(labels.Set{"app": "shop"}))
	if err != nil || len(left) != 2 {
		t.Errorf("the cache has %v, %v; want b and c", left, err)
	}
}

// sightings records an informer's events about the shop's objects.
type sightings struct {
	mu   sync.Mutex
	what []string
}

func (s *sightings) handler() cache.ResourceEventHandler {
	tell := func(what string, obj any) {
		o, ok := obj.(*corev1.ConfigMap)
		if !ok || o.Labels["app"] != "shop" {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.what = append(s.what, what+" "+o.Name)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { tell("added", obj) },
		UpdateFunc: func(before, now any) {
			if before.(*corev1.ConfigMap).ResourceVersion != now.(*corev1.ConfigMap).ResourceVersion { // not a list after a reconnection
				tell("updated", now)
			}
		},
		DeleteFunc: func(obj any) {
			if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = unknown.Obj
			}
			tell("deleted", obj)
		},
	}
}

// eventually waits until exactly these events were delivered, in any order across objects.
func (s *sightings) eventually(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	began := time.Now()
	eventually.Agrees(t, func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		got := slices.Sorted(slices.Values(s.what))
		if slices.Equal(got, want) {
			return ""
		}
		return fmt.Sprintf("after %s the informer has told %s, want %s", time.Since(began).Round(time.Second), strings.Join(got, ", "), strings.Join(want, ", "))
	})
}
