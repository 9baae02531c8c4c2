package registry

import (
	"context"
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/deletion"
)

// Kind is one row of the table: one resource and all that the server knows of it.
// Rows are made by define, which fills in the fields below "derived".
type Kind struct {
	GroupVersion schema.GroupVersion
	Kind         string
	Resource     string // plural
	// Why is the reason that this kind is served: what of the mission needs it.
	Why string

	Namespaced bool
	ShortNames []string
	Categories []string
	// Name is the rule that names of this kind must obey.
	Name apivalidation.ValidateNameFunc
	// CreateOnUpdate: a PUT to a name that does not exist creates the object.
	CreateOnUpdate bool
	// UnconditionalUpdate: a PUT without resourceVersion replaces whatever is stored.
	UnconditionalUpdate bool
	// AnswersWithObject: the answer to a completed deletion is the object as it was
	// last, where other kinds answer with a Status (R20).
	AnswersWithObject bool
	// OneByOne: there is no deletion of the whole collection.
	OneByOne bool
	// TTL, if not zero, is how long after its last write an object is kept.
	TTL time.Duration
	// Deletion is the kind's part in the delete flow. define sets its Resource.
	Deletion deletion.Strategy

	// derived

	Singular string
	// New and NewList make empty objects of the kind and of its list.
	New, NewList func() runtime.Object

	// Unique names the values that no other object of the kind may have. It is nil
	// for kinds without.
	Unique func(runtime.Object) []string

	columns   []column
	behaviour behaviour[runtime.Object]
	// assign makes an object a shallow copy of another.
	assign func(to, from runtime.Object)
}

// GroupResource names the kind's resource, as errors and storage do.
func (k Kind) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.GroupVersion.Group, Resource: k.Resource}
}

// GVK is the kind's name in the apiVersion and kind fields of an object.
func (k Kind) GVK() schema.GroupVersionKind { return k.GroupVersion.WithKind(k.Kind) }

// GVR is the kind's name in a URL.
func (k Kind) GVR() schema.GroupVersionResource { return k.GroupVersion.WithResource(k.Resource) }

// HasStatus tells whether the kind has a status, and with it a /status endpoint.
func (k Kind) HasStatus() bool { return k.behaviour.status != nil }

// FieldLabels are the labels that field selectors of this kind may use besides the
// object's name and namespace.
func (k Kind) FieldLabels() []string {
	var labels []string
	for label := range k.behaviour.selectable(k.New()) {
		labels = append(labels, label)
	}
	slices.Sort(labels)
	return labels
}

// Table is all rows, in a fixed order: group by group, and in each the order of the files.
func Table() []Kind {
	return slices.Concat(
		coreKinds(),
		appsKinds(),
		batchKinds(),
		autoscalingKinds(),
		coordinationKinds(),
		rbacKinds(),
		networkingKinds(),
		discoveryKinds(),
		policyKinds(),
		storageKinds(),
		schedulingKinds(),
		admissionKinds(),
		flowcontrolKinds(),
	)
}

// coreKinds is the group without a name.
func coreKinds() []Kind {
	return []Kind{
		namespaces(), pods(), nodes(), replicationControllers(),
		services(), endpoints(),
		configMaps(), secrets(), serviceAccounts(),
		persistentVolumes(), persistentVolumeClaims(),
		events(),
	}
}

// behaviour is what a kind does, in terms of its own type. Every field may be nil.
type behaviour[T runtime.Object] struct {
	// defaults fills in what the client left out. It runs on everything that is
	// decoded, from requests and from storage, so it must not change what it made.
	defaults func(T)
	// allocate gives an object values that no other has, where it needs them. old is
	// what is stored, nil for a new object. It runs before everything else.
	allocate func(a *allocation, obj, old T) (field.ErrorList, error)
	// unique names those values.
	unique func(T) []string
	// resolve completes a new object by what other objects say. It runs before
	// creating; its errors are what the client gets.
	resolve func(context.Context, directory, T) error
	// compare checks a changed object against what other objects say.
	compare func(context.Context, directory, T) error
	// creating completes a new object, whose status is empty and whose generation
	// is counted, before it is validated.
	creating func(T)
	// updating completes a changed object before it is validated, on the main endpoint.
	updating func(obj, old T)
	// reporting completes a changed status before it is validated, on /status.
	reporting func(obj, old T)
	// canonical brings a valid object into the form in which it is stored.
	canonical func(T)

	// validate checks all but metadata, on create and on update.
	validate func(T) field.ErrorList
	// validateUpdate checks what may change on the main endpoint.
	validateUpdate func(obj, old T) field.ErrorList
	// validateStatus checks a change of status.
	validateStatus func(obj, old T) field.ErrorList

	// desired is the part of the object that the user decides: when it changes, a
	// new generation is counted. Nil: the kind counts no generations.
	desired func(T) any
	// status copies the status. Nil: the kind has none.
	status func(to, from T)
	// statusFromCreator: who creates the object knows its status (a node agent
	// registers its node), so it is not cleared.
	statusFromCreator bool

	// selectable is the values of the kind's own field labels.
	selectable func(T) fields.Set
	// indexed names the field labels that the watch cache keeps an index of.
	indexed []string
	// scale lets the kind be scaled through /scale.
	scale *scaling[T]
	// endpoints are subresources of the kind's own, by their last path segment.
	endpoints func(*REST) map[string]rest.Storage
}

