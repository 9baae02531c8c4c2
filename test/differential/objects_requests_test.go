package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/coppice-dev/coppice/internal/testing/difference"
	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// pathOf returns the path of the valid object of a kind.
func pathOf(k *variation.Kind) string { return k.Collection() + "/" + k.Name() }

// carry sends the request of an experiment to a server. stored is the object there, if any.
func (s *apiServer) carry(ctx context.Context, e variation.Experiment, stored map[string]any) (difference.Outcome, error) {
	collection, object := e.Kind.Collection(), pathOf(e.Kind)
	const query = "?dryRun=All&fieldManager=objects"
	switch e.Verb {
	case "create":
		return s.ask(ctx, http.MethodPost, collection+query, "application/json", e.Changed(e.Kind.Object()))
	case "store":
		return s.ask(ctx, http.MethodPost, collection, "application/json", e.Kind.Object())
	case "get":
		return s.ask(ctx, http.MethodGet, object, "", nil)
	case "update":
		return s.ask(ctx, http.MethodPut, object+query, "application/json", e.Changed(runtime.DeepCopyJSON(stored)))
	case "again": // without the fields that the server has added
		return s.ask(ctx, http.MethodPut, object+query, "application/json", e.Changed(e.Kind.Object()))
	case "apply":
		return s.ask(ctx, http.MethodPatch, object+query+"&force=true", "application/apply-patch+yaml", e.Changed(e.Kind.Object()))
	case "status":
		return s.ask(ctx, http.MethodPatch, object+"/status"+query, "application/merge-patch+json", e.Patch(stored))
	case "merge":
		return s.ask(ctx, http.MethodPatch, object+query, "application/merge-patch+json", e.Patch(stored))
	case "strategic":
		return s.ask(ctx, http.MethodPatch, object+query, "application/strategic-merge-patch+json", e.Patch(stored))
	case "json":
		return s.ask(ctx, http.MethodPatch, object+query, "application/json-patch+json", e.Operations(stored))
	}
	if strings.HasPrefix(e.Verb, "/") { // a subresource
		return s.ask(ctx, http.MethodPut, object+e.Verb+query, "application/json", e.Changed(runtime.DeepCopyJSON(stored)))
	}
	return difference.Outcome{}, fmt.Errorf("unknown verb %q", e.Verb)
}

// ask makes one request and returns its whole outcome.
func (s *apiServer) ask(ctx context.Context, method, path, contentType string, body any) (difference.Outcome, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return difference.Outcome{}, err
	}
	return s.raw(ctx, method, path, contentType, data)
}

// raw makes one request with a body as it is.
func (s *apiServer) raw(ctx context.Context, method, path, contentType string, data []byte) (difference.Outcome, error) {
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, bytes.NewReader(data))
	if err != nil {
		return difference.Outcome{}, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "differential")
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := s.client.Do(r)
	if err != nil && strings.Contains(err.Error(), "INTERNAL_ERROR; received from peer") {
		// A handler that panics resets the stream.
		return difference.Outcome{Code: http.StatusInternalServerError, Message: "panic: the stream was reset"}, nil
	}
	if err != nil {
		return difference.Outcome{}, err
	}
	defer response.Body.Close()
	if data, err = io.ReadAll(response.Body); err != nil {
		return difference.Outcome{}, err
	}
	answer := map[string]any{}
	if err := utiljson.Unmarshal(data, &answer); err != nil {
		return difference.Outcome{}, fmt.Errorf("%s %s: %d %q: %w", method, path, response.StatusCode, data, err)
	}
	return difference.OutcomeOf(response.StatusCode, response.Header.Values("Warning"), &unstructured.Unstructured{Object: answer}), nil
}

// TestPanicOfAServerIsAnOutcome checks that a comparison goes on when a server fails in the middle of a request.
func TestPanicOfAServerIsAnOutcome(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	s := &apiServer{base: server.URL, client: server.Client()}
	got, err := s.raw(t.Context(), http.MethodPut, "/", "application/json", []byte("{}"))
	if err != nil || got.Code != http.StatusInternalServerError || !strings.HasPrefix(got.Message, "panic: ") {
		t.Errorf("%+v %v", got, err)
	}
}
