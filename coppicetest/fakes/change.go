package fakes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/deletion"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// contentsFinalizer keeps a terminating namespace until it is empty. A server has an entry in
// spec.finalizers for that; fakes ignore it.
const contentsFinalizer = "fakes.coppice.dev/contents"

// observed converts an object to an observation of the ownership graph.
func observed(o object) ownership.Object {
	result := ownership.Object{
		UID: ownership.UID(o.GetUID()), Kind: o.groupKind(), Namespace: o.GetNamespace(), Name: o.GetName(), ResourceVersion: o.GetResourceVersion(),
		Phase: ownership.PhaseOf(o.GetDeletionTimestamp() != nil, o.GetFinalizers()), Finalizers: o.GetFinalizers(),
	}
	for _, r := range o.GetOwnerReferences() {
		result.Owners = append(result.Owners, ownership.Reference{
			APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: ownership.UID(r.UID),
			Controller: flagOf(r.Controller), BlockOwnerDeletion: flagOf(r.BlockOwnerDeletion),
		})
	}
	return result
}

func flagOf(b *bool) ownership.Flag {
	switch {
	case b == nil:
		return ownership.Unset
	case *b:
		return ownership.True
	}
	return ownership.False
}

func boolOf(f ownership.Flag) *bool {
	switch f {
	case ownership.True:
		return new(true)
	case ownership.False:
		return new(false)
	case ownership.Unset:
	}
	return nil
}

// change makes the next change of an object and describes it in action. The action is empty if
// there is nothing to change.
func (s *state) change(ctx context.Context, o object) (action string, err error) {
	if deletion.Finished(o.stored, strategy(o)) {
		return "remove: nothing holds it any more", s.store.Remove(ctx, o.kind, o.stored)
	}
	if isNamespace(o.kind) && o.GetDeletionTimestamp() != nil {
		if action, err := s.empty(ctx, o); action != "" || err != nil {
			return action, err
		}
	}
	switch d := s.decide(o).(type) {
	case verdict.Delete:
		policy := metav1.DeletionPropagation(d.Propagation)
		return d.String(), remove(ctx, s.store, o, &metav1.DeleteOptions{PropagationPolicy: &policy})
	case verdict.Detach:
		return d.String(), s.writeOwners(ctx, o, d.Remaining)
	case verdict.Unblock:
		return d.String(), s.writeOwners(ctx, o, d.Owners)
	case verdict.RemoveFinalizer:
		o.SetFinalizers(d.Remaining)
		return d.String(), s.store.Write(ctx, o.kind, o.stored)
	case verdict.Disown:
		return s.disown(ctx, o, d.Dependents)
	case verdict.Keep, verdict.Park, verdict.Await, verdict.Verify, verdict.Reread:
	}
	return "", nil
}

func (s *state) writeOwners(ctx context.Context, o object, owners []ownership.Reference) error {
	references := make([]metav1.OwnerReference, 0, len(owners))
	for _, r := range owners {
		references = append(references, metav1.OwnerReference{
			APIVersion: r.APIVersion, Kind: r.Kind, Name: r.Name, UID: types.UID(r.UID),
			Controller: boolOf(r.Controller), BlockOwnerDeletion: boolOf(r.BlockOwnerDeletion),
		})
	}
	o.SetOwnerReferences(references)
	return s.store.Write(ctx, o.kind, o.stored)
}

// disown detaches the first dependent of an owner that is being orphaned. The others follow in
// later steps.
func (s *state) disown(ctx context.Context, owner object, dependents []ownership.UID) (action string, err error) {
	for _, dependent := range s.objects { // in their order: the order of UIDs is random
		if !slices.Contains(dependents, ownership.UID(dependent.GetUID())) {
			continue
		}
		dependent.SetOwnerReferences(slices.DeleteFunc(slices.Clone(dependent.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() }))
		return fmt.Sprintf("orphan %s", dependent), s.store.Write(ctx, dependent.kind, dependent.stored)
	}
	return "", nil
}

// empty deletes the first object of a terminating namespace, pods before others. If the namespace
// is empty, it removes the contents finalizer.
func (s *state) empty(ctx context.Context, namespace object) (action string, err error) {
	var inside []object
	for _, o := range s.objects {
		if o.GetNamespace() != namespace.GetName() {
			continue
		}
		if o.kind.GroupKind() == (schema.GroupKind{Kind: "Pod"}) {
			inside = slices.Insert(inside, 0, o)
		} else {
			inside = append(inside, o)
		}
	}
	for _, o := range inside {
		if o.GetDeletionTimestamp() == nil {
			return fmt.Sprintf("delete %s in it", o), remove(ctx, s.store, o, nil)
		}
	}
	if len(inside) > 0 || !slices.Contains(namespace.GetFinalizers(), contentsFinalizer) {
		return "", nil
	}
	namespace.SetFinalizers(without(namespace.GetFinalizers(), contentsFinalizer))
	return "finalize: it is empty", s.store.Write(ctx, namespace.kind, namespace.stored)
}

func without(finalizers []string, finalizer string) []string {
	return slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool { return f == finalizer })
}

func isNamespace(kind schema.GroupVersionKind) bool {
	return kind.GroupKind() == (schema.GroupKind{Kind: "Namespace"})
}

// strategy returns the strategy of a kind: nothing is deleted gracefully here.
func strategy(o object) deletion.Strategy {
	return deletion.Strategy{
		Resource: schema.GroupResource{Group: o.kind.Group, Resource: o.kind.Kind},
		OnMark: func(obj runtime.Object) {
			if ns, ok := obj.(*corev1.Namespace); ok {
				ns.Status.Phase = corev1.NamespaceTerminating
			}
		},
	}
}

// remove handles a DELETE request.
func remove(ctx context.Context, store Store, o object, options *metav1.DeleteOptions) error {
	if isNamespace(o.kind) && o.GetDeletionTimestamp() == nil && !slices.Contains(o.GetFinalizers(), contentsFinalizer) {
		o.SetFinalizers(append(slices.Clone(o.GetFinalizers()), contentsFinalizer))
	}
	plan, err := deletion.Decide(o.stored, options, strategy(o), time.Now())
	if err != nil {
		return err
	}
	switch plan := plan.(type) {
	case deletion.Remove:
		return store.Remove(ctx, o.kind, o.stored)
	case deletion.Mark:
		if err := plan.Apply(o.stored); err != nil {
			return err
		}
		if plan.First {
			return store.Mark(ctx, o.kind, o.stored)
		}
		return store.Write(ctx, o.kind, o.stored)
	case deletion.Keep:
	}
	return nil
}
