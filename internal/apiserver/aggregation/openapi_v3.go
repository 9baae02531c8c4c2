package aggregation

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/util/responsewriter"
	"k8s.io/kube-openapi/pkg/handler3"
)

// The OpenAPI v3 document of an aggregated group version is fetched from its server when a client requests
// it. Only its path is cached.
const (
	openAPITimeout  = 2 * time.Second
	openAPIInterval = checkInterval // between two requests for the path; a missing document may appear at any time
)

// openAPIPath is the path of a server's document for a group version; url is empty without a document.
type openAPIPath struct {
	url   string
	asked time.Time
}

// serveOpenAPI serves the path below /openapi/v3. next serves the documents of this server.
func (a *Aggregator) serveOpenAPI(w http.ResponseWriter, r *http.Request, next http.Handler, path string) {
	if group, version, ok := strings.Cut(strings.TrimPrefix(path, "/apis/"), "/"); ok {
		if b := a.routes.all()[schema.GroupVersion{Group: group, Version: version}]; b != nil {
			a.proxy(w, r, b)
			return
		}
	}
	if path != "" || r.Method != http.MethodGet {
		next.ServeHTTP(w, r)
		return
	}
	remote := a.openAPIPaths(r.Context())
	if len(remote) == 0 {
		next.ServeHTTP(w, r)
		return
	}
	// Without conditional headers: a document that has not changed here may have changed elsewhere.
	own, plain := responsewriter.NewInMemoryResponseWriter(), r.Clone(r.Context())
	for _, header := range []string{"If-None-Match", "If-Modified-Since", "Range"} {
		plain.Header.Del(header)
	}
	next.ServeHTTP(own, plain)
	var all handler3.OpenAPIV3Discovery
	if own.RespCode() != http.StatusOK || json.Unmarshal(own.Data(), &all) != nil {
		http.Error(w, "the list of this server's OpenAPI documents is not available", http.StatusInternalServerError)
		return
	}
	maps.Copy(all.Paths, remote)
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	_ = json.NewEncoder(w).Encode(all) // the client may have disconnected
}

// openAPIPaths returns the paths of the documents of all available servers.
func (a *Aggregator) openAPIPaths(ctx context.Context) map[string]handler3.OpenAPIV3DiscoveryGroupVersion {
	ctx, cancel := context.WithTimeout(ctx, openAPITimeout)
	defer cancel()
	var asking sync.WaitGroup
	for _, b := range a.routes.all() {
		last := b.openAPI.Load()
		if b.available.Load() && (last == nil || last.url == "" || a.config.Now().Sub(last.asked) > openAPIInterval) {
			asking.Go(func() { b.openAPI.Store(&openAPIPath{a.openAPIPath(ctx, b), a.config.Now()}) })
		}
	}
	asking.Wait()
	paths := map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}
	for version, b := range a.routes.all() {
		if last := b.openAPI.Load(); b.available.Load() && last != nil && last.url != "" {
			paths["apis/"+version.String()] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: last.url}
		}
	}
	return paths
}

// openAPIPath asks a server for the path of the document of its group version.
func (a *Aggregator) openAPIPath(ctx context.Context, b *backend) string {
	addresses, err := a.addresses(ctx, b)
	if err != nil {
		return ""
	}
	response, err := b.send(ctx, addresses[0], "/openapi/v3", runtime.ContentTypeJSON)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	var list handler3.OpenAPIV3Discovery
	if json.NewDecoder(io.LimitReader(response.Body, maxDiscovery)).Decode(&list) != nil {
		return ""
	}
	// Other paths are ignored: clients follow the path with their credentials.
	path := "/openapi/v3/apis/" + b.version.String()
	url := list.Paths["apis/"+b.version.String()].ServerRelativeURL
	if rest, ok := strings.CutPrefix(url, path); ok && (rest == "" || rest[0] == '?') {
		return url
	}
	return ""
}
