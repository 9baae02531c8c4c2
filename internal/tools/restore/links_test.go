package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// claim returns a deleted claim with a status, a volume, and an owner.
func claim() undo.Kept {
	return undo.Kept{Resource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}, Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": map[string]any{"volumeName": "pv"}, "status": map[string]any{"phase": "Bound"},
		"metadata": map[string]any{"namespace": "shop", "name": "data", "uid": "old", "ownerReferences": []any{
			map[string]any{"apiVersion": "v1", "kind": "Secret", "name": "s-0", "uid": "old-0"},
		}},
	}}}
}

// Ctrl-C completes the second write under way, whose answer counts, and begins no other.
func TestInterruptedSecondWriteIsReported(t *testing.T) {
	stored := `{"apiVersion": "v1", "kind": "Any", "metadata": {"name": "pv", "uid": "new", "resourceVersion": "1"},
		"spec": {"claimRef": {"namespace": "shop", "name": "data", "uid": "old"}}}`
	found := undo.Cluster{
		Kinds: map[schema.GroupKind]undo.Kind{
			{Kind: "Namespace"}:             {Resource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}},
			{Kind: "Secret"}:                {Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespaced: true},
			{Kind: "PersistentVolumeClaim"}: {Resource: claim().Resource, Namespaced: true},
		},
		Existing: map[undo.Place]undo.Existing{{Kind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"}: {UID: "shop"}},
	}
	for name, write := range map[string]func(context.Context, *Run, *undo.Step) error{
		"owners":  func(ctx context.Context, r *Run, s *undo.Step) error { return r.linkOwners(ctx, s) },
		"volume":  func(ctx context.Context, r *Run, _ *undo.Step) error { return r.linkVolume(ctx, "pv") },
		"status":  func(ctx context.Context, r *Run, s *undo.Step) error { return r.writeStatus(ctx, s, r.objects(s)) },
		"account": func(ctx context.Context, r *Run, s *undo.Step) error { return r.restoreAccount(ctx, s, r.objects(s)) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			writes := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet {
					_, _ = io.WriteString(w, stored)
					return
				}
				writes++
				interrupt()
				w.WriteHeader(http.StatusForbidden)
				_ = json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonForbidden, Message: "no", Code: http.StatusForbidden})
			}))
			t.Cleanup(server.Close)
			at, err := NewServer(&rest.Config{Host: server.URL}, nil)
			if err != nil {
				t.Fatal(err)
			}
			plan := undo.New(append(secrets(1), claim()), found, undo.Options{})
			run := &Run{Server: at, plan: plan}
			var step *undo.Step
			for _, s := range plan.Steps {
				if plan.Made(s, "new-0", nil); s.Place().Name == "data" {
					plan.Made(s, "new", nil)
					step = s
				}
			}
			for range 2 {
				if err := write(ctx, run, step); !errors.Is(err, context.Canceled) {
					t.Errorf("the error is %v", err)
				}
			}
			if writes != 1 {
				t.Errorf("%d writes, want 1", writes)
			}
			if said := fmt.Sprint(step.Why, step.Notes); !strings.Contains(said, ": no") {
				t.Errorf("nothing says that the server refuses the write: %s", said)
			}
		})
	}
}
