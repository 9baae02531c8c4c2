package api_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// reviewer is an API server with one user, with the right to list ConfigMaps. It records its requests.
func reviewer(t *testing.T, requests *[]string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*requests = append(*requests, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer hers" {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(metav1.Status{
				TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonUnauthorized, Code: http.StatusUnauthorized,
			})
			return
		}
		var review authorizationv1.SelfSubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		if about := review.Spec.ResourceAttributes; about != nil {
			review.Status.Allowed = about.Verb == "list" && about.Resource == "configmaps" && about.Namespace == "shop"
			_ = json.NewEncoder(w).Encode(review)
			return
		}
		_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{})
	}))
	t.Cleanup(server.Close)
	return server
}

// Requests to the API server use the caller's own token, not the collector's.
func TestRightsAreReviewedWithTheTokenOfTheCaller(t *testing.T) {
	var requests []string
	server := reviewer(t, &requests)
	access := api.Delegated(&rest.Config{Host: server.URL, BearerToken: "hers"}) // the server would accept the collector's token
	for name, header := range map[string]string{"no token": "", "an unknown one": "Bearer his", "a password": "Basic aGVyczpoZXJz", "an empty one": "Bearer "} {
		r := httptest.NewRequest(http.MethodGet, api.Status, http.NoBody)
		r.Header.Set("Authorization", header)
		if _, err := access(r); !errors.Is(err, api.ErrUnauthenticated) {
			t.Errorf("with %s: %v, want that the caller is not authenticated", name, err)
		}
	}
	requests = nil
	r := httptest.NewRequest(http.MethodGet, api.Status, http.NoBody)
	r.Header.Set("Authorization", "Bearer hers")
	caller, err := access(r)
	if err != nil {
		t.Fatal(err)
	}
	for namespace, want := range map[string]bool{"shop": true, "other": false, "": false} {
		if may, err := caller.MayList(t.Context(), schema.GroupResource{Resource: "configmaps"}, namespace); may != want || err != nil {
			t.Errorf("in %q: %v %v", namespace, may, err)
		}
	}
	if !slices.Equal(slices.Compact(slices.Sorted(slices.Values(requests))), []string{
		"POST /apis/authentication.k8s.io/v1/selfsubjectreviews", "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
	}) {
		t.Errorf("requests %v", requests)
	}
	if caller.Config.BearerToken != "hers" || caller.Config.Impersonate.UserName != "" {
		t.Errorf("what is read is read as %+v", caller.Config)
	}
	server.Close()
	if _, err := access(r); err == nil || errors.Is(err, api.ErrUnauthenticated) {
		t.Errorf("a server that is gone: %v, want an error that is not about the caller", err)
	}
}
