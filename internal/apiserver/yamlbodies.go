package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"

	"go.yaml.in/yaml/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// withBoundedYAML refuses YAML bodies whose aliases expand to more than limit bytes, the limit of a JSON body.
// The YAML decoder limits the number of nodes that aliases create, but not the length of the repeated strings:
// 160 kB became 860 MB.
func withBoundedYAML(next http.Handler, limit int64, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == nil || !isYAML(r.Header.Get("Content-Type")) {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
		if err == nil && int64(len(body)) <= limit && expands(body, limit) {
			refused := apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("its aliases stand for more than %d bytes: write less of it with aliases, or several objects", limit))
			version := schema.GroupVersion{}
			if info, ok := genericrequest.RequestInfoFrom(r.Context()); ok {
				version = schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			}
			responsewriters.ErrorNegotiated(refused, codecs, version, w, r)
			return
		}
		// The handler reports other errors, and bodies that are too long.
		r = r.Clone(r.Context())
		r.Body = readCloser{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		next.ServeHTTP(w, r)
	})
}

type readCloser struct {
	io.Reader
	io.Closer
}

// isYAML reports whether a handler may decode a body as YAML: an object, or an apply patch. The handler of
// patches cuts parameters off without parsing them, so malformed parameters make no difference.
func isYAML(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.HasSuffix(strings.ToLower(strings.TrimSpace(media)), "yaml")
}

// expands reports whether the aliases of a document expand to more than limit bytes of JSON. A document
// without an anchor or without an alias has none. The next decoder refuses a document that cannot be
// decoded.
func expands(document []byte, limit int64) bool {
	if !bytes.ContainsRune(document, '&') || !bytes.ContainsRune(document, '*') {
		return false
	}
	var content any
	if err := yaml.Unmarshal(document, &content); err != nil {
		return false
	}
	return lengthOf(content, limit) > limit
}

// lengthOf returns the approximate length of a value in JSON, or a number above limit if it is longer.
func lengthOf(value any, limit int64) int64 {
	length := int64(2)
	switch v := value.(type) {
	case string:
		return int64(len(v)) + length
	case []any:
		for i := 0; i < len(v) && length <= limit; i++ {
			length += 1 + lengthOf(v[i], limit-length)
		}
	case map[any]any:
		for name, inner := range v {
			length += 2 + lengthOf(name, limit) + lengthOf(inner, limit-length)
			if length > limit {
				break
			}
		}
	}
	return length
}
