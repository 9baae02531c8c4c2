package reader

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// The controller of a finalizer may be a pod without a Deployment: for one that is not built in, the neighborhood has all
// pods, or says that it does not. Without such a finalizer, no pods are listed.
func TestNeighborhoodHasThePodsThatMayServeAFinalizer(t *testing.T) {
	for name, test := range map[string]struct {
		finalizer, forbids string
		pods               int
		isUnread           bool
	}{
		"foreign":            {"acme.io/held", "", 2, false},
		"foreign, forbidden": {"acme.io/held", "/api/v1/pods", 0, true},
		"built in":           {"kubernetes", "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, config := newServer(t)
			s.forbids = test.forbids
			graph := ownership.New()
			var uids []ownership.UID
			for n := range fewObjects + 1 { // which are listed
				held := fmt.Sprintf("held-%d", n)
				s.add("/api/v1/configmaps", "shop", held, "", test.finalizer)
				o := ownership.Object{
					Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: held, UID: ownership.UID(held),
					Phase: ownership.Terminating, Finalizers: []string{test.finalizer},
				}
				graph.Observe(o)
				uids = append(uids, o.UID)
			}
			known := Known{View: func(read func(*ownership.Graph)) { read(graph) }}
			for _, r := range served() {
				known.Resources = append(known.Resources, r)
			}
			inv, err := Neighborhood(t.Context(), config, known, uids, NeighborhoodOptions{
				IsBuiltIn: func(finalizer string) bool { return finalizer == "kubernetes" },
			})
			if err != nil {
				t.Fatal(err)
			}
			pods := schema.GroupResource{Resource: "pods"}
			isUnread := slices.ContainsFunc(inv.Unread, func(u inventory.Unread) bool { return u.Resource.GroupResource() == pods })
			if len(inv.Pods) != test.pods || isUnread != test.isUnread {
				t.Errorf("%d pods, unread: %v", len(inv.Pods), inv.Unread)
			}
		})
	}
}

// An object that is read alone is gone only after a 404 about it. After a 404 about the path it stays as the graph has it, and its
// resource counts as unread.
func TestObjectIsGoneOnlyAfterA404AboutIt(t *testing.T) {
	for name, isGone := range map[string]bool{"about the object": true, "about the path": false} {
		t.Run(name, func(t *testing.T) {
			s, _ := newServer(t)
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case !strings.HasSuffix(r.URL.Path, "/configmaps/a"):
					s.ServeHTTP(w, r)
				case isGone:
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(http.StatusNotFound)
					_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "details": {"name": "a", "kind": "configmaps"}}`)
				default:
					http.NotFound(w, r)
				}
			}))
			t.Cleanup(front.Close)
			graph := ownership.New()
			graph.Observe(ownership.Object{Kind: ownership.Kind{Kind: "ConfigMap"}, Namespace: "shop", Name: "a", UID: "a", Phase: ownership.Terminating})
			known := Known{View: func(read func(*ownership.Graph)) { read(graph) }}
			for _, r := range served() {
				known.Resources = append(known.Resources, r)
			}
			inv, err := Neighborhood(t.Context(), &rest.Config{Host: front.URL}, known, []ownership.UID{"a"}, NeighborhoodOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if isThere := inv.Object("a") != nil; isThere == isGone || (len(inv.Unread) == 0) != isGone {
				t.Errorf("it is there: %t, unread: %v", isThere, inv.Unread)
			}
		})
	}
}
