package e2e

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/admission"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// previewHold is a finalizer without a controller.
const previewHold = "example.com/hold"

// previewCluster is the control plane in which cases are made: ours, or the one that previewServer
// names, in which other controllers collect.
type previewCluster struct {
	kubeconfig string
	config     *rest.Config
	client     dynamic.Interface
	kube       kubernetes.Interface
	name       string
	foreign    bool // neither server nor controllers are ours
	cases      int
	prepared   int // number of the last case that is prepared
	canaries   int
	versioned  bool   // the next kinds have two versions
	guards     string // names the guards; empty without guards
	hook       *hook  // of the guards
	judge      *admission.Judge
}

// previewServer is the variable that names the kubeconfig of a server that is not ours.
const previewServer = "COPPICE_CONFORMANCE_KUBECONFIG"

// newPreviewCluster returns the control plane for cases with a name, which their namespaces have too.
func newPreviewCluster(t *testing.T, name string) *previewCluster {
	t.Helper()
	return previewClusterOn(t, name, sharedPlane)
}

// ownPreviewCluster does the same with a control plane of ours for one test, which runs beside other tests. On a server
// that is not ours, such tests come one after the other: they disturb each other.
func ownPreviewCluster(t *testing.T, name string, args ...string) *previewCluster {
	t.Helper()
	if os.Getenv(previewServer) == "" {
		t.Parallel()
	}
	return previewClusterOn(t, name, func(t *testing.T) *plane {
		return startPlane(t, append([]string{"--ephemeral", "--secure-port=0", noNodes}, args...)...)
	})
}

// previewClusterOn returns a control plane of ours, or the one that previewServer names.
func previewClusterOn(t *testing.T, name string, ours func(t *testing.T) *plane) *previewCluster {
	t.Helper()
	c := &previewCluster{name: name, judge: admission.New()}
	kubeconfig := os.Getenv(previewServer)
	if c.foreign = kubeconfig != ""; !c.foreign {
		kubeconfig = ours(t).kubeconfig
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	c.kubeconfig, c.config = kubeconfig, config
	if c.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	if c.kube, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	return c
}

// options are the options of previews of this cluster.
func (c *previewCluster) options() preview.Options {
	options := preview.Options{Now: time.Now()}
	if c.foreign {
		options.Order, options.RepeatedReplaces = namespaces.UpstreamOrder(), func() bool { return true }
		return options
	}
	options.Protection = func(o *inventory.Object) inventory.Fact[inventory.Protection] {
		return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(o.Labels.Get(protection.Label), ""), Enforced: true}}
	}
	return options
}

// madeCase is a case that was made.
type madeCase struct {
	namespace string
	resources []*inventory.Resource // that it has objects of
	uids      map[int]types.UID
}

// requests are the deletions of a case as the preview takes them.
func (m madeCase) requests(deletes []previewDelete) []preview.Request {
	var requests []preview.Request
	for _, d := range deletes {
		requests = append(requests, preview.Request{UID: ownership.UID(m.uids[d.id]), Propagation: d.policy})
	}
	return requests
}

