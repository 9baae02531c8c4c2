package restore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fakediscovery "k8s.io/client-go/discovery/fake"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// serverOf returns a server that serves Secrets and namespaces and has no objects.
func serverOf(t *testing.T) (*Server, *dynamicfake.FakeDynamicClient, *metadatafake.FakeMetadataClient) {
	t.Helper()
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	discovery := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{{
		GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "secrets", Kind: "Secret", Namespaced: true}, {Name: "namespaces", Kind: "Namespace"},
		},
	}}}}
	whole, metadata := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme()), metadatafake.NewSimpleMetadataClient(scheme)
	return &Server{discovery: discovery, dynamic: whole, metadata: metadata}, whole, metadata
}

// secrets returns deleted Secrets.
func secrets(n int) []undo.Kept {
	kept := make([]undo.Kept, n)
	for i := range kept {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"namespace": "shop", "name": fmt.Sprintf("s-%d", i), "uid": fmt.Sprintf("old-%d", i)},
		}}
		kept[i] = undo.Kept{Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Object: o}
	}
	return kept
}

// The report and the journal of an interrupted undo have the object whose creation was under way.
func TestR29_InterruptedCreationIsReported(t *testing.T) {
	server, whole, metadata := serverOf(t)
	metadata.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "shop", UID: "shop"}}, nil
	})
	server.journal = opened(t, filepath.Join(t.TempDir(), "undone.jsonl"))
	if err := server.journal.Open(); err != nil {
		t.Fatal(err)
	}
	defer server.journal.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	whole.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		cancel()
		made := a.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured).DeepCopy()
		made.SetUID("new-0")
		return true, made, nil
	})
	kept := secrets(1)
	found, err := server.Survey(ctx, kept)
	if err != nil {
		t.Fatal(err)
	}
	plan := undo.New(kept, found, undo.Options{})
	run := Run{Server: server, Kinds: found.Kinds}
	if err := run.Run(ctx, plan); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	report := plan.Report()
	if report.Missing() != 0 || report.Objects[0].Outcome != undo.Made || report.Objects[0].UID != "new-0" {
		t.Errorf("%s", report)
	}
	if from := server.journal.From("new-0"); from != "old-0" {
		t.Errorf("the journal has %q", from)
	}
}

// R29: objects that the user may not read are not gone.
func TestR29_ForbiddenIsNotGone(t *testing.T) {
	const why = "you may not get secrets"
	for _, n := range []int{1, fewGets + 1, 10 * fewGets} {
		server, _, metadata := serverOf(t)
		metadata.PrependReactor("*", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", errors.New("no"))
		})
		kept := secrets(n)
		found, err := server.Survey(t.Context(), kept)
		if err != nil {
			t.Fatal(err)
		}
		for i := range kept {
			if got := found.Unread[kept[i].Place()]; got != why {
				t.Errorf("%d objects: %s is unread because %q, want %q", n, kept[i].Place(), got, why)
			}
		}
		if got := found.Unread[undo.Place{Kind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"}]; got != "you may not get namespaces" {
			t.Errorf("the namespace is unread because %q", got)
		}
		if missing := undo.New(kept, found, undo.Options{}).Report().Missing(); missing != 0 {
			t.Errorf("the plan gives up %d of %d objects", missing, n)
		}
	}
}

// Ctrl-C ends the discovery of kinds.
func TestInterruptedDiscoveryEnds(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests++ }))
	t.Cleanup(server.Close)
	s, err := NewServer(&rest.Config{Host: server.URL}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kinds(ctx); !errors.Is(err, context.Canceled) || requests > 0 {
		t.Errorf("%v, after %d requests", err, requests)
	}
}
