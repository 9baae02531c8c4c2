package e2e

import (
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Upstream's garbage collector does not report its remaining work, and discovers new kinds twice a
// minute. So the kinds of all cases are created before the first case, and the collector is idle
// when it has collected canaries at the end of its queue.

const (
	// canaryRounds is the number of canaries that are collected one after the other: each round may
	// add work for the collector.
	canaryRounds = 3
	// nobody is the uid of an owner that does not exist.
	nobody = "00000000-0000-4000-8000-000000000000"
)

// prepare makes the kinds of the next cases, and waits until the collector follows all of them.
func (c *previewCluster) prepare(t *testing.T, cases int) {
	t.Helper()
	if !c.foreign {
		return
	}
	var left []func() bool
	for n := range cases {
		m := madeCase{resources: resourcesOf(fmt.Sprintf("%s-%d.example.com", c.name, c.cases+n+1))}
		c.define(t, m)
		left = append(left, c.canary(t, m.resource("Widget")))
	}
	for _, gone := range left {
		eventually.Holds(t, "the collector follows the kinds of all cases", gone)
	}
	c.prepared += cases
}

// define makes the CustomResourceDefinition of a case unless it is there, and returns its uid.
func (c *previewCluster) define(t *testing.T, m madeCase) types.UID {
	t.Helper()
	definitions, group := m.resource("CustomResourceDefinition"), m.resource("Widget").Group
	there, err := c.in(definitions, "").Get(t.Context(), "widgets."+group, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return c.create(t, definitions, map[string]any{"name": "widgets." + group}, definitionSpec(group, c.versioned)).GetUID()
	}
	if err != nil {
		t.Fatal(err)
	}
	return there.GetUID()
}

// awaitCanaries waits until everything that the collector had to do before has been done.
func (c *previewCluster) awaitCanaries(t *testing.T) {
	t.Helper()
	configMaps := (&madeCase{resources: resourcesOf("")}).resource("ConfigMap")
	for range canaryRounds {
		eventually.Holds(t, "the collector collects a canary", c.canary(t, configMaps))
	}
}

// canary makes an object that the collector is to collect, and returns whether it is gone.
func (c *previewCluster) canary(t *testing.T, r *inventory.Resource) (gone func() bool) {
	t.Helper()
	c.canaries++
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": r.Kind,
		"metadata": map[string]any{
			"name": fmt.Sprintf("canary-%d", c.canaries), "namespace": metav1.NamespaceDefault,
			"ownerReferences": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": nobody}},
		},
	}}
	objects := c.in(r, metav1.NamespaceDefault)
	eventually.Succeeds(t, func() error { // a new kind is served a moment later
		_, err := objects.Create(t.Context(), o, metav1.CreateOptions{})
		return err
	})
	return func() bool {
		_, err := objects.Get(t.Context(), o.GetName(), metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	}
}