// make makes a case in a new namespace, with a CustomResourceDefinition of its own, and waits
// until it is at rest.
func (c *previewCluster) make(t *testing.T, w previewCase) madeCase {
	t.Helper()
	if c.cases == c.prepared {
		c.prepare(t, 1)
	}
	c.cases++
	name := fmt.Sprintf("%s-%d", c.name, c.cases)
	group := name + ".example.com"
	m := madeCase{namespace: name, uids: map[int]types.UID{}, resources: resourcesOf(group)}
	m.uids[theNamespace] = c.create(t, m.resource("Namespace"), map[string]any{"name": name, "labels": c.labelsOfNamespace(w)}, nil).GetUID()
	m.uids[theDefinition] = c.define(t, m)
	if w.node != "" {
		m.resources = append(m.resources, nodeResources()...)
		m.uids[theNode] = c.create(t, m.resource("Node"), map[string]any{"name": name}, nil).GetUID()
	}
	for _, o := range w.objects {
		metadata := map[string]any{"name": fmt.Sprintf("o%d", o.id), "namespace": name}
		if o.held {
			metadata["finalizers"] = []any{previewHold}
		}
		metadata["labels"] = c.labels(o)
		var owners []any
		for _, e := range o.owners {
			owners = append(owners, m.reference(w, e))
		}
		if owners != nil {
			metadata["ownerReferences"] = owners
		}
		var spec map[string]any
		if o.kind == "Pod" {
			spec = m.podSpec()
		}
		m.uids[o.id] = c.create(t, m.resource(o.kind), metadata, spec).GetUID()
	}
	for _, e := range w.late {
		if e.from == e.owner {
			continue // the server refuses it
		}
		c.addOwner(t, m, w, e)
	}
	for _, d := range w.early {
		c.delete(t, c.read(t, m).Object(ownership.UID(m.uids[d.id])), d.policy)
	}
	if w.node == gone {
		c.deleteNode(t, m.namespace)
	}
	c.settle(t)
	return m
}

// labelsOfNamespace returns the labels of the namespace of a case.
func (c *previewCluster) labelsOfNamespace(w previewCase) map[string]any {
	if c.guards == "" {
		return nil
	}
	size := "small"
	if w.large {
		size = "large"
	}
	return map[string]any{guardedLabel: c.guards, sizeLabel: size, guardLabel: w.guard}
}

// labels returns the labels of an object.
func (c *previewCluster) labels(o previewObject) map[string]any {
	labels := map[string]any{}
	if o.protect != "" && !c.foreign {
		labels[protection.Label] = string(o.protect)
	}
	if o.guard != "" && c.guards != "" {
		labels[guardLabel] = o.guard
	}
	return labels
}

// coreResource returns a resource of the core group.
func coreResource(plural, kind string, namespaced bool) *inventory.Resource {
	return &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource(plural), Kind: kind, Namespaced: namespaced, Deletable: true}
}

// resourcesOf returns the resources of a case whose definition is in a group.
func resourcesOf(group string) []*inventory.Resource {
	core := coreResource
	in := func(group, plural, kind string, namespaced bool) *inventory.Resource {
		return &inventory.Resource{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: plural}, Kind: kind, Namespaced: namespaced, Deletable: true}
	}
	return []*inventory.Resource{
		core("configmaps", "ConfigMap", true), core("namespaces", "Namespace", false), core("secrets", "Secret", true),
		in("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", false),
		in(group, "widgets", "Widget", true), in("rbac.authorization.k8s.io", "roles", "Role", true),
	}
}

func (m madeCase) resource(kind string) *inventory.Resource {
	return m.resources[slices.IndexFunc(m.resources, func(r *inventory.Resource) bool { return r.Kind == kind })]
}

// reference returns the owner reference of an edge.
func (m madeCase) reference(w previewCase, e previewEdge) map[string]any {
	owner := w.objects[slices.IndexFunc(w.objects, func(o previewObject) bool { return o.id == e.owner })]
	return map[string]any{
		"apiVersion": m.resource(owner.kind).GroupVersion().String(), "kind": owner.kind, "name": fmt.Sprintf("o%d", owner.id),
		"uid": string(m.uids[owner.id]), "blockOwnerDeletion": e.blocks,
	}
}

// definitionSpec is the spec of a CustomResourceDefinition of widgets. The second version is preferred, and widgets are
// stored in the first one.
func definitionSpec(group string, isVersioned bool) map[string]any {
	version := func(name string) map[string]any {
		return map[string]any{
			"name": name, "served": true, "storage": name == "v1", "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		}
	}
	versions := []any{version("v1")}
	if isVersioned {
		versions = append(versions, version("v2"))
	}
	return map[string]any{
		"group": group, "scope": "Namespaced",
		"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"}, "versions": versions,
	}
}

