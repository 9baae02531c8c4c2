package e2e

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// read lists the objects of a case.
func (c *previewCluster) read(t *testing.T, m madeCase) *inventory.Inventory {
	t.Helper()
	inv := &inventory.Inventory{Read: time.Now(), Resources: m.resources, Namespaces: map[ownership.UID]*corev1.Namespace{}, Pods: map[ownership.UID]*inventory.Pod{}}
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
			switch r.Kind {
			case "Namespace":
				inv.Namespaces[ownership.UID(o.GetUID())] = typed(t, o, &corev1.Namespace{})
			case "Pod":
				inv.Pods[ownership.UID(o.GetUID())] = inventory.NewPod(typed(t, o, &corev1.Pod{}))
			}
		}
	}
	inv.Index()
	return inv
}

// typed returns an object with its type.
func typed[T any](t *testing.T, o *unstructured.Unstructured, as *T) *T {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, as); err != nil {
		t.Fatal(err)
	}
	return as
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
	if grace := o.GetDeletionGracePeriodSeconds(); grace != nil {
		result.Grace = time.Duration(*grace) * time.Second
	}
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
