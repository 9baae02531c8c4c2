package builtin

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

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// testNow is the clock of the tests.
func testNow() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

// eachResource runs a test for every resource.
func eachResource(t *testing.T, test func(t *testing.T, resource registry.Resource)) {
	t.Helper()
	for _, resource := range Resources() {
		t.Run(resource.GroupResource().String(), func(t *testing.T) { test(t, resource) })
	}
}

// metaOf returns the metadata of an object.
func metaOf(obj runtime.Object) metav1.Object { return obj.(metav1.Object) }

// rowFor finds a row by the plural name of its resource.
func rowFor(t *testing.T, plural string) registry.Resource {
	t.Helper()
	for _, resource := range Resources() {
		if resource.Plural == plural {
			return resource
		}
	}
	t.Fatalf("the table has no row for %q", plural)
	return registry.Resource{}
}

// requestContext returns the context of a request for an object of a resource.
func requestContext(resource registry.Resource) context.Context {
	if resource.Namespaced {
		return genericrequest.WithNamespace(genericrequest.NewContext(), metav1.NamespaceDefault)
	}
	return genericrequest.WithNamespace(genericrequest.NewContext(), metav1.NamespaceNone)
}

// decode reads an object as the server reads the body of a request: strictly, with defaults.
func decode(t *testing.T, s registry.Schemes, text string) (registry.Resource, runtime.Object) {
	t.Helper()
	json, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	obj, gvk, err := s.Codecs.UniversalDecoder(rowVersions()...).Decode(json, nil, nil)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	for _, resource := range Resources() {
		if resource.GVK() == *gvk {
			return resource, obj
		}
	}
	t.Fatalf("the table has no row for %v", gvk)
	return registry.Resource{}, nil
}

func rowVersions() []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, resource := range Resources() {
		if !slices.Contains(versions, resource.GroupVersion) {
			versions = append(versions, resource.GroupVersion)
		}
	}
	return versions
}

// encode returns an object as YAML, without the values that differ from run to run.
func encode(t *testing.T, resource registry.Resource, obj runtime.Object) string {
	t.Helper()
	obj = obj.DeepCopyObject()
	obj.GetObjectKind().SetGroupVersionKind(resource.GVK())
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

// stored sets the metadata that every stored object has.
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

// newborn sets the values that rest.Create sets in a new object before it calls the strategy.
func newborn(obj runtime.Object) {
	m := metaOf(obj)
	m.SetUID(types.UID("uid-of-" + m.GetName()))
	m.SetCreationTimestamp(metav1.NewTime(testNow()))
}

// causes returns the individual errors in an API error.
func causes(err error) string {
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
