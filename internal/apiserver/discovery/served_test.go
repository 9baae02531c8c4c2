package discovery

import (
	"context"
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
)

func definition(name, group, kind string, established apiextensionsv1.ConditionStatus) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Group: group, Scope: apiextensionsv1.NamespaceScoped},
		Status: apiextensionsv1.CustomResourceDefinitionStatus{
			AcceptedNames: apiextensionsv1.CustomResourceDefinitionNames{Plural: "found", Kind: kind},
			Conditions:    []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: established}},
		},
	}
}

// A definition that is not in the cache yet is read before its kind counts as not served.
func TestServedAheadOfTheCache(t *testing.T) {
	stored := map[string]*apiextensionsv1.CustomResourceDefinition{
		"widgets.example.com": definition("widgets.example.com", "example.com", "Widget", apiextensionsv1.ConditionTrue),
		"gadgets.example.com": definition("gadgets.example.com", "example.com", "Gadget", apiextensionsv1.ConditionFalse),
		"others.example.com":  definition("others.example.com", "example.com", "Something", apiextensionsv1.ConditionTrue),
	}
	cached := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := cached.Add(definition("octopi.example.com", "example.com", "Octopus", apiextensionsv1.ConditionTrue)); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		kind   schema.GroupKind
		served bool
		reads  int
	}{
		"cached":                    {schema.GroupKind{Group: "example.com", Kind: "Octopus"}, true, 0},
		"built in":                  {schema.GroupKind{Kind: "Pod"}, true, 0},
		"not cached yet":            {schema.GroupKind{Group: "example.com", Kind: "Widget"}, true, 1},
		"not established":           {schema.GroupKind{Group: "example.com", Kind: "Gadget"}, false, 1},
		"the plural of another":     {schema.GroupKind{Group: "example.com", Kind: "Other"}, false, 1},
		"not there":                 {schema.GroupKind{Group: "example.com", Kind: "Nothing"}, false, 1},
		"of this minor":             {schema.GroupKind{Group: "resource.k8s.io", Kind: "ResourceClaim"}, true, 0},
		"of a later minor":          {schema.GroupKind{Group: "certificates.k8s.io", Kind: "PodCertificateRequest"}, false, 1},
		"no group of a definition":  {schema.GroupKind{Group: "apps", Kind: "Widget"}, false, 0},
		"the core group":            {schema.GroupKind{Kind: "Widget"}, false, 0},
		"no kind, so nothing to be": {schema.GroupKind{Group: "example.com"}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			reads := 0
			s := NewServed(36, func() cache.Store { return cached }, func(_ context.Context, name string) (*apiextensionsv1.CustomResourceDefinition, error) {
				reads++
				if d := stored[name]; d != nil {
					return d, nil
				}
				return nil, errors.New("not found")
			}, func(schema.GroupKind) (ownerreferences.ServedResource, bool) {
				return ownerreferences.ServedResource{}, false
			})
			resource, served := s.ResourceOf(test.kind)
			if reads > 0 {
				t.Errorf("%d reads before it is to be read", reads)
			}
			if !served {
				resource, served = s.ReadResourceOf(t.Context(), test.kind)
			}
			if served != test.served || reads != test.reads {
				t.Errorf("served: %t with %d reads, want %t with %d", served, reads, test.served, test.reads)
			}
			if served && (resource.Resource == "" || !resource.Namespaced) {
				t.Errorf("served at %+v", resource)
			}
		})
	}
}
