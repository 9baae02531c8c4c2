package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/tools/ask"
)

// Undo repeats a request to a recycle bin that is behind, and reports one that stays behind.
func TestR29_UndoWaitsForTheRecycleBin(t *testing.T) {
	for _, test := range []struct {
		behind, requests int
		err              string
	}{{0, 1, ""}, {binAttempts - 1, binAttempts, ""}, {binAttempts, binAttempts, "the recycle bin is behind; try again"}} {
		requests := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if requests++; requests <= test.behind {
				w.Header().Set("Retry-After", "0")
				http.Error(w, "the recycle bin is behind; try again", http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, `{"items":[{"name":"a"}]}`)
		}))
		address, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		list, err := readBin(t.Context(), &ask.Collector{Server: address, Client: server.Client()}, nil)
		server.Close()
		if requests != test.requests || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || err == nil && len(list.Items) != 1 {
			t.Errorf("behind for %d requests: %d requests, %d items, %v", test.behind, requests, len(list.Items), err)
		}
	}
}
