package e2e

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// kubelet acts as the scheduler and the kubelets of a control plane without either: it binds pods,
// sets them ready, and removes pods that are being deleted.
type kubelet struct {
	client kubernetes.Interface
	// Sick are images whose pods never become ready.
	sick map[string]bool

	mu     sync.Mutex
	ready  map[string]bool // guarded by mu: by namespace and name
	lowest map[string]int  // guarded by mu: by namespace, since watched
}

// startKubelet makes nodes and plays their kubelets until the test ends.
func startKubelet(t *testing.T, p *plane, nodes ...string) *kubelet {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", p.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	k := &kubelet{client: kubernetes.NewForConfigOrDie(config), sick: map[string]bool{"sick": true}, ready: map[string]bool{}, lowest: map[string]int{}}
	for _, name := range nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
		if _, err := k.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		k.beat(t.Context(), name)
	}
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		for tick := time.NewTicker(5 * time.Second); ; {
			select {
			case <-t.Context().Done():
				tick.Stop()
				return
			case <-tick.C:
				for _, name := range nodes {
					k.beat(t.Context(), name)
				}
			}
		}
	}()
	t.Cleanup(func() { <-beating })
	shared := informers.NewSharedInformerFactory(k.client, 0)
	observe := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok {
			k.count(pod, isReady(pod))
			k.work(t.Context(), pod, nodes)
		}
	}
	if _, err := shared.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: observe, UpdateFunc: func(_, now any) { observe(now) },
		DeleteFunc: func(obj any) {
			if pod, ok := obj.(*corev1.Pod); ok {
				k.count(pod, false)
			}
		},
	}); err != nil {
		t.Fatal(err)
	}
	shared.StartWithContext(t.Context())
	t.Cleanup(shared.Shutdown)
	return k
}

// beat reports a node as ready. One that fails is made up for by the next.
func (k *kubelet) beat(ctx context.Context, name string) {
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
	_, _ = k.client.CoreV1().Nodes().PatchStatus(ctx, name, []byte(patch))
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return pod.DeletionTimestamp == nil
		}
	}
	return false
}

// work does the next thing for a pod. What fails because the pod has changed is done at its next
// event.
func (k *kubelet) work(ctx context.Context, pod *corev1.Pod, nodes []string) {
	pods := k.client.CoreV1().Pods(pod.Namespace)
	switch {
	case pod.DeletionTimestamp != nil:
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	case pod.Spec.NodeName == "":
		_ = pods.Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: target(pod, nodes)},
		}, metav1.CreateOptions{})
	case pod.Status.Phase == corev1.PodPending:
		running := pod.DeepCopy()
		running.Status.Phase = corev1.PodRunning
		status := corev1.ConditionTrue
		if k.sick[pod.Spec.Containers[0].Image] {
			status = corev1.ConditionFalse
		}
		running.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.NewTime(time.Now())}}
		_, _ = pods.UpdateStatus(ctx, running, metav1.UpdateOptions{})
	}
}

// target returns the node that the pod's affinity names, or the first one.
func target(pod *corev1.Pod, nodes []string) string {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	}
	return nodes[0]
}

func (k *kubelet) count(pod *corev1.Pod, ready bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready[pod.Namespace+"/"+pod.Name] = ready
	if lowest, watched := k.lowest[pod.Namespace]; watched {
		k.lowest[pod.Namespace] = min(lowest, k.readyLocked(pod.Namespace))
	}
}

func (k *kubelet) readyLocked(namespace string) int {
	n := 0
	for key, ready := range k.ready {
		if space, _, _ := cache.SplitMetaNamespaceKey(key); ready && space == namespace {
			n++
		}
	}
	return n
}

// watch begins to record the lowest number of ready pods in a namespace, once there are as many
// as there should be.
func (k *kubelet) watch(t *testing.T, namespace string, pods int) {
	t.Helper()
	eventually.Agrees(t, func() string {
		k.mu.Lock()
		defer k.mu.Unlock()
		if n := k.readyLocked(namespace); n != pods {
			return fmt.Sprintf("%d pods are ready, want %d", n, pods)
		}
		k.lowest[namespace] = pods
		return ""
	})
}

// least returns the lowest number of pods that were ready at a time.
func (k *kubelet) least(namespace string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lowest[namespace]
}
