package e2e

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// lostNode is what happens to the node of the pods of a case. No kubelet runs there.
type lostNode string

const (
	// silent nodes stay, and do not answer.
	silent lostNode = "silent"
	// leaving nodes are deleted by a request of the case.
	leaving lostNode = "leaving"
	// gone nodes are deleted before the requests of the case, which delete all pods: the pod garbage collector takes pods
	// that nobody deletes, too, and no preview is about them.
	gone lostNode = "gone"
)

var lostNodes = []lostNode{silent, leaving, gone}

// lostShare is the percentage of the cases with pods on a node that is lost.
const lostShare = 6

// waitsForPods reports whether the pod garbage collector acts in a case: when the node has been gone for 40 seconds.
func (n lostNode) waitsForPods() bool { return n == leaving || n == gone }

// drawNode gives some cases pods on a node that is lost.
func (w *previewCase) drawNode(r *rand.Rand) {
	if r.IntN(100) >= lostShare {
		return
	}
	w.node = lostNodes[r.IntN(len(lostNodes))]
	for range 1 + r.IntN(3) {
		w.objects[r.IntN(len(w.objects))].kind = "Pod"
	}
	plain := previewObject{id: len(w.objects), kind: "Pod"} // shows that the pod garbage collector has acted
	w.objects = append(w.objects, plain)
	policies := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}
	policy := policies[r.IntN(len(policies))]
	switch w.node {
	case silent:
	case leaving:
		w.requests = append(w.requests, previewDelete{theNode, policy})
	case gone:
		for id := range w.objects {
			if o := &w.objects[id]; o.kind == "Pod" {
				o.guard, o.protect = "", ""
				w.requests = append(w.requests, previewDelete{id, policy})
			}
		}
	}
}

// nodeResources are the resources of a case with pods.
func nodeResources() []*inventory.Resource {
	return []*inventory.Resource{coreResource("pods", "Pod", true), coreResource("nodes", "Node", false)}
}

// podSpec is the spec of a pod on the node of a case. Nothing evicts it.
func (m madeCase) podSpec() map[string]any {
	return map[string]any{
		"nodeName":   m.namespace,
		"containers": []any{map[string]any{"name": "main", "image": "example.com/none"}}, "tolerations": []any{map[string]any{"operator": "Exists"}},
		"automountServiceAccountToken": false,
	}
}

// deleteNode deletes the node of a case, if it is there.
func (c *previewCluster) deleteNode(t *testing.T, name string) {
	t.Helper()
	err := c.kube.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("delete node %s: %v", name, err)
	}
}

// awaitPods waits until the pods are gone that the pod garbage collector is predicted to take, or that it takes too long:
// then the comparison has the difference.
func (d *departures) awaitPods(prediction preview.Prediction) {
	var pods []*inventory.Object
	for _, o := range prediction.Outcomes {
		if o.Fate == preview.Deleted && !o.Race && o.Object.Kind.Kind == "Pod" {
			pods = append(pods, o.Object)
		}
	}
	until := time.After(2 * patience)
	for d.misses(pods) != nil {
		select {
		case <-d.changed:
		case <-until:
			return
		}
	}
}

// endPod removes a pod that no kubelet ends.
func (c *previewCluster) endPod(t *testing.T, o *inventory.Object) {
	t.Helper()
	err := c.kube.CoreV1().Pods(o.Namespace).Delete(t.Context(), o.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatalf("end pod %s: %v", o.Name, err)
	}
}

// TestDrawnNodes: each sort of lost nodes occurs, and no request names an object that there is not.
func TestDrawnNodes(t *testing.T) {
	drawn := map[lostNode]int{}
	for seed := range uint64(500) {
		w := drawPreview(seed)
		drawn[w.node]++
		for _, d := range w.requests {
			isThere := d.id == theNode && w.node == leaving || d.id == theNamespace || d.id == theDefinition ||
				slices.ContainsFunc(w.objects, func(o previewObject) bool { return o.id == d.id })
			if !isThere {
				t.Errorf("seed %d: a request for %d in\n%s", seed, d.id, w)
			}
		}
	}
	for _, n := range lostNodes {
		if drawn[n] < 5 {
			t.Errorf("only %d nodes are %s", drawn[n], n)
		}
	}
}

// The namespace controller deletes pods first. If the server refuses to delete one, upstream's goes on to the other
// resources, and ours waits.
func TestPreviewOfANamespaceWithPodsThatAreRefused(t *testing.T) {
	c := ownPreviewCluster(t, "refusedpods", byHand)
	c.prepare(t, 5)
	c.guard(t)
	for _, guard := range []string{"all", "emptier", ""} {
		w := previewCase{
			objects:  []previewObject{{id: 0, kind: "Pod", guard: guard}, {id: 1, kind: "Pod"}, {id: 2, kind: "ConfigMap"}, {id: 3, kind: "Widget"}},
			requests: []previewDelete{{theNamespace, metav1.DeletePropagationBackground}}, node: silent,
		}
		if result := c.try(t, w); result.problem != "" {
			t.Errorf("%s\nin this case:\n%s", result.problem, w)
		}
	}
}
