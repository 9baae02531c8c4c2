package details

import (
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/tools/explain"
)

const (
	// fewNodes is the number of nodes that are read one by one; after that, all nodes are listed, as for the pods of a
	// large namespace.
	fewNodes = 32
	// nodePage bounds one page of the node list: each node takes some kilobytes, mostly for the names of images.
	nodePage = 250
)

// Node implements explain.Details.
func (d *Reader) Node(name string) (explain.Node, error) {
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

// listNodes reads all nodes, page by page. If they cannot be listed, each is read alone.
func (d *Reader) listNodes() {
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

// IsLost reports whether a node exists and is not ready. A node that cannot be read is not lost.
func (d *Reader) IsLost(node string) bool {
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
