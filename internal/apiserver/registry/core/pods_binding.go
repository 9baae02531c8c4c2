package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	storeerr "k8s.io/apiserver/pkg/storage/errors"
	"k8s.io/apiserver/pkg/util/dryrun"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// bindingREST is pods/binding, through which the scheduler binds a pod once. It is a separate endpoint because no
// update may change a pod's node.
type bindingREST struct {
	store *genericregistry.Store
	now   func() time.Time
}

// New implements rest.Storage.
func (r *bindingREST) New() runtime.Object { return &corev1.Binding{} }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (r *bindingREST) Destroy() {}

// PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate keeps the UID and the resourceVersion in the request: they
// identify the pod that the scheduler has seen, in the state that it has seen.
func (r *bindingREST) PreserveRequestObjectMetaSystemFieldsOnSubresourceCreate() bool { return true }

// Create binds a pod by name.
func (r *bindingREST) Create(
	ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions,
) (runtime.Object, error) {
	binding, ok := obj.(*corev1.Binding)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Binding object: %T", obj))
	}
	if name != binding.Name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(binding); len(errs) > 0 {
		return nil, validate.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), name, errs)
	}
	if err := protection.CheckBinding(binding); err != nil {
		return nil, apierrors.NewForbidden(corev1.Resource("pods/binding"), name, err)
	}
	if admit != nil {
		if err := admit(ctx, binding.DeepCopy()); err != nil {
			return nil, err
		}
	}
	key, err := r.store.KeyFunc(ctx, name)
	if err != nil {
		return nil, err
	}
	preconditions := &storage.Preconditions{}
	if binding.UID != "" {
		preconditions.UID = &binding.UID
	}
	if binding.ResourceVersion != "" {
		preconditions.ResourceVersion = &binding.ResourceVersion
	}
	bind := storage.SimpleUpdate(func(existing runtime.Object) (runtime.Object, error) {
		p := existing.(*corev1.Pod)
		return p, bindPod(p, binding, metav1.NewTime(r.now()))
	})
	err = r.store.Storage.GuaranteedUpdate(ctx, key, &corev1.Pod{}, false, preconditions, bind, dryrun.IsDryRun(options.DryRun), nil)
	if err != nil {
		return nil, bindingError(err, name)
	}
	return &metav1.Status{Status: metav1.StatusSuccess}, nil
}

func validateBinding(b *corev1.Binding) field.ErrorList {
	target := field.NewPath("target")
	errs := validate.Required(b.Target.Name, target.Child("name"))
	if b.Target.Kind != "" {
		errs = append(errs, validate.OneOf(b.Target.Kind, target.Child("kind"), "Node")...)
	}
	if len(errs) == 0 {
		errs = validate.FromMessages(b.Target.Name, target.Child("name"), apivalidation.NameIsDNSSubdomain(b.Target.Name, false))
	}
	return errs
}

// bindPod binds a pod to a node, unless it is bound or being deleted. It runs in the
// transaction, so that nothing can change between the check and the write.
func bindPod(p *corev1.Pod, binding *corev1.Binding, now metav1.Time) error {
	switch {
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", p.Name)
	case p.Spec.NodeName != "":
		return fmt.Errorf("pod %s is already assigned to node %q", p.Name, p.Spec.NodeName)
	case len(p.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %s has non-empty .spec.schedulingGates", p.Name)
	}
	if errs := validateBoundAnnotations(p, binding); len(errs) > 0 {
		return validate.NewInvalid(corev1.SchemeGroupVersion.WithKind("Binding").GroupKind(), p.Name, errs)
	}
	p.Spec.NodeName = binding.Target.Name // this does not change the generation
	for key, value := range binding.Annotations {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, key, value)
	}
	for key, value := range binding.Labels { // the topology of the node
		metav1.SetMetaDataLabel(&p.ObjectMeta, key, value)
	}
	p.Status.NominatedNodeName = "" // the pod is bound, so no node is nominated any more
	setScheduled(p, now)
	return nil
}

// validateBoundAnnotations checks the annotations that a binding adds to a pod, as an update of the pod would: they must
// not make it a mirror pod, which neither drain nor protection covers.
func validateBoundAnnotations(p *corev1.Pod, binding *corev1.Binding) field.ErrorList {
	at, merged := field.NewPath("metadata", "annotations"), map[string]string{}
	maps.Copy(merged, p.Annotations)
	maps.Copy(merged, binding.Annotations)
	spec := p.Spec
	spec.NodeName = binding.Target.Name
	return append(podspec.ValidateAnnotationsUpdate(merged, p.Annotations, at), podspec.ValidateAnnotations(binding.Annotations, &spec, at)...)
}

// setScheduled sets the condition PodScheduled.
func setScheduled(p *corev1.Pod, now metav1.Time) {
	scheduled := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now}
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == corev1.PodScheduled {
			p.Status.Conditions[i] = scheduled
			return
		}
	}
	p.Status.Conditions = append(p.Status.Conditions, scheduled)
}

// bindingError returns the API error for a binding that was not written: a conflict, unless the error has another
// cause. A scheduler does not retry after a conflict.
func bindingError(err error, name string) error {
	err = storeerr.InterpretUpdateError(err, corev1.Resource("pods"), name)
	if _, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return err
	}
	return apierrors.NewConflict(corev1.Resource("pods/binding"), name, err)
}
