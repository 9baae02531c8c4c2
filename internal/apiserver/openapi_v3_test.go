package apiserver_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Each group version has a document. In it, types of all group versions have only the names of this group
// version and of core/v1.
func TestSchemasOfAGroupVersion(t *testing.T) {
	s := sharedServer(t)
	c := s.client(t)
	for path, versions := range map[string][]string{
		"api/v1":                  {"/v1"},
		"apis/apps/v1":            {"/v1", "apps/v1"},
		"apis/extensions/v1beta1": {"/v1", "extensions/v1beta1"},
	} {
		response, err := c.http.Get(c.base + "/openapi/v3/" + path)
		if err != nil {
			t.Fatal(err)
		}
		var document struct {
			Components struct {
				Schemas map[string]struct {
					Names []struct{ Group, Version string } `json:"x-kubernetes-group-version-kind"`
				}
			}
		}
		err = json.NewDecoder(response.Body).Decode(&document)
		response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range document.Components.Schemas["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"].Names {
			got = append(got, name.Group+"/"+name.Version)
		}
		slices.Sort(got)
		if !slices.Equal(got, versions) {
			t.Errorf("%s names DeleteOptions of %v, want %v", path, got, versions)
		}
	}
}

// Many clients request the documents as soon as a server is ready. The race detector checks their shared
// data.
func TestSchemasAreAskedForAtOnce(t *testing.T) {
	c := startServer(t, nil).client(t)
	var asking sync.WaitGroup
	for _, path := range []string{"v3", "v3/api/v1", "v3/apis/apps/v1", "v3/apis/batch/v1", "v3/apis/extensions/v1beta1", "v2", "v3"} {
		asking.Go(func() {
			response, err := c.http.Get(c.base + "/openapi/" + path)
			if err != nil {
				t.Error(err)
				return
			}
			defer response.Body.Close()
			if n, err := io.Copy(io.Discard, response.Body); err != nil || n < 1000 || response.StatusCode != http.StatusOK {
				t.Errorf("%s: %s, %d bytes, %v", path, response.Status, n, err)
			}
		})
	}
	asking.Wait()
}

// Custom resources are described in OpenAPI v3 by their current definitions. When a definition changes, the
// list of documents contains another hash, and the old URL serves the new document.
func TestCustomResourcesAreDescribed(t *testing.T) {
	s := sharedServer(t)
	c := s.client(t)
	name, _ := s.things(t)
	_, group, _ := strings.Cut(name, ".")
	eventually.Agrees(t, func() string {
		response, err := c.http.Get(c.base + "/openapi/v3/apis/" + group + "/v1")
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		document, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusOK || !bytes.Contains(document, []byte(`"kind":"Thing"`)) {
			return fmt.Sprintf("%s: %.200s", response.Status, document)
		}
		return ""
	})
	url := s.documentOf(t, "apis/"+group+"/v1")
	before := s.read(t, url)
	if again := s.documentOf(t, "apis/"+group+"/v1"); again != url || !strings.Contains(before, `"kind":"Thing"`) {
		t.Errorf("the document is at %s, and then at %s: %.200s", url, again, before)
	}
	fresh := map[string]any{"type": "object", "description": "a fresh description"}
	replaced := []any{map[string]any{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": fresh}}
	if _, err := s.definitions(t).patch(name, types.JSONPatchType, replaced); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		if s.documentOf(t, "apis/"+group+"/v1") == url {
			return "the document has the same hash"
		}
		return ""
	})
	if after := s.read(t, url); !strings.Contains(after, "a fresh description") {
		t.Errorf("the old hash leads to %.500s", after)
	}
}

// documentOf returns the URL of a document from the list of documents.
func (s *server) documentOf(t *testing.T, path string) string {
	t.Helper()
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(s.read(t, "/openapi/v3")), &index); err != nil {
		t.Fatal(err)
	}
	if _, ok := index.Paths["apis/apps/v1"]; !ok {
		t.Error("the built-in kinds are not in the list")
	}
	return index.Paths[path].ServerRelativeURL
}

// read returns the response at a URL of the server.
func (s *server) read(t *testing.T, url string) string {
	t.Helper()
	c := s.client(t)
	response, err := c.http.Get(c.base + url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	return string(body)
}
