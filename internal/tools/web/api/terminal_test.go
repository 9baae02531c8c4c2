package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// hostile is a name that renames the window of a terminal, has a control sequence of C1, DEL, and turns the direction
// of text.
const hostile = "a\x1b]0;PWN\x07\u009b31m\x7f\u202eb\nc"

// painted is a cluster with a hostile name.
type painted struct{ cluster }

func (painted) Records(uint64) []report.Record {
	return []report.Record{{Number: 1, Action: report.ActionDelete, Object: report.RecordedObject{Kind: "Node", Name: hostile, UID: "n"}, Decision: hostile}}
}

// Answers of each form, and errors, control no terminal. In JSON, names are what they are.
func TestAnswersControlNoTerminal(t *testing.T) {
	query := url.Values{"object": {"nodes/" + hostile}, "after": {hostile}, "propagationPolicy": {hostile}, "format": {hostile}, "kind": {hostile}}.Encode()
	for _, path := range append(api.Paths(), api.Stories+"/"+url.PathEscape(hostile)) {
		if path == api.Protected {
			continue // it reads objects from an API server
		}
		for _, asked := range []string{path, path + "?" + query, path + "?uid=" + url.QueryEscape(hostile)} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // streams end after their first events
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, asked, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+everything)
			w := httptest.NewRecorder()
			api.Handler(painted{}, access).ServeHTTP(w, r)
			if strings.ContainsFunc(w.Body.String(), escape.Controls) {
				t.Errorf("%s: %q", asked, w.Body)
			}
		}
	}
	_, body := ask(t, painted{}, everything, api.Records)
	var list api.RecordList
	if err := json.Unmarshal([]byte(body), &list); err != nil || len(list.Items) != 1 || list.Items[0].Object.Name != hostile {
		t.Errorf("%s %v", body, err)
	}
}
