package deleteflow

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/coppice-dev/coppice/internal/deletion"
)

// Conveyor is an admission plug-in for DELETEs that go through the library's
// registry. It tells Guard the options, which the registry keeps to itself, refuses
// what no plan can be made for, and tells the registry such options that it comes to
// the plan's end by itself, and so to the plan's answer (R20), in a dry run too.
func (f *Flow) Conveyor() admission.MutationInterface { return conveyor{f} }

type conveyor struct{ flow *Flow }

// Handles implements admission.Interface.
func (conveyor) Handles(operation admission.Operation) bool { return operation == admission.Delete }

// Admit implements admission.MutationInterface.
func (c conveyor) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	r := requestFrom(ctx)
	options, ok := a.GetOperationOptions().(*metav1.DeleteOptions)
	if r == nil || !ok || isPlanned(ctx) {
		return nil
	}
	asked := r.keep(options)
	obj := a.GetOldObject()
	if obj == nil {
		return nil
	}
	plan, err := deletion.Decide(obj, asked, c.flow.strategyOf(a.GetResource().GroupResource()), c.flow.now())
	if err != nil {
		return err
	}
	if a.GetName() == "" {
		return nil // of a collection: the options are not those of one object
	}
	options.PropagationPolicy, options.OrphanDependents = asked.PropagationPolicy, asked.OrphanDependents
	return steer(options, plan, obj)
}

// steer changes the options that the registry goes by, so that it does with a
// terminating object what the plan does. Left to itself it puts a collector's
// finalizer on it, which R19 forbids.
func steer(options *metav1.DeleteOptions, plan deletion.Plan, obj runtime.Object) error {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if m.GetDeletionTimestamp() == nil {
		return nil // the plan of a first DELETE is what the registry does
	}
	var left []string
	switch p := plan.(type) {
	case deletion.Remove:
	case deletion.Mark:
		left = p.Finalizers
	case deletion.Keep:
		left = m.GetFinalizers()
	}
	held := slices.ContainsFunc(left, isCollectors)
	if orphans := options.OrphanDependents; orphans != nil && !*orphans && !held {
		return nil // means background too, and makes the answer "202 Accepted"
	}
	options.PropagationPolicy, options.OrphanDependents = nil, nil
	if !held {
		options.PropagationPolicy = new(metav1.DeletePropagationBackground)
	}
	return nil
}
