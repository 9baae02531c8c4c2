// Package operator is a small operator that is typical for Kubernetes-style APIs: a Site has a page
// and a number of replicas, and the operator creates a ConfigMap and a Deployment for it, which the
// Site owns. When a Site is deleted, a finalizer first releases its domain outside the cluster.
//
// It tests that controller-runtime works against our control plane: caches, server-side apply,
// owner references, status, finalizers, events. It is a module of its own because nothing else
// needs controller-runtime.
package operator

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and version of Sites.
var GroupVersion = schema.GroupVersion{Group: "example.com", Version: "v1"}

// Site is a web site of one page.
type Site struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   SiteSpec   `json:"spec,omitzero"`
	Status SiteStatus `json:"status,omitzero"`
}

// SiteSpec is the desired state.
type SiteSpec struct {
	Page     string `json:"page"`
	Replicas int32  `json:"replicas,omitempty"`
}

// SiteStatus is the observed state.
type SiteStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

// SiteList is a list of Sites.
type SiteList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`
	Items           []Site `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (s *Site) DeepCopyObject() runtime.Object {
	c := s.deepCopy()
	return &c
}

func (s *Site) deepCopy() Site {
	c := *s
	s.ObjectMeta.DeepCopyInto(&c.ObjectMeta) //nolint:staticcheck // DeepCopyInto alone reads as the Site's
	c.Status.Conditions = append([]metav1.Condition(nil), s.Status.Conditions...)
	return c
}

// DeepCopyObject implements runtime.Object.
func (l *SiteList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]Site, len(l.Items))
	for i := range l.Items {
		c.Items[i] = l.Items[i].deepCopy()
	}
	return &c
}

// AddToScheme registers Sites.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Site{}, &SiteList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

// Definition returns the CustomResourceDefinition of Sites.
func Definition() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string", MinLength: new(int64(1))}
	replicas := apiextensionsv1.JSONSchemaProps{Type: "integer", Minimum: new(float64(0)), Default: &apiextensionsv1.JSON{Raw: []byte("1")}}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "sites.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: GroupVersion.Group,
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "sites", Singular: "site", Kind: "Site", ListKind: "SiteList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: GroupVersion.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Required: []string{"spec"},
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"spec": {
							Type: "object", Required: []string{"page"},
							Properties: map[string]apiextensionsv1.JSONSchemaProps{"page": text, "replicas": replicas},
						},
						"status": {Type: "object", XPreserveUnknownFields: new(true)},
					},
				}},
			}},
		},
	}
}
