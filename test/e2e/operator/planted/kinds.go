package planted

import (
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion returns the group and version of Pools.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "example.com", Version: "v1"}
}

// The labels of the objects that belong to a Pool.
const (
	RoleLabel  = "example.com/role"
	PoolLabel  = "example.com/pool"     // the name of the Pool
	UIDLabel   = "example.com/pool-uid" // its UID
	PlaceLabel = "example.com/place"    // the place of a member: 0, 1, and so on
)

// The roles of objects.
const (
	Member = "member" // a ConfigMap with the color of the Pool, which owns it
	Number = "number" // a ConfigMap that claims a number for the Pool, which owns it
	Record = "record" // a Secret without an owner reference, which the finalizer deletes
	Order  = "order"  // a Secret that a user creates, and that the operator serves and deletes
)

const (
	// Finalizer keeps a Pool until its record and its entry in the directory are gone.
	Finalizer = "example.com/record"
	// Directory is a ConfigMap that the operator shares with others. It has an entry for each Pool.
	Directory = "directory"
)

// Pool has members of one color, a number that no other Pool has, a record, and an entry in the directory.
type Pool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   PoolSpec   `json:"spec,omitzero"`
	Status PoolStatus `json:"status,omitzero"`
}

// PoolSpec is the desired state.
type PoolSpec struct {
	Size  int    `json:"size"`
	Color string `json:"color"`
}

// PoolStatus is the observed state.
type PoolStatus struct {
	ObservedGeneration int64    `json:"observedGeneration,omitempty"`
	Color              string   `json:"color,omitempty"` // of the spec with that generation
	Ready              int      `json:"ready,omitempty"` // the number of members with that color
	Number             int      `json:"number,omitempty"`
	Served             []string `json:"served,omitempty"` // the UIDs of the orders
}

// PoolList is a list of Pools.
type PoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Pool `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (p *Pool) DeepCopyObject() runtime.Object { return p.DeepCopy() }

// DeepCopy returns a copy.
func (p *Pool) DeepCopy() *Pool {
	c := *p
	c.ObjectMeta = *p.ObjectMeta.DeepCopy()
	c.Status.Served = slices.Clone(p.Status.Served)
	return &c
}

// DeepCopyObject implements runtime.Object.
func (l *PoolList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Pool, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopy()
	}
	return &c
}

// AddToScheme registers Pools.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &Pool{}, &PoolList{})
	metav1.AddToGroupVersion(scheme, GroupVersion())
	return nil
}

// Definition returns the CustomResourceDefinition of Pools.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"},
		ObjectMeta: metav1.ObjectMeta{Name: "pools.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: GroupVersion().Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "pools", Singular: "pool", Kind: "Pool", ListKind: "PoolList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: GroupVersion().Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec":   {Type: "object", XPreserveUnknownFields: new(true)},
						"status": {Type: "object", XPreserveUnknownFields: new(true)},
					},
				}},
			}},
		},
	}
}
