package registry

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// LegacyVersion is an older group version that serves the same stored objects of a resource, with other defaults. It
// orphans dependents unless the client specifies otherwise (R17, AS-08).
type LegacyVersion struct {
	GroupVersion schema.GroupVersion
	// Object and List are empty objects of the version's types.
	Object, List runtime.Object
	// Scale is an empty object of the type that /scale has in this version.
	Scale runtime.Object
	// Default sets the defaults in which this version differs, in an object of the row's type. Nil: none differs.
	Default func(obj runtime.Object)
	// Keep moves fields that the row's type does not have into annotations of an object of this
	// version, and Restore moves them back. Nil: there are none.
	Keep, Restore func(legacy runtime.Object)
}

// GroupVersions returns all group versions that serve a resource, the row's own last.
func (r Resource) GroupVersions() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, l := range r.Legacy {
		versions = append(versions, l.GroupVersion)
	}
	for _, p := range r.Peers {
		versions = append(versions, p.GroupVersion)
	}
	return append(versions, r.GroupVersion)
}

// legacyGroupVersions returns the legacy versions of a group, in the order of the rows.
func legacyGroupVersions(resources []Resource, group string) []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, resource := range resources {
		for _, l := range resource.Legacy {
			if l.GroupVersion.Group == group && !slices.Contains(versions, l.GroupVersion) {
				versions = append(versions, l.GroupVersion)
			}
		}
	}
	return versions
}

// addLegacyTypes registers the types of the legacy group versions.
func addLegacyTypes(scheme *runtime.Scheme, resources []Resource) {
	for _, resource := range resources {
		for _, l := range resource.Legacy {
			if !scheme.IsVersionRegistered(l.GroupVersion) {
				metav1.AddToGroupVersion(scheme, l.GroupVersion)
			}
			scheme.AddKnownTypes(l.GroupVersion, l.Object, l.List, l.Scale)
		}
	}
}

// addLegacyConversions lets the hub convert the types of the rows to legacy ones, and back.
func addLegacyConversions(hub *runtime.Scheme, resources []Resource) {
	for _, resource := range resources {
		for _, l := range resource.Legacy {
			addLegacyScaleConversions(hub, l)
			if l.GroupVersion.Group != resource.GroupVersion.Group {
				addInternalNames(hub, l.GroupVersion.Group, resource)
			}
			for _, pair := range [][2]runtime.Object{{l.Object, resource.New()}, {l.List, resource.NewList()}} {
				utilruntime.Must(hub.AddConversionFunc(pair[0], pair[1], conversionFunc(l.toHub)))
				utilruntime.Must(hub.AddConversionFunc(pair[1], pair[0], conversionFunc(l.fromHub)))
			}
			hub.AddTypeDefaultingFunc(l.Object, l.defaulter(resource))
			utilruntime.Must(hub.AddFieldLabelConversionFunc(l.GroupVersion.WithKind(resource.Kind), acceptLabels(resource.FieldLabels())))
		}
	}
}

func conversionFunc(convert func(from, to runtime.Object) error) conversion.ConversionFunc {
	return func(a, b any, _ conversion.Scope) error {
		return convert(a.(runtime.Object), b.(runtime.Object))
	}
}

// defaulter returns a function that sets the fields that a client of the legacy version left out.
func (l LegacyVersion) defaulter(resource Resource) func(any) {
	return func(sent any) {
		obj, fresh := resource.New(), reflect.New(reflect.TypeOf(l.Object).Elem())
		utilruntime.Must(l.toHub(sent.(runtime.Object), obj))
		if l.Default != nil {
			l.Default(obj)
		}
		resource.Strategy.Default(obj)
		utilruntime.Must(l.fromHub(obj, fresh.Interface().(runtime.Object)))
		reflect.ValueOf(sent).Elem().Set(fresh.Elem())
	}
}

// toHub converts a legacy object to the type of the row. Fields have the same names and nesting in both versions.
func (l LegacyVersion) toHub(legacy, hub runtime.Object) error {
	legacy = legacy.DeepCopyObject()
	if err := forEach(legacy, l.Keep); err != nil {
		return err
	}
	return transcribe(legacy, hub)
}

// fromHub converts an object of the row's type to the legacy type.
func (l LegacyVersion) fromHub(hub, legacy runtime.Object) error {
	if err := transcribe(hub, legacy); err != nil {
		return err
	}
	return forEach(legacy, l.Restore)
}

// transcribe copies all fields that both types have. It uses JSON, so that no field is forgotten; legacy versions are
// rarely used, so the cost matters less.
func transcribe(from, to runtime.Object) error {
	data, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("convert a %T to a %T: %w", from, to, err)
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("convert a %T to a %T: %w", from, to, err)
	}
	return nil
}

// forEach applies f, unless it is nil, to an object or to each item of a list.
func forEach(obj runtime.Object, f func(runtime.Object)) error {
	switch {
	case f == nil:
		return nil
	case meta.IsListType(obj):
		return meta.EachListItem(obj, func(item runtime.Object) error {
			f(item)
			return nil
		})
	}
	f(obj)
	return nil
}

// legacyStorages returns the endpoints of a resource in a legacy version: the main version's endpoints, with another
// default propagation policy and another type of /scale. They have no short names and no categories, so that a client
// that uses one does not find the objects twice.
func legacyStorages(resource Resource, version schema.GroupVersion, current map[string]rest.Storage) map[string]rest.Storage {
	main, ok := current[resource.Plural].(*REST)
	if !ok {
		return nil
	}
	legacy := *main
	legacy.Resource.Deletion.DefaultPropagation = metav1.DeletePropagationOrphan
	legacy.Resource.Deletion.Resource.Group = version.Group // as answers name it
	legacy.Resource.ShortNames, legacy.Resource.Categories = nil, nil
	storages := map[string]rest.Storage{resource.Plural: &legacy}
	if status, ok := current[resource.Plural+"/status"]; ok {
		storages[resource.Plural+"/status"] = status
	}
	if resource.Strategy.Scale != nil {
		storages[resource.Plural+"/scale"] = &scaleREST{store: main.Store, resource: resource, as: version}
	}
	return storages
}
