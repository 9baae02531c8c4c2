package apiserver_test

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// A pod has the zone and the region of its node, whether it is bound to it or created on it, and no
// other label of the node. A pod of a node that does not exist has none.
func TestPodsHaveTheTopologyOfTheirNode(t *testing.T) {
	s := startServer(t, nil)
	client, ctx := clientOf(t, s), t.Context()
	topology := map[string]string{corev1.LabelTopologyZone: "z1", corev1.LabelTopologyRegion: "r1"}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here", Labels: map[string]string{"other": "x"}}}
	maps.Copy(node.Labels, topology)
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	create := func(name, node string, options metav1.CreateOptions) *corev1.Pod {
		t.Helper()
		created, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "web", corev1.LabelTopologyZone: "mine"}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "a", Image: "a"}}},
		}, options)
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	eventually.Agrees(t, func() string { // the server has observed the node
		if p := create("dry", "here", metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); p.Labels[corev1.LabelTopologyZone] != "z1" {
			return fmt.Sprint(p.Labels)
		}
		return ""
	})
	create("bound", "", metav1.CreateOptions{})
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "bound"}, Target: corev1.ObjectReference{Kind: "Node", Name: "here"}}
	if err := pods.Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	create("placed", "here", metav1.CreateOptions{})
	create("lost", "nowhere", metav1.CreateOptions{})
	for name, want := range map[string]map[string]string{
		"bound":  {"app": "web", corev1.LabelTopologyZone: "z1", corev1.LabelTopologyRegion: "r1"},
		"placed": {"app": "web", corev1.LabelTopologyZone: "z1", corev1.LabelTopologyRegion: "r1"},
		"lost":   {"app": "web", corev1.LabelTopologyZone: "mine"},
	} {
		pod, err := pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil || !maps.Equal(pod.Labels, want) {
			t.Errorf("%s: %v, %v; want %v", name, pod.Labels, err, want)
		}
	}
}

// The generation of a pod counts changes by users, but not its binding.
func TestBindingIsNoNewGeneration(t *testing.T) {
	pods := clientOf(t, startServer(t, nil)).CoreV1().Pods("default")
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "a"}}}
	if _, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	if err := pods.Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pod, err := pods.Get(t.Context(), "p", metav1.GetOptions{})
	if err != nil || pod.Spec.NodeName != "n" || pod.Generation != 1 {
		t.Errorf("bound to %q, generation %d, %v", pod.Spec.NodeName, pod.Generation, err)
	}
}

// A new Node gets the taint of nodes that are not ready, once, unless no controller would remove it.
func TestNewNodesAreTainted(t *testing.T) {
	notReady := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	for name, test := range map[string]struct {
		tainted bool
		own     []corev1.Taint
		want    int
	}{
		"none of its own":        {true, nil, 1},
		"the same":               {true, []corev1.Taint{notReady}, 1},
		"of another effect":      {true, []corev1.Taint{{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}, 2},
		"no controller of nodes": {false, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, func(c *apiserver.Config) { c.Features.NodeTaints = test.tainted })
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{Taints: test.own}}
			node, err := clientOf(t, s).CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
			if err != nil || len(node.Spec.Taints) != test.want || test.want > 0 && node.Spec.Taints[test.want-1] != notReady {
				t.Errorf("%v, %v", node, err)
			}
		})
	}
}
