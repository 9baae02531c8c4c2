package storage

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/request"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	metadataInProtobuf = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	metadataInJSON     = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// listsMetadata reports whether a request is marked as a list of metadata only.
func listsMetadata(verb, target, accept string) (is bool) {
	r := httptest.NewRequest(http.MethodGet, target, http.NoBody)
	r.Header.Set("Accept", accept)
	r = r.WithContext(request.WithRequestInfo(r.Context(), &request.RequestInfo{IsResourceRequest: true, Verb: verb}))
	WithMetadataLists(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		is = r.Context().Value(metadataOnly) != nil
	}), scheme.Codecs).ServeHTTP(httptest.NewRecorder(), r)
	return is
}

// Only lists with a response that is certainly metadata skip the decoding of other fields.
func TestOnlyListsOfMetadataSkipOtherFields(t *testing.T) {
	const path = "/api/v1/pods"
	for _, test := range []struct {
		what, verb, target, accept string
		want                       bool
	}{
		{"of the metadata client", "list", path, metadataInProtobuf + "," + metadataInJSON + ",application/json", true},
		{"JSON", "list", path, metadataInJSON, true},
		{"by labels", "list", path + "?labelSelector=app%3Dweb", metadataInJSON, true},
		{"by fields", "list", path + "?fieldSelector=spec.nodeName%3Dn1", metadataInJSON, false},
		{"a watch", "watch", path, metadataInJSON, false},
		{"whole objects", "list", path, "application/json", false},
		{"nothing said", "list", path, "", false},
		{"a table, or else metadata", "list", path, "application/json;as=Table;g=meta.k8s.io;v=v1," + metadataInJSON, false},
		{"whole objects, or else metadata", "list", path, "application/json," + metadataInJSON, false},
		{"metadata, but rather whole objects", "list", path, metadataInJSON + ";q=0.5,application/yaml", false},
		{"metadata in a type that nobody has, or whole objects", "list", path, strings.Replace(metadataInJSON, "json", "toml", 1) + ",application/json", false},
		{"metadata of one", "list", path, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", false},
	} {
		if got := listsMetadata(test.verb, test.target, test.accept); got != test.want {
			t.Errorf("%s: %v", test.what, got)
		}
	}
}

// A list of metadata has the same metadata as a list of objects, does not decode other fields, and begins no cache.
func TestListOfMetadataDecodesNothingElse(t *testing.T) {
	s := open(t)
	maps := s.configMapStorage(t)
	must(t, maps.create("team", "a"))
	must(t, maps.change("team", "a", func(o runtime.Object) {
		m := o.(*corev1.ConfigMap)
		m.Data, m.Labels, m.Finalizers = map[string]string{"key": "value"}, map[string]string{"app": "web"}, []string{"example.com/hold"}
	}))
	maps.Interface.(*onDemand).listed.n.Store(0)
	ctxs := map[bool]*http.Request{}
	for _, only := range []bool{false, true} {
		accept := "application/json"
		if only {
			accept = metadataInJSON
		}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/configmaps", http.NoBody)
		r.Header.Set("Accept", accept)
		r = r.WithContext(request.WithRequestInfo(t.Context(), &request.RequestInfo{Verb: "list"}))
		WithMetadataLists(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ctxs[only] = r }), scheme.Codecs).ServeHTTP(nil, r)
	}
	var whole, metadata corev1.ConfigMapList
	for only, into := range map[bool]*corev1.ConfigMapList{false: &whole, true: &metadata} {
		must(t, maps.GetList(ctxs[only].Context(), maps.prefix, apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything}, into))
	}
	if len(whole.Items) != 1 || len(metadata.Items) != 1 || whole.Items[0].Data["key"] != "value" || metadata.Items[0].Data != nil {
		t.Fatalf("%v\n%v", whole.Items, metadata.Items)
	}
	if diff := cmp.Diff(whole.Items[0].ObjectMeta, metadata.Items[0].ObjectMeta); diff != "" || len(metadata.Items[0].Finalizers) != 1 {
		t.Error(diff)
	}
	if n := maps.Interface.(*onDemand).listed.n.Load(); n != 1 {
		t.Errorf("%d objects count as read, want that of the other list", n)
	}
}
