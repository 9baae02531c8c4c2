package registry

import (
	"maps"
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/deletion"
)

// Resource is one row of the table of built-in resources: everything that the server knows about
// a resource. Rows are created by Define, which sets the fields below "derived".
type Resource struct {
	GroupVersion schema.GroupVersion
	Kind         string
	Plural       string

	Namespaced bool
	ShortNames []string
	Categories []string
	// NameGenerator makes a name from a prefix. Nil: it adds random characters.
	NameGenerator names.NameGenerator
	// ValidateName is the rule for names.
	ValidateName apivalidation.ValidateNameFunc
	// AnyFinalizer: finalizers may have names without a domain, as upstream allows for this kind.
	AnyFinalizer bool
	// Unmanaged are the top-level fields, besides the status, that clients cannot change on the main endpoint. It
	// records no field managers for them.
	Unmanaged []string
	// ExactGeneration: a change between an empty and an absent list increments the generation, as upstream does for
	// this kind.
	ExactGeneration bool
	// CreateOnUpdate: a PUT to a name that does not exist creates the object.
	CreateOnUpdate bool
	// UnconditionalUpdate: a PUT without resourceVersion replaces whatever is stored.
	UnconditionalUpdate bool
	// ReturnDeletedObject: the response to a completed deletion is the last state of the object
	// instead of a Status (R20).
	ReturnDeletedObject bool
	// NoDeleteCollection: the collection cannot be deleted as a whole.
	NoDeleteCollection bool
	// OrphansWarning is the warning about a DELETE without a propagation policy that keeps the dependents.
	OrphansWarning string
	// TTL is the time after its last write for which an object is kept. 0: forever.
	TTL time.Duration
	// Deletion is the resource's part in the delete flow. Define sets it.
	Deletion deletion.Strategy
	// Legacy are older group versions that serve the same objects.
	Legacy []LegacyVersion
	// Peers are other current group versions that serve the same objects.
	Peers []PeerVersion

	// derived

	Singular string
	// New and NewList return empty objects of the kind and of its list.
	New, NewList func() runtime.Object
	// Columns are the columns of kubectl get.
	Columns []table.Column
	// Strategy is the strategy given to Define, for objects of any type. Only functions
	// whose absence has a meaning may be nil: Allocate, Unique, Desired, CopyStatus and
	// Scale.
	Strategy Strategy[runtime.Object]

	// assign makes an object a shallow copy of another.
	assign func(to, from runtime.Object)
}

// Define returns the row of a resource with the Go types T, for objects, and L, for lists.
func Define[T, L any, P object[T], PL object[L]](r Resource, columns []table.Column, s Strategy[P]) Resource {
	r.Singular = strings.ToLower(r.Kind)
	r.New = func() runtime.Object { return P(new(T)) }
	r.NewList = func() runtime.Object { return PL(new(L)) }
	r.Deletion = builtin.StrategyOf(r.GroupResource())
	r.assign = func(to, from runtime.Object) { *to.(P) = *from.(P) }
	r.Columns = table.WithName(columns)
	r.Strategy = untyped(s)
	return r
}

// object is a pointer to T that is an API object.
type object[T any] interface {
	*T
	runtime.Object
}

// GroupResource returns the name of the resource in errors and in the storage.
func (r Resource) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: r.GroupVersion.Group, Resource: r.Plural}
}

// GVK returns the values of the apiVersion and kind fields of the objects.
func (r Resource) GVK() schema.GroupVersionKind { return r.GroupVersion.WithKind(r.Kind) }

// HasStatus reports whether the kind has a status, and with it a /status endpoint.
func (r Resource) HasStatus() bool { return r.Strategy.CopyStatus != nil }

// FieldLabels returns the labels that field selectors may use besides the object's name
// and namespace.
func (r Resource) FieldLabels() []string {
	return slices.Sorted(maps.Keys(r.Strategy.SelectableFields(r.New())))
}

// attributes returns the labels and fields that selectors match.
func (r Resource) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	m := metaOf(obj)
	set := fields.Set{"metadata.name": m.GetName()}
	if r.Namespaced {
		set["metadata.namespace"] = m.GetNamespace()
	}
	maps.Copy(set, r.Strategy.SelectableFields(obj))
	return m.GetLabels(), set, nil
}

// indexes returns the indexes that spare watches and lists by an indexed field label from
// checking every object.
func (r Resource) indexes() (storage.IndexerFuncs, *cache.Indexers) {
	if len(r.Strategy.IndexedFields) == 0 {
		return nil, nil
	}
	triggers, indexers := storage.IndexerFuncs{}, cache.Indexers{}
	for _, label := range r.Strategy.IndexedFields {
		value := func(obj runtime.Object) string { return r.Strategy.SelectableFields(obj)[label] }
		triggers[label] = value
		indexers[storage.FieldIndex(label)] = func(obj any) ([]string, error) { return []string{value(obj.(runtime.Object))}, nil }
	}
	return triggers, &indexers
}
