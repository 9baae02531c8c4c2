package crowd

import (
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// jsonType is the media type of documents, and aggregatedType that of aggregated discovery.
const (
	jsonType       = "application/json"
	aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

func contentType(document any) string {
	if _, ok := document.(*apidiscoveryv2.APIGroupDiscoveryList); ok {
		return aggregatedType
	}
	return jsonType
}

func verbs() metav1.Verbs {
	return metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
}

// discovery returns the document at a path, or nil for any other path.
func discovery(p *Population, path string, r *http.Request) any {
	isAggregated := strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList")
	switch {
	case path == "api" && isAggregated, path == "apis" && isAggregated:
		return aggregated(p, path == "api")
	case path == "api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "apis":
		return groups(p)
	case path == "api/v1":
		return resources(p, schema.GroupVersion{Version: "v1"})
	case strings.HasPrefix(path, "apis/") && strings.Count(path, "/") == 2:
		if gv, err := schema.ParseGroupVersion(strings.TrimPrefix(path, "apis/")); err == nil {
			return resources(p, gv)
		}
	}
	return nil
}

// versionsOf returns the version of the core group, or the versions of the other groups.
func versionsOf(p *Population, isCore bool) []schema.GroupVersion {
	var found []schema.GroupVersion
	for _, k := range p.Kinds {
		gv := k.GroupVersion()
		if (gv.Group == "") == isCore && (len(found) == 0 || found[len(found)-1] != gv) {
			found = append(found, gv) // kinds of a group are neighbours
		}
	}
	return found
}

func aggregated(p *Population, isCore bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}}
	for _, gv := range versionsOf(p, isCore) {
		version := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
		for _, k := range p.Kinds {
			if k.GroupVersion() != gv {
				continue
			}
			scope := apidiscoveryv2.ScopeCluster
			if k.Namespaced {
				scope = apidiscoveryv2.ScopeNamespace
			}
			version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{
				Resource: k.Resource, SingularResource: strings.ToLower(k.Kind), Scope: scope, Verbs: verbs(),
				ResponseKind: &metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: k.Kind},
			})
		}
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{version},
		})
	}
	return list
}

func groups(p *Population) *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
	for _, gv := range versionsOf(p, false) {
		version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return list
}

func resources(p *Population, gv schema.GroupVersion) any {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String()}
	for _, k := range p.Kinds {
		if k.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: k.Resource, SingularName: strings.ToLower(k.Kind), Namespaced: k.Namespaced, Kind: k.Kind, Verbs: verbs(),
			})
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	return list
}
