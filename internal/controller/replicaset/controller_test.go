package replicaset

import (
	"errors"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

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

// R25: a status that remains as it was has no event, either.
func TestR25_LostEventDelaysAReplicaSetWhoseStatusRemains(t *testing.T) {
	c, _ := newCluster(t, 1)
	laggingcache.Put(c, "nodes", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	c.Rest(t.Context(), time.Minute)
	remove := func() {
		for _, pod := range podsIn(c) {
			laggingcache.Remove(c, "pods", pod)
		}
	}
	remove()
	c.Quiesce(t.Context()) // the status reports no pods; that there is another one again waits
	before := laggingcache.All[*appsv1.ReplicaSet](c, "replicasets")[0]
	remove()
	for len(podsIn(c)) == 0 && c.Step(t.Context()) {
	}
	remove()
	c.Relist("pods")
	if now := laggingcache.All[*appsv1.ReplicaSet](c, "replicasets")[0]; now.ResourceVersion != before.ResourceVersion || before.Status.Replicas != 0 {
		t.Fatalf("the status was %+v and is %+v", before.Status, now.Status)
	}
	c.Rest(t.Context(), 2*controller.LostEventPeriod)
	if n := len(podsIn(c)); n != 1 || len(c.Errors) > 0 {
		t.Errorf("%d pods, want 1; errors: %v", n, c.Errors)
	}
}

// protect lets a policy refuse the deletion of a pod.
func protect(c *laggingcache.Cluster, pod string) {
	c.Client.(*fake.Clientset).PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.(clienttesting.DeleteAction).GetName() != pod {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), pod, errors.New("protected"))
	})
}

func isOther(err error) bool { return !apierrors.IsForbidden(err) }

// A pod that cannot be deleted, for example because a policy protects it, holds back no other one.
func TestRefusedDeletionHoldsBackNoOtherPod(t *testing.T) {
	for size, left := range map[int32]int{0: 1, 19: 19} {
		c, set := newCluster(t, 20)
		c.Rest(t.Context(), time.Minute)
		first := podsIn(c)[0]
		first.Annotations = map[string]string{corev1.PodDeletionCost: "-1"}
		laggingcache.Put(c, "pods", first)
		protect(c, first.Name)
		set.Spec.Replicas = &size
		laggingcache.Put(c, "replicasets", set)
		c.Rest(t.Context(), time.Minute)
		if got := podsIn(c); len(got) != left || got[0].Name != first.Name || slices.ContainsFunc(c.Errors, isOther) {
			t.Errorf("%d pods are left of a set of %d, want %d and the refused one; errors: %v", len(got), size, left, c.Errors)
		}
	}
}