// object is a pointer to T that is an API object.
type object[T any] interface {
	*T
	runtime.Object
}

// define makes a row of a kind whose Go type is T and whose list's is L.
func define[T, L any, P object[T], PL object[L]](k Kind, columns []column, b behaviour[P]) Kind {
	k.Singular = strings.ToLower(k.Kind)
	k.New = func() runtime.Object { return P(new(T)) }
	k.NewList = func() runtime.Object { return PL(new(L)) }
	k.Deletion.Resource = k.GroupResource()
	k.assign = func(to, from runtime.Object) { *to.(P) = *from.(P) }
	k.columns = withName(columns)
	k.behaviour = erase(b)
	if b.unique != nil {
		k.Unique = func(obj runtime.Object) []string { return b.unique(obj.(P)) }
	}
	return k
}

// erase makes the typed functions of a row callable without knowing the type. What
// is absent does nothing, except where absence itself says something.
func erase[P runtime.Object](b behaviour[P]) behaviour[runtime.Object] {
	e := behaviour[runtime.Object]{
		defaults:       effect(b.defaults),
		resolve:        lookUp(b.resolve),
		compare:        lookUp(b.compare),
		creating:       effect(b.creating),
		updating:       effect2(b.updating),
		reporting:      effect2(b.reporting),
		canonical:      effect(b.canonical),
		validate:       func(obj runtime.Object) field.ErrorList { return nil },
		validateUpdate: check2(b.validateUpdate),
		validateStatus: check2(b.validateStatus),
		selectable:     func(runtime.Object) fields.Set { return nil },
		indexed:        b.indexed,

		statusFromCreator: b.statusFromCreator,
		endpoints:         func(*REST) map[string]rest.Storage { return nil },
	}
	if b.validate != nil {
		e.validate = func(obj runtime.Object) field.ErrorList { return b.validate(obj.(P)) }
	}
	if b.desired != nil {
		e.desired = func(obj runtime.Object) any { return b.desired(obj.(P)) }
	}
	if b.status != nil {
		e.status = effect2(b.status)
	}
	if b.selectable != nil {
		e.selectable = func(obj runtime.Object) fields.Set { return b.selectable(obj.(P)) }
	}
	if b.allocate != nil {
		e.allocate = func(a *allocation, obj, old runtime.Object) (field.ErrorList, error) {
			before, _ := old.(P)
			return b.allocate(a, obj.(P), before)
		}
	}
	if b.scale != nil {
		e.scale = b.scale.erase()
	}
	if b.endpoints != nil {
		e.endpoints = b.endpoints
	}
	return e
}

func effect[P runtime.Object](f func(P)) func(runtime.Object) {
	if f == nil {
		return func(runtime.Object) {}
	}
	return func(obj runtime.Object) { f(obj.(P)) }
}

func effect2[P runtime.Object](f func(a, b P)) func(a, b runtime.Object) {
	if f == nil {
		return func(_, _ runtime.Object) {}
	}
	return func(a, b runtime.Object) { f(a.(P), b.(P)) }
}

func lookUp[P runtime.Object](f func(context.Context, directory, P) error) func(context.Context, directory, runtime.Object) error {
	if f == nil {
		return func(context.Context, directory, runtime.Object) error { return nil }
	}
	return func(ctx context.Context, d directory, obj runtime.Object) error { return f(ctx, d, obj.(P)) }
}

func check2[P runtime.Object](f func(obj, old P) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	if f == nil {
		return func(_, _ runtime.Object) field.ErrorList { return nil }
	}
	return func(obj, old runtime.Object) field.ErrorList { return f(obj.(P), old.(P)) }
}

// part makes the function that copies one field of a kind.
func part[P, S any](at func(P) *S) func(to, from P) {
	return func(to, from P) { *at(to) = *at(from) }
}
