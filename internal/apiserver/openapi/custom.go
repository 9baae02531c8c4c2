package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apiextensionshelpers "k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// served returns the established definitions, by name.
func served(definitions cache.Store) []*apiextensionsv1.CustomResourceDefinition {
	var served []*apiextensionsv1.CustomResourceDefinition
	for _, obj := range definitions.List() {
		if crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition); ok && apiextensionshelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
			served = append(served, crd)
		}
	}
	slices.SortFunc(served, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) })
	return served
}

// customV3 serves OpenAPI v3. It keeps the documents of the built-in kinds after the first request for
// them, and builds the documents of custom resources for each request. A client requests each version of a
// document once, because the list of documents contains their hashes, while there may be hundreds of
// definitions with a megabyte of documents.
type customV3 struct {
	builtin     *handler3.OpenAPIService
	paths       map[string]bool // of the documents of built-in kinds, such as apis/apps/v1
	version     string          // of the server
	definitions cache.Store     // of CustomResourceDefinitions
}

// serveIndex serves the list of documents.
func (s *customV3) serveIndex(w http.ResponseWriter, r *http.Request) {
	plain := r.Clone(r.Context())
	plain.Method, plain.Header = http.MethodGet, http.Header{}
	builtin := &kept{header: http.Header{}, status: http.StatusOK}
	s.builtin.HandleDiscovery(builtin, plain)
	index := handler3.OpenAPIV3Discovery{}
	if err := json.Unmarshal(builtin.body.Bytes(), &index); err != nil || builtin.status != http.StatusOK {
		http.Error(w, "the built-in kinds cannot be described", http.StatusInternalServerError)
		return
	}
	for path, definitions := range s.byPath() {
		index.Paths[path] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: s.url(path, definitions)}
	}
	body, err := json.Marshal(index)
	if err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Etag", strconv.Quote(fmt.Sprintf("%X", sha256.Sum256(body))))
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, v3Path, time.Time{}, bytes.NewReader(body))
}

// serveDocument serves the document of a group version.
func (s *customV3) serveDocument(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, v3Path+"/")
	definitions := s.byPath()[path]
	if len(definitions) == 0 {
		s.builtin.HandleGroupVersion(w, r)
		return
	}
	current := s.url(path, definitions)
	if hash := r.URL.Query().Get("hash"); hash != "" {
		if hash != s.hash(definitions) {
			http.Redirect(w, r, current, http.StatusMovedPermanently)
			return
		}
		w.Header().Set("Cache-Control", "public, immutable, max-age=31536000")
	}
	version, _ := versionOfPath(path)
	document, err := describe(definitions, version)
	if err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	once := handler3.NewOpenAPIService()
	once.UpdateGroupVersion(path, document)
	plain := r.Clone(r.Context())
	plain.URL.RawQuery = "" // the service knows a different hash
	once.HandleGroupVersion(w, plain)
}

// byPath returns the definitions that each document describes.
func (s *customV3) byPath() map[string][]*apiextensionsv1.CustomResourceDefinition {
	all := make(map[string][]*apiextensionsv1.CustomResourceDefinition)
	for _, definition := range served(s.definitions) {
		for _, v := range definition.Spec.Versions {
			path := "apis/" + definition.Spec.Group + "/" + v.Name
			if v.Served && !s.paths[path] {
				all[path] = append(all[path], definition)
			}
		}
	}
	return all
}

// describe builds the document of a group version.
func describe(definitions []*apiextensionsv1.CustomResourceDefinition, version schema.GroupVersion) (*spec3.OpenAPI, error) {
	var parts []*spec3.OpenAPI
	for _, definition := range definitions {
		part, err := builder.BuildOpenAPIV3(definition, version.Version, builder.Options{IncludeSelectableFields: true})
		if err != nil {
			return nil, fmt.Errorf("describe version %s of %s: %w", version.Version, definition.Name, err)
		}
		parts = append(parts, part)
	}
	document, err := builder.MergeSpecsV3(parts...)
	if err != nil {
		return nil, fmt.Errorf("merge the descriptions of %s: %w", version, err)
	}
	return document, nil
}

// url returns the path of a document, with its hash.
func (s *customV3) url(path string, definitions []*apiextensionsv1.CustomResourceDefinition) string {
	return v3Path + "/" + path + "?hash=" + url.QueryEscape(s.hash(definitions))
}

// hash returns a hash that changes with the document of the definitions.
func (s *customV3) hash(definitions []*apiextensionsv1.CustomResourceDefinition) string {
	var about strings.Builder
	about.WriteString(s.version)
	for _, definition := range definitions {
		fmt.Fprintf(&about, "\n%s %d %v", definition.UID, definition.Generation, definition.Status.AcceptedNames)
	}
	return fmt.Sprintf("%X", sha256.Sum256([]byte(about.String())))
}

// kept is a ResponseWriter that keeps the response.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (k *kept) Header() http.Header { return k.header }

// WriteHeader implements http.ResponseWriter.
func (k *kept) WriteHeader(status int) { k.status = status }

// Write implements http.ResponseWriter.
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }
