package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// Only users with the right to delete all objects of a kind may resume its deletions, and no page of another origin.
func TestResumeNeedsTheRightToDeleteAllObjects(t *testing.T) {
	reviews := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var review authorizationv1.SelfSubjectAccessReview
		_ = json.NewDecoder(r.Body).Decode(&review)
		about := review.Spec.ResourceAttributes
		if about == nil {
			_ = json.NewEncoder(w).Encode(authenticationv1.SelfSubjectReview{})
			return
		}
		isHers := r.Header.Get("Authorization") == "Bearer hers" && about.Group == "apps" && about.Resource == "replicasets" || about.Resource == "configmaps"
		review.Status.Allowed = about.Verb == "deletecollection" && about.Namespace == "" && isHers
		_ = json.NewEncoder(w).Encode(review)
	}))
	defer reviews.Close()
	h := api.Handler(cluster{}, api.Delegated(&rest.Config{Host: reviews.URL}))
	for _, c := range []struct {
		name, method, token, kind, site string
		code                            int
	}{
		{"with the right", "POST", "hers", "ReplicaSet.apps", "", http.StatusOK},
		{"from the page", "POST", "hers", "ReplicaSet.apps", "same-origin", http.StatusOK},
		{"from a page elsewhere", "POST", "hers", "ReplicaSet.apps", "cross-site", http.StatusForbidden},
		{"without the right", "POST", "his", "ReplicaSet.apps", "", http.StatusForbidden},
		{"another kind", "POST", "hers", "Secret", "", http.StatusForbidden},
		{"a kind that is not paused", "POST", "hers", "ConfigMap", "", http.StatusNotFound},
		{"no kind that is collected", "POST", "hers", "Nothing", "", http.StatusBadRequest},
		{"of nobody", "POST", "", "ReplicaSet.apps", "", http.StatusUnauthorized},
		{"by a look", "GET", "hers", "ReplicaSet.apps", "", http.StatusMethodNotAllowed},
	} {
		r := httptest.NewRequest(c.method, api.Resume+"?kind="+c.kind, http.NoBody)
		if c.token != "" {
			r.Header.Set("Authorization", "Bearer "+c.token)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.code {
			t.Errorf("%s: %d %s, want %d", c.name, w.Code, w.Body, c.code)
		}
	}
}
