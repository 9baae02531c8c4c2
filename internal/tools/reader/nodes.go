package reader

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	// fewNodes is the number of nodes that are read one by one; more are listed, as for the pods of a large namespace.
	fewNodes = 32
	// nodePage bounds one page of the node list: each node takes some kilobytes, mostly for the names of images.
	nodePage = 250
)

// readNodes adds the nodes with some names.
func (r *Facts) readNodes(ctx context.Context, names map[string]bool, known map[string]inventory.Fact[inventory.Node]) {
	if len(names) > 0 && len(known)+len(names) > fewNodes {
		r.listNodes(ctx, known)
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if _, isListed := known[name]; !isListed {
			known[name] = inventory.FactOf(r.node(ctx, name))
		}
	}
}

func (r *Facts) node(ctx context.Context, name string) (inventory.Node, error) {
	one, err := r.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return inventory.Node{}, nil
	case err != nil:
		return inventory.Node{}, err
	}
	return nodeOf(one), nil
}

// listNodes adds all nodes, page by page. If they cannot be listed, each is read alone.
func (r *Facts) listNodes(ctx context.Context, known map[string]inventory.Fact[inventory.Node]) {
	pages(nodePage, func(options metav1.ListOptions) (string, error) {
		page, err := r.client.CoreV1().Nodes().List(ctx, options)
		if err != nil {
			return "", err
		}
		for i := range page.Items {
			known[page.Items[i].Name] = inventory.Fact[inventory.Node]{Value: nodeOf(&page.Items[i])}
		}
		return page.Continue, nil
	})
}

func nodeOf(one *corev1.Node) inventory.Node {
	n := inventory.Node{NodeState: builtin.NodeStateOf(one), Since: one.CreationTimestamp.Time, HasNotReported: true}
	for _, c := range one.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		n.HasNotReported = false
		if !c.LastTransitionTime.IsZero() {
			n.Since = c.LastTransitionTime.Time
		}
	}
	return n
}
