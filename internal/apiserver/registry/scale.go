package registry

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// Scaling has the functions of a resource that /scale needs.
type Scaling[T runtime.Object] struct {
	// Replicas returns a pointer to spec.replicas.
	Replicas func(T) **int32
	// StatusReplicas returns status.replicas.
	StatusReplicas func(T) int32
	// Selector returns the pods' label selector, in the form of a query.
	Selector func(T) string
}

func (s *Scaling[P]) untyped() *Scaling[runtime.Object] {
	return &Scaling[runtime.Object]{
		Replicas:       func(obj runtime.Object) **int32 { return s.Replicas(obj.(P)) },
		StatusReplicas: func(obj runtime.Object) int32 { return s.StatusReplicas(obj.(P)) },
		Selector:       func(obj runtime.Object) string { return s.Selector(obj.(P)) },
	}
}

// scaleREST is /scale: the current and desired number of replicas of an object, with the same type for every kind. It
// writes spec.replicas through the main endpoint's strategy, so that the generation is incremented.
type scaleREST struct {
	store    *genericregistry.Store
	resource Resource
	as       schema.GroupVersion // the group version of the Scale that clients send and get
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

// scaleOf returns the Scale of an object.
func (r *scaleREST) scaleOf(obj runtime.Object) (*autoscalingv1.Scale, error) {
	m, s := metaOf(obj), r.resource.Strategy.Scale
	fields, err := r.fieldManagers(m).ToSubresource()
	if err != nil {
		return nil, fmt.Errorf("read the field managers of %s: %w", m.GetName(), err)
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
		Spec:   autoscalingv1.ScaleSpec{Replicas: ptr.Deref(*s.Replicas(obj), 0)},
		Status: autoscalingv1.ScaleStatus{Replicas: s.StatusReplicas(obj), Selector: s.Selector(obj)},
	}, nil
}

// fieldManagers translates the managers of the number of replicas between the two endpoints.
func (r *scaleREST) fieldManagers(m metav1.Object) *managedfields.ScaleHandler {
	replicas := managedfields.ResourcePathMappings{}
	for _, version := range r.resource.GroupVersions() {
		replicas[version.String()] = fieldpath.MakePathOrDie("spec", "replicas")
	}
	return managedfields.NewScaleHandler(m.GetManagedFields(), r.resource.GroupVersion, replicas)
}

// onScale lets admission see the Scale that the client sent.
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

// scaledObject turns a changed Scale into the changed object.
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
	if errs := validate.NotNegative(&scale.Spec.Replicas, field.NewPath("spec", "replicas")); len(errs) > 0 {
		return nil, validate.NewInvalid(r.GroupVersionKind(schema.GroupVersion{}).GroupKind(), scale.Name, errs)
	}
	obj := old.DeepCopyObject()
	m := metaOf(obj)
	if scale.UID != "" && scale.UID != m.GetUID() { // genericregistry.Store checks that of a PUT only
		resource := r.resource.GroupResource()
		resource.Resource += "/scale"
		return nil, apierrors.NewConflict(resource, m.GetName(),
			fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", scale.UID, m.GetUID()))
	}
	if scale.ResourceVersion != "" {
		// The client's precondition: genericregistry.Store compares it with the stored version.
		m.SetResourceVersion(scale.ResourceVersion)
	}
	*r.resource.Strategy.Scale.Replicas(obj) = &scale.Spec.Replicas
	fields, err := r.fieldManagers(m).ToParent(scale.ManagedFields)
	if err != nil {
		return nil, fmt.Errorf("keep the field managers of %s: %w", m.GetName(), err)
	}
	m.SetManagedFields(fields)
	return obj, nil
}

// ScaleSelector returns a label selector as autoscalers read it from /scale.
func ScaleSelector(s *metav1.LabelSelector) string {
	parsed, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		parsed = labels.Nothing()
	}
	return parsed.String()
}
