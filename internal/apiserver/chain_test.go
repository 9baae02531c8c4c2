package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

// Deletions and patches of this process itself are authenticated, authorized and logged like all others,
// with fewer filters.
func TestOwnRequests(t *testing.T) {
	log := &transcript.Transcript{}
	s := startServer(t, func(c *apiserver.Config) { c.Audit = log })
	path, _ := s.secret(t, "default", "own")
	stranger := rest.CopyConfig(s.config)
	stranger.BearerToken = "nobody's"
	nobody, err := newClient(stranger)
	if err != nil {
		t.Fatal(err)
	}
	ann, err := newClient(s.acting("ann"))
	if err != nil {
		t.Fatal(err)
	}
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]string{"a": "b"}}}
	for _, c := range []struct {
		by   *client
		verb string
		want int
	}{
		{nobody, http.MethodDelete, http.StatusUnauthorized},
		{nobody, http.MethodPatch, http.StatusUnauthorized},
		{ann, http.MethodDelete, http.StatusForbidden},
		{ann, http.MethodPatch, http.StatusForbidden},
		{s.client(t), http.MethodPatch, http.StatusOK},
		{s.client(t), http.MethodDelete, http.StatusOK},
		{s.client(t), http.MethodDelete, http.StatusNotFound},
	} {
		var body any
		if c.verb == http.MethodPatch {
			body = patch
		}
		if code, _, _ := c.by.exchange(c.verb, path, "application/merge-patch+json", body); code != c.want {
			t.Errorf("%s: %d, want %d", c.verb, code, c.want)
		}
	}
	eventually.Agrees(t, func() string {
		got := map[string]int{}
		for line := range strings.Lines(log.String()) {
			var e auditv1.Event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			if e.RequestURI == path && (e.Verb == "delete" || e.Verb == "patch") {
				got[e.Verb]++
			}
		}
		if got["delete"] != 4 || got["patch"] != 3 {
			return fmt.Sprint("lines of the log: ", got)
		}
		return ""
	})
}
