package deleteflow

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// OptionsPlugin returns an admission plug-in for DELETEs that go through upstream's registry. It
// keeps the options for Guard, because the registry does not pass them on, and refuses a DELETE
// that has no plan. Then it changes the registry's own options so that the registry has the result
// and the response of the plan (R20), even in a dry run.
func (f *Flow) OptionsPlugin() admission.MutationInterface { return optionsPlugin{f} }

type optionsPlugin struct{ flow *Flow }

// Handles implements admission.Interface.
func (optionsPlugin) Handles(operation admission.Operation) bool {
	return operation == admission.Delete
}

// Admit implements admission.MutationInterface.
func (c optionsPlugin) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	r := requestFrom(ctx)
	options, ok := a.GetOperationOptions().(*metav1.DeleteOptions)
	if r == nil || !ok || isPlanned(ctx) {
		return nil
	}
	requested := r.keepOptions(options)
	obj := a.GetOldObject()
	if obj == nil {
		return nil
	}
	strategy := c.flow.strategyOf(a.GetResource().GroupResource())
	plan, err := c.flow.decide(ctx, obj, requested, strategy)
	if err != nil {
		return err
	}
	if a.GetName() == "" {
		return nil // a collection: its objects share the options
	}
	if a.IsDryRun() {
		if err := r.keepAnswer(plan, obj, strategy); err != nil {
			return err
		}
	}
	options.PropagationPolicy, options.OrphanDependents = requested.PropagationPolicy, requested.OrphanDependents
	return adjustOptions(options, plan, obj)
}

// adjustOptions changes the registry's options so that it treats a terminating object as the plan
// does. With the client's options it would add a collector's finalizer, which R19 forbids.
func adjustOptions(options *metav1.DeleteOptions, plan deletion.Plan, obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if m.GetDeletionTimestamp() == nil {
		return nil // the registry handles a first DELETE as the plan does
	}
	var finalizers []string // after the plan
	switch p := plan.(type) {
	case deletion.Remove:
	case deletion.Mark:
		finalizers = p.Finalizers
	case deletion.Keep:
		finalizers = m.GetFinalizers()
	}
	held := slices.ContainsFunc(finalizers, isCollectors)
	if orphans := options.OrphanDependents; orphans != nil && !*orphans && !held {
		return nil // means background, too, and the answer is "202 Accepted"
	}
	options.PropagationPolicy, options.OrphanDependents = nil, nil
	if !held {
		options.PropagationPolicy = new(metav1.DeletePropagationBackground)
	}
	return nil
}
