package protected

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Only a 404 for the object itself proves that it is gone; after any other answer, it counts as
// existing.
func TestR28_WhatCannotBeLookedUpIsThere(t *testing.T) {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion, rbacv1.SchemeGroupVersion})
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	mapper.Add(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"), meta.RESTScopeRoot)
	scheme := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	object := func(apiVersion, kind, namespace, name string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}, ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	client := metadatafake.NewSimpleMetadataClient(scheme, object("v1", "ConfigMap", "shop", "here"), object("rbac.authorization.k8s.io/v1", "ClusterRole", "", "role"))
	client.PrependReactor("get", "configmaps", func(a clienttesting.Action) (bool, runtime.Object, error) {
		switch get, _ := a.(clienttesting.GetAction); get.GetName() {
		case "broken":
			return true, nil, errors.New("connection refused")
		case "path":
			return true, nil, apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{Resource: "configmaps"}, "path", "page not found", 0, true)
		}
		return false, nil, nil
	})
	carried := map[string]bool{"example.com/carried": true}
	lookup := Lookup{Mapper: mapper, Metadata: client, Carried: func(_ context.Context, finalizer string) (bool, error) {
		if finalizer == "example.com/unknown" {
			return false, errors.New("not all was read")
		}
		return carried[finalizer], nil
	}}
	configMap := func(namespace, name string) protection.Outlived {
		return protection.Outlived{APIVersion: "v1", Kind: "ConfigMap", Namespace: namespace, Name: name}
	}
	for name, test := range map[string]struct {
		other         protection.Outlived
		left, unknown bool
	}{
		"there":                       {configMap("shop", "here"), true, false},
		"in the object's namespace":   {configMap("", "here"), true, false},
		"gone":                        {configMap("shop", "gone"), false, false},
		"in another namespace":        {configMap("billing", "here"), false, false},
		"cluster-scoped":              {protection.Outlived{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "role"}, true, false},
		"another version":             {protection.Outlived{APIVersion: "rbac.authorization.k8s.io/v1beta1", Kind: "ClusterRole", Name: "role"}, true, false},
		"cluster-scoped, gone":        {protection.Outlived{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: "none"}, false, false},
		"unreadable":                  {configMap("shop", "broken"), true, true},
		"404 for the path":            {configMap("shop", "path"), true, true},
		"kind that is not served":     {protection.Outlived{APIVersion: "example.com/v1", Kind: "Widget", Name: "a"}, true, true},
		"finalizer":                   {protection.Outlived{Finalizer: "example.com/carried"}, true, false},
		"finalizer of nobody":         {protection.Outlived{Finalizer: "example.com/none"}, false, false},
		"finalizer that is not known": {protection.Outlived{Finalizer: "example.com/unknown"}, true, true},
	} {
		left := lookup.Remaining(t.Context(), nil, inuse.Object{Namespace: "shop"}, protection.Protection{Outlives: []protection.Outlived{test.other}})
		if len(left) > 0 != test.left || test.left && (left[0].Unknown != "") != test.unknown {
			t.Errorf("%s: %#v", name, left)
		}
	}
	if left := (Lookup{}).Remaining(t.Context(), nil, inuse.Object{}, protection.Protection{Outlives: []protection.Outlived{{Finalizer: "example.com/none"}}}); len(left) != 1 || left[0].Unknown == "" {
		t.Errorf("who does not know all objects says %+v", left)
	}
	many := make([]protection.Outlived, protection.MaxOutlives)
	for i := range many {
		many[i] = configMap("shop", "here")
	}
	if left := lookup.Remaining(t.Context(), nil, inuse.Object{Namespace: "shop"}, protection.Protection{Outlives: many}); len(left) != protection.MaxNamed+1 {
		t.Errorf("%d were looked for, want no more than are named", len(left))
	}
}
