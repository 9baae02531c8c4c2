package apiserver_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// An informer of pods in the process shares the memory of the watch cache, for pods that were there before the informer
// and for those that change later. What it has equals what the server answers, without managed fields.
func TestInformersSharePodsWithTheWatchCache(t *testing.T) {
	s := startServer(t, nil)
	namespace := s.namespace(t)
	client, err := kubernetes.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	c := s.pods(t, namespace)
	c.create("before")
	// With one watch of this process there is no watch cache.
	first, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(first.Stop)
	shared := informers.NewSharedInformerFactory(client, 0)
	informer, lister := shared.Core().V1().Pods().Informer(), shared.Core().V1().Pods().Lister().Pods(namespace)
	if err := informer.SetTransform(s.SharePod); err != nil {
		t.Fatal(err)
	}
	shared.StartWithContext(t.Context())
	t.Cleanup(shared.Shutdown)
	c.create("after")
	if _, err := client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "before", Namespace: namespace}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"before", "after"} {
		served, err := client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var pod *corev1.Pod
		eventually.Holds(t, "the informer has the pod "+name, func() bool {
			pod, err = lister.Get(name)
			return err == nil && pod.ResourceVersion == served.ResourceVersion
		})
		another, err := s.SharePod(served.DeepCopy())
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := another.(*corev1.Pod); !ok || &other.Spec.Containers[0] != &pod.Spec.Containers[0] {
			t.Errorf("%s: the informer has a copy of its own", name)
		}
		if served.ManagedFields = nil; !equality.Semantic.DeepEqual(served, pod) {
			t.Errorf("%s: the informer has %v, and the server %v", name, pod, served)
		}
	}
	c.mustRemove("after", grace(0))
	eventually.Holds(t, "the informer forgets a removed pod", func() bool {
		_, err := lister.Get("after")
		return err != nil
	})
}
