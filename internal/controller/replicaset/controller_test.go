package replicaset

import (
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// newCluster returns a cluster with a ReplicaSet of that size. Keys come before events, and events of ReplicaSets before
// those of pods.
func newCluster(t *testing.T, size int32) (*laggingcache.Cluster, *appsv1.ReplicaSet) {
	t.Helper()
	c, err := laggingcache.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), func(n int) int { return n - 1 },
		func(shared *controller.Context) (*controller.Controller, error) { return ReplicaSets(shared), nil })
	if err != nil {
		t.Fatal(err)
	}
	labels := map[string]string{"app": "web"}
	return c, laggingcache.Put(c, "replicasets", &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &size, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	})
}

func podsIn(c *laggingcache.Cluster) []*corev1.Pod { return laggingcache.All[*corev1.Pod](c, "pods") }

// R25: a pod that was created and deleted while the watch was down has no event. The controller notices anyhow that its
// cache is current again.
func TestR25_LostEventDelaysAReplicaSet(t *testing.T) {
	for reconciliations := range 2 {
		c, _ := newCluster(t, 1)
		c.LoseCreation(t.Context(), "pods", reconciliations)
		c.Rest(t.Context(), 2*controller.LostEventPeriod)
		if n := len(podsIn(c)); n != 1 || len(c.Errors) > 0 {
			t.Errorf("reconciled %d times before: %d pods, want 1; errors: %v", reconciliations, n, c.Errors)
		}
	}
}

// A pod that cannot be deleted, for example because a policy protects it, does not keep the others.
func TestRefusedDeletionKeepsNoOtherPod(t *testing.T) {
	c, set := newCluster(t, 20)
	c.Rest(t.Context(), time.Minute)
	first := podsIn(c)[0]
	first.Annotations = map[string]string{corev1.PodDeletionCost: "-1"}
	laggingcache.Put(c, "pods", first)
	c.Fate = func(verb, _, name string) laggingcache.Fate {
		if verb == "delete" && name == first.Name {
			return laggingcache.Refused
		}
		return laggingcache.Answered
	}
	set.Spec.Replicas = new(int32)
	laggingcache.Put(c, "replicasets", set)
	c.Rest(t.Context(), time.Minute)
	if left := podsIn(c); len(left) != 1 || left[0].Name != first.Name || len(c.Errors) > 0 {
		t.Error(fmt.Sprint(len(left), " pods are left, want the refused one alone; errors: ", c.Errors))
	}
}
