package registry

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// scaling is what /scale has to know of a kind.
type scaling[T runtime.Object] struct {
	replicas func(T) **int32
	current  func(T) int32
	// selector is the pods' label selector, in the form of a query.
	selector func(T) string
}

func (s *scaling[P]) erase() *scaling[runtime.Object] {
	return &scaling[runtime.Object]{
		replicas: func(obj runtime.Object) **int32 { return s.replicas(obj.(P)) },
		current:  func(obj runtime.Object) int32 { return s.current(obj.(P)) },
		selector: func(obj runtime.Object) string { return s.selector(obj.(P)) },
	}
}

// scaleREST is /scale: how many replicas an object has and is to have, in the same
// words for every kind. It writes spec.replicas through the main endpoint's
// strategy, so that a generation is counted.
type scaleREST struct {
	store *genericregistry.Store
	kind  Kind
	as    schema.GroupVersion // whose Scale clients send and get
}

// New implements rest.Storage.
func (r *scaleREST) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy implements rest.Storage. The storage belongs to the main endpoint.
func (r *scaleREST) Destroy() {}

// GroupVersionKind implements rest.GroupVersionKindProvider: the kind may be of another group.
func (r *scaleREST) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return r.as.WithKind(scaleKind)
}

// ConvertToTable implements rest.TableConvertor.
func (r *scaleREST) ConvertToTable(ctx context.Context, obj, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, obj, options)
}

// Get implements rest.Getter.
func (r *scaleREST) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	obj, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return r.scaleOf(obj)
}

// Update implements rest.Updater.
func (r *scaleREST) Update(
	ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc,
	update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions,
) (runtime.Object, bool, error) {
	obj, _, err := r.store.Update(ctx, name, &scaledObject{r, info}, r.onScale(create), r.onScaleUpdate(update), false, options)
	if err != nil {
		return nil, false, err
	}
	scale, err := r.scaleOf(obj)
	return scale, false, err
}

// scaleOf is what /scale shows of an object.
func (r *scaleREST) scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	m, s := metaOf(obj), r.kind.behaviour.scale
	fields, err := r.ownership(m).ToSubresource()
	if err != nil {
		return nil, fmt.Errorf("read who owns the fields of %s: %w", m.GetName(), err)
	}
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{
			Name:              m.GetName(),
			Namespace:         m.GetNamespace(),
			UID:               m.GetUID(),
			ResourceVersion:   m.GetResourceVersion(),
			CreationTimestamp: m.GetCreationTimestamp(),
			ManagedFields:     fields,
		},
		Spec:   autoscalingv1.ScaleSpec{Replicas: deref(*s.replicas(obj), 0)},
		Status: autoscalingv1.ScaleStatus{Replicas: s.current(obj), Selector: s.selector(obj)},
	}, nil
}

// ownership translates who owns the number of replicas between the two endpoints.
func (r *scaleREST) ownership(m metav1.Object) *managedfields.ScaleHandler {
	replicas := managedfields.ResourcePathMappings{}
	for _, version := range append(r.kind.legacyVersions(), r.kind.GroupVersion) {
		replicas[version.String()] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	return managedfields.NewScaleHandler(m.GetManagedFields(), r.kind.GroupVersion, replicas)
}

// onScale lets admission see the Scale that the client has sent.
func (r *scaleREST) onScale(f rest.ValidateObjectFunc) rest.ValidateObjectFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj runtime.Object) error {
		scale, err := r.scaleOf(obj)
		if err != nil {
			return err
		}
		return f(ctx, scale)
	}
}

func (r *scaleREST) onScaleUpdate(f rest.ValidateObjectUpdateFunc) rest.ValidateObjectUpdateFunc {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, obj, old runtime.Object) error {
		scale, err := r.scaleOf(obj)
		if err != nil {
			return err
		}
		before, err := r.scaleOf(old)
		if err != nil {
			return err
		}
		return f(ctx, scale, before)
	}
}

// scaledObject makes of a changed Scale the changed object.
type scaledObject struct {
	endpoint *scaleREST
	sent     rest.UpdatedObjectInfo
}

// Preconditions implements rest.UpdatedObjectInfo.
func (i *scaledObject) Preconditions() *metav1.Preconditions { return i.sent.Preconditions() }

// UpdatedObject implements rest.UpdatedObjectInfo.
func (i *scaledObject) UpdatedObject(ctx context.Context, old runtime.Object) (runtime.Object, error) {
	r := i.endpoint
	before, err := r.scaleOf(old)
	if err != nil {
		return nil, err
	}
	updated, err := i.sent.UpdatedObject(ctx, before)
	if err != nil {
		return nil, err
	}
	scale, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("not a Scale object: %T", updated))
	}
	if errs := notNegative(&scale.Spec.Replicas, field.NewPath("spec", "replicas")); len(errs) > 0 {
		return nil, apierrors.NewInvalid(r.GroupVersionKind(schema.GroupVersion{}).GroupKind(), scale.Name, errs)
	}
	obj := old.DeepCopyObject()
	m := metaOf(obj)
	if scale.ResourceVersion != "" {
		// The client's precondition: the store compares it with what is stored.
		m.SetResourceVersion(scale.ResourceVersion)
	}
	*r.kind.behaviour.scale.replicas(obj) = &scale.Spec.Replicas
	fields, err := r.ownership(m).ToParent(scale.ManagedFields)
	if err != nil {
		return nil, fmt.Errorf("keep who owns the replicas of %s: %w", m.GetName(), err)
	}
	m.SetManagedFields(fields)
	return obj, nil
}
