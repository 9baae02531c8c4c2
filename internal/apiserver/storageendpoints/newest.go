package apiserver

import (
	"encoding/json"
	"net/http"

	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// NewestPath is where a collector asks which resources were written to last (R15). The
// answer is a storage.Newest in JSON.
const NewestPath = "/coppice/newest"

// newest serves it.
type newest struct{ store *storage.Store }

// ServeHTTP implements http.Handler.
func (n newest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "this can only be read", http.StatusMethodNotAllowed)
		return
	}
	answer, err := n.store.Newest(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // whoever does not get it asks again
}
