package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"
)

// testNow is when the tests happen.
func testNow() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// rowFor finds a row by the plural name of its resource.
func rowFor(t *testing.T, resource string) Kind {
	t.Helper()
	for _, k := range Table() {
		if k.Resource == resource {
			return k
		}
	}
	t.Fatalf("the table has no row for %q", resource)
	return Kind{}
}

// requestContext is the context of a request in the namespace that the kind is looked for in.
func requestContext(k Kind) context.Context {
	if k.Namespaced {
		return genericrequest.WithNamespace(genericrequest.NewContext(), metav1.NamespaceDefault)
	}
	return genericrequest.WithNamespace(genericrequest.NewContext(), metav1.NamespaceNone)
}

// decode reads an object as the server reads the body of a request: strictly, with defaults.
func decode(t *testing.T, s Schemes, text string) (Kind, runtime.Object) {
	t.Helper()
	json, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	obj, gvk, err := s.Codecs.UniversalDecoder(rowVersions()...).Decode(json, nil, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, k := range Table() {
		if k.GVK() == *gvk {
			return k, obj
		}
	}
	t.Fatalf("the table has no row for %v", gvk)
	return Kind{}, nil
}

func rowVersions() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, k := range Table() {
		if !slices.Contains(versions, k.GroupVersion) {
			versions = append(versions, k.GroupVersion)
		}
	}
	return versions
}

// encode writes an object as YAML, without what differs from run to run.
func encode(t *testing.T, k Kind, obj runtime.Object) string {
	t.Helper()
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(k.GVK())
	text, err := yaml.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documents splits a file of several objects.
func documents(text string) []string {
	var docs []string
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		if strings.TrimSpace(doc) != "" {
			docs = append(docs, doc)
		}
	}
	return docs
}

// stored makes an object one that exists.
func stored(obj runtime.Object) {
	m := metaOf(obj)
	if m.GetUID() == "" {
		m.SetUID("uid")
	}
	if m.GetResourceVersion() == "" {
		m.SetResourceVersion("7")
	}
	if created := m.GetCreationTimestamp(); created.IsZero() {
		m.SetCreationTimestamp(metav1.NewTime(testNow().Add(-5 * time.Minute)))
	}
	if m.GetGeneration() == 0 {
		m.SetGeneration(1)
	}
}

// newborn is the system's part of an object that is being created.
func newborn(obj runtime.Object) {
	m := metaOf(obj)
	m.SetUID(types.UID("uid-of-" + m.GetName()))
	m.SetCreationTimestamp(metav1.NewTime(testNow()))
}

// complaints are the single errors of an API error.
func complaints(err error) string {
	if err == nil {
		return "ok\n"
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return err.Error() + "\n"
	}
	var lines strings.Builder
	for _, cause := range status.Status().Details.Causes {
		fmt.Fprintf(&lines, "%s: %s\n", cause.Field, cause.Message)
	}
	return lines.String()
}
