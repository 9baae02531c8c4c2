package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
	guards     string // names the guards; empty without guards
	hook       *hook  // of the guards
	judge      *admission.Judge
}

// previewServer is the variable that names the kubeconfig of a server that is not ours.
const previewServer = "COPPICE_CONFORMANCE_KUBECONFIG"

// newPreviewCluster returns the control plane for cases with a name, which their namespaces have too.
func newPreviewCluster(t *testing.T, name string) *previewCluster {
	t.Helper()
	c := &previewCluster{name: name, judge: admission.New()}
	kubeconfig := os.Getenv(previewServer)
	if c.foreign = kubeconfig != ""; !c.foreign {
		kubeconfig = sharedPlane(t).kubeconfig
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
	options.Protection = func(o *inventory.Object) inventory.Protection {
		return inventory.Protection{Protection: protection.New(o.Labels.Get(protection.Label), ""), Enforced: true}
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
		m.uids[o.id] = c.create(t, m.resource(o.kind), metadata, nil).GetUID()
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

// resourcesOf returns the resources of a case whose definition is in a group.
func resourcesOf(group string) []*inventory.Resource {
	core := func(plural, kind string, namespaced bool) *inventory.Resource {
		return &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource(plural), Kind: kind, Namespaced: namespaced, Deletable: true}
	}
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

// definitionSpec is the spec of a CustomResourceDefinition of widgets.
func definitionSpec(group string) map[string]any {
	return map[string]any{
		"group": group, "scope": "Namespaced",
		"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
		"versions": []any{map[string]any{
			"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
		}},
	}
}

func (c *previewCluster) create(t *testing.T, r *inventory.Resource, metadata, spec map[string]any) *unstructured.Unstructured {
	t.Helper()
	content := map[string]any{"apiVersion": r.GroupVersion().String(), "kind": r.Kind, "metadata": metadata}
	if spec != nil {
		content["spec"] = spec
	}
	o := &unstructured.Unstructured{Object: content}
	made, err := c.in(r, o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{})
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
	answer, err := c.kube.CoreV1().RESTClient().Get().AbsPath("/settled").Param("timeout", "60s").DoRaw(t.Context())
	if err != nil {
		t.Fatalf("settle: %v: %s", err, answer)
	}
	var s struct {
		Settled    bool
		Unfinished []string
	}
	if err := json.Unmarshal(answer, &s); err != nil || !s.Settled {
		t.Fatalf("no rest: %v: %s", err, answer)
	}
}

// release lets everything go that a case has held. What hangs keeps one of the few workers busy that
// remove the instances of a CustomResourceDefinition.
func (c *previewCluster) release(t *testing.T, inv *inventory.Inventory) {
	t.Helper()
	for _, o := range inv.Objects {
		if !slices.Contains(o.Finalizers, previewHold) && !o.Protected && o.Labels.Get(guardLabel) == "" {
			continue
		}
		free := fmt.Sprintf(`{"metadata":{"finalizers":null,"labels":{%q:null,%q:null}}}`, protection.Label, guardLabel)
		_, err := c.in(o.Resource, o.Namespace).Patch(t.Context(), o.Name, types.MergePatchType, []byte(free), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatalf("release %s %s: %v", o.Kind, o.Name, err)
		}
	}
}

// read lists the objects of a case.
func (c *previewCluster) read(t *testing.T, m madeCase) *inventory.Inventory {
	t.Helper()
	inv := &inventory.Inventory{Read: time.Now(), Resources: m.resources, Namespaces: map[ownership.UID]*corev1.Namespace{}}
	for _, r := range m.resources {
		list, err := c.in(r, m.namespace).List(t.Context(), metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // a definition that is gone
		}
		if err != nil {
			t.Fatalf("list %s: %v", r.Resource, err)
		}
		for n := range list.Items {
			o := &list.Items[n]
			if mine := o.GetName() == m.namespace || o.GetName() == "widgets."+m.namespace+".example.com"; !r.Namespaced && !mine {
				continue
			}
			inv.Objects = append(inv.Objects, observedObject(o, r))
			if r.Kind == "Namespace" {
				ns := &corev1.Namespace{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, ns); err != nil {
					t.Fatal(err)
				}
				inv.Namespaces[ownership.UID(o.GetUID())] = ns
			}
		}
	}
	inv.Index()
	return inv
}

func observedObject(o *unstructured.Unstructured, r *inventory.Resource) *inventory.Object {
	flag := func(b *bool) ownership.Flag {
		switch {
		case b == nil:
			return ownership.Unset
		case *b:
			return ownership.True
		}
		return ownership.False
	}
	result := &inventory.Object{Resource: r}
	result.UID, result.Kind, result.Namespace, result.Name = ownership.UID(o.GetUID()), r.OwnerKind(), o.GetNamespace(), o.GetName()
	result.ResourceVersion, result.Finalizers = o.GetResourceVersion(), o.GetFinalizers()
	result.Labels = inventory.LabelsOf(o.GetLabels())
	result.Protected = result.Labels.Has(protection.Label)
	result.Phase = ownership.PhaseOf(o.GetDeletionTimestamp() != nil, o.GetFinalizers())
	if d := o.GetDeletionTimestamp(); d != nil {
		result.Due = d.Unix()
	}
	for _, owner := range o.GetOwnerReferences() {
		result.Owners = append(result.Owners, ownership.Reference{
			APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: ownership.UID(owner.UID),
			Controller: flag(owner.Controller), BlockOwnerDeletion: flag(owner.BlockOwnerDeletion),
		})
	}
	return result
}
