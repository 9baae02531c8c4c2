package registry

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// PeerVersion is another current group version in which clients read and write the objects of a resource: Events are in
// events.k8s.io and in the core group. Unlike a legacy version it names its fields differently, so it is converted
// field by field; everything else, including deletion, works as in the row.
type PeerVersion struct {
	GroupVersion schema.GroupVersion
	// New and NewList return empty objects of the version's types.
	New, NewList func() runtime.Object
	// FieldLabels maps the labels that field selectors may use in this version, besides the object's name and
	// namespace, to the row's labels. Nil: the row's labels are used.
	FieldLabels map[string]string
	// Default completes an object of the row that was converted from this version. Nil: the row's Default does.
	Default func(obj runtime.Object)

	// toRow and fromRow convert one object. They change nothing but their second argument,
	// which may share memory with the first one.
	toRow, fromRow func(from, to runtime.Object) error
}

// Peer returns a group version in which the objects of a row with Go type R have the type P.
func Peer[P, L, R any, PP object[P], PL object[L], PR object[R]](
	version schema.GroupVersion, labels map[string]string, toRow func(PP, PR) error, fromRow func(PR, PP) error,
) PeerVersion {
	return PeerVersion{
		GroupVersion: version,
		New:          func() runtime.Object { return PP(new(P)) },
		NewList:      func() runtime.Object { return PL(new(L)) },
		FieldLabels:  labels,
		toRow:        func(from, to runtime.Object) error { return toRow(from.(PP), to.(PR)) },
		fromRow:      func(from, to runtime.Object) error { return fromRow(from.(PR), to.(PP)) },
	}
}

// addPeerTypes registers the types of the peer versions.
func addPeerTypes(scheme *runtime.Scheme, resources []Resource) {
	for _, resource := range resources {
		for _, p := range resource.Peers {
			if !scheme.IsVersionRegistered(p.GroupVersion) {
				metav1.AddToGroupVersion(scheme, p.GroupVersion)
			}
			scheme.AddKnownTypes(p.GroupVersion, p.New(), p.NewList())
		}
	}
}

// addPeerConversions lets the hub convert the types of the rows to the types of peer versions, and back.
func addPeerConversions(hub *runtime.Scheme, resources []Resource) {
	for _, resource := range resources {
		for _, p := range resource.Peers {
			if p.GroupVersion.Group != resource.GroupVersion.Group {
				addInternalNames(hub, p.GroupVersion.Group, resource)
			}
			complete := p.Default
			if complete == nil {
				complete = resource.Strategy.Default
			}
			toRow := func(from, to runtime.Object) error {
				if err := p.toRow(from, to); err != nil {
					return err
				}
				complete(to)
				return nil
			}
			add := func(from, to runtime.Object, convert func(from, to runtime.Object) error) {
				utilruntime.Must(hub.AddConversionFunc(from, to, conversionFunc(convert)))
			}
			add(p.New(), resource.New(), toRow)
			add(resource.New(), p.New(), p.fromRow)
			add(p.NewList(), resource.NewList(), eachOfList(resource.New, toRow))
			add(resource.NewList(), p.NewList(), eachOfList(p.New, p.fromRow))
			utilruntime.Must(hub.AddFieldLabelConversionFunc(p.GroupVersion.WithKind(resource.Kind), p.fieldLabels(resource)))
		}
	}
}

// addInternalNames registers the types of a row as the internal version of another group, where
// codecs look for it.
func addInternalNames(hub *runtime.Scheme, group string, resource Resource) {
	internal := schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
	hub.AddKnownTypeWithName(internal.WithKind(resource.Kind), resource.New())
	hub.AddKnownTypeWithName(internal.WithKind(resource.Kind+"List"), resource.NewList())
}

// eachOfList returns a function that converts a list by converting its items.
func eachOfList(newItem func() runtime.Object, convert func(from, to runtime.Object) error) func(from, to runtime.Object) error {
	return func(from, to runtime.Object) error {
		items, err := meta.ExtractList(from)
		if err != nil {
			return fmt.Errorf("convert a %T to a %T: %w", from, to, err)
		}
		for i, item := range items {
			converted := newItem()
			if err := convert(item, converted); err != nil {
				return err
			}
			items[i] = converted
		}
		if err := meta.SetList(to, items); err != nil {
			return fmt.Errorf("convert a %T to a %T: %w", from, to, err)
		}
		const metadata = "ListMeta"
		reflect.ValueOf(to).Elem().FieldByName(metadata).Set(reflect.ValueOf(from).Elem().FieldByName(metadata))
		return nil
	}
}

// fieldLabels returns a function that translates the label of a field selector to the row's label.
func (p PeerVersion) fieldLabels(resource Resource) runtime.FieldLabelConversionFunc {
	own := acceptLabels(resource.FieldLabels())
	if p.FieldLabels == nil {
		return own
	}
	general := acceptLabels(nil)
	return func(label, value string) (string, string, error) {
		if means, ok := p.FieldLabels[label]; ok {
			return own(means, value)
		}
		return general(label, value)
	}
}
