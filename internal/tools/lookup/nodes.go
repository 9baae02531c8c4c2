package lookup

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/tools/explain"
)

const (
	// fewNodes are read one by one. Who asks for more, about the pods of a large namespace, has all of them read.
	fewNodes = 32
	// nodePage bounds one list of whole nodes: each is some kilobytes, most of them names of images.
	nodePage = 250
)

// Node implements explain.Details.
func (d *Details) Node(name string) (explain.Node, error) {
	if len(d.nodes) >= fewNodes && !d.allNodes {
		d.allNodes = true
		d.listNodes()
	}
	known, ok := d.nodes[name]
	if !ok {
		one, err := d.client.CoreV1().Nodes().Get(d.ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			known.err = err
		default:
			known.value = nodeOf(one)
		}
		d.nodes[name] = known
	}
	return known.value, known.err
}

// listNodes reads all nodes, page by page. Where they cannot be listed, each is read alone.
func (d *Details) listNodes() {
	pages(nodePage, func(options metav1.ListOptions) (string, error) {
		page, err := d.client.CoreV1().Nodes().List(d.ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			d.nodes[page.Items[i].Name] = answer[explain.Node]{value: nodeOf(&page.Items[i])}
		}
		return page.Continue, nil
	})
}

// IsLost reports whether a node is there and not ready. What cannot be read is not called lost.
func (d *Details) IsLost(node string) bool {
	if node == "" {
		return false
	}
	state, err := d.Node(node)
	return err == nil && state.Exists && !state.Ready
}

func nodeOf(one *corev1.Node) explain.Node {
	n := explain.Node{Exists: true}
	for _, c := range one.Status.Conditions {
		if c.Type == corev1.NodeReady {
			n.Ready, n.Since = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		}
	}
	return n
}