func (c *previewCluster) create(t *testing.T, r *inventory.Resource, metadata, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	content := map[string]any{"apiVersion": r.GroupVersion().String(), "kind": r.Kind, "metadata": metadata}
	if spec != nil {
		content["spec"] = spec
	}
	o := &unstructured.Unstructured{Object: content}
	create := func() (made *unstructured.Unstructured, err error) {
		return c.in(r, o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{})
	}
	made, err := create()
	if apierrors.IsForbidden(err) && r.Kind == "Pod" { // its namespace has no service account yet
		eventually.Succeeds(t, func() error {
			made, err = create()
			return err
		})
	}
	if err != nil {
		t.Fatalf("create %s %s: %v", r.Kind, o.GetName(), err)
	}
	return made
}

func (c *previewCluster) in(r *inventory.Resource, namespace string) dynamic.ResourceInterface {
	if r.Namespaced {
		return c.client.Resource(r.GroupVersionResource).Namespace(namespace)
	}
	return c.client.Resource(r.GroupVersionResource)
}

// addOwner adds a reference to an object that exists, unless it has one to that owner.
func (c *previewCluster) addOwner(t *testing.T, m madeCase, w previewCase, e previewEdge) {
	t.Helper()
	of := w.objects[slices.IndexFunc(w.objects, func(o previewObject) bool { return o.id == e.from })]
	if slices.ContainsFunc(of.owners, func(have previewEdge) bool { return have.owner == e.owner }) {
		return
	}
	objects := c.in(m.resource(of.kind), m.namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // controllers write some of the objects, too
		o, err := objects.Get(t.Context(), fmt.Sprintf("o%d", of.id), metav1.GetOptions{})
		if err != nil {
			return err
		}
		owners, _, _ := unstructured.NestedSlice(o.Object, "metadata", "ownerReferences")
		if err := unstructured.SetNestedSlice(o.Object, append(owners, m.reference(w, e)), "metadata", "ownerReferences"); err != nil {
			return err
		}
		_, err = objects.Update(t.Context(), o, metav1.UpdateOptions{})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// delete deletes an object, and returns the answer of the server. That the object is gone already, or that the
// deletion is refused, is what may happen.
func (c *previewCluster) delete(t *testing.T, o *inventory.Object, policy metav1.DeletionPropagation) error {
	t.Helper()
	uid := types.UID(o.UID)
	options := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	if policy != "" {
		options.PropagationPolicy = &policy
	}
	err := c.in(o.Resource, o.Namespace).Delete(t.Context(), o.Name, options)
	if _, refused := refusal.Of(err); err != nil && !refused && !apierrors.IsNotFound(err) {
		t.Fatalf("delete %s %s: %v", o.Kind, o.Name, err)
	}
	return err
}

// settle waits until collection has come to rest.
func (c *previewCluster) settle(t *testing.T) {
	t.Helper()
	if c.foreign {
		c.awaitCanaries(t)
		return
	}
	awaitRest(t, func() (string, error) {
		answer, err := c.kube.CoreV1().RESTClient().Get().AbsPath("/settled").Param("timeout", "30s").DoRaw(t.Context())
		return string(answer), err
	})
}

// release lets everything go that a case has held. What hangs keeps one of the few workers busy that
// remove the instances of a CustomResourceDefinition.
func (c *previewCluster) release(t *testing.T, inv *inventory.Inventory) {
	t.Helper()
	for _, o := range inv.Objects {
		isPod := o.Kind.Kind == "Pod"
		if o.Kind.Kind == "Node" {
			c.deleteNode(t, o.Name)
		}
		if !slices.Contains(o.Finalizers, previewHold) && !o.Protected && o.Labels.Get(guardLabel) == "" && !isPod {
			continue
		}
		free := fmt.Sprintf(`{"metadata":{"finalizers":null,"labels":{%q:null,%q:null}}}`, protection.Label, guardLabel)
		_, err := c.in(o.Resource, o.Namespace).Patch(t.Context(), o.Name, types.MergePatchType, []byte(free), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatalf("release %s %s: %v", o.Kind, o.Name, err)
		}
		if isPod {
			c.endPod(t, o)
		}
	}
}
