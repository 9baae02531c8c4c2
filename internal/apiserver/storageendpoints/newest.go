package storageendpoints

import (
	"encoding/json"
	"net/http"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// NewestPath serves the revision at which each resource was last written, a storage.Newest
// as JSON. The collector's barrier reads it (R15).
const NewestPath = bootstrappolicy.NewestPath

// Newest serves the newest revisions of a store.
type Newest struct{ Store *storage.Store }

// ServeHTTP implements http.Handler.
func (n Newest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
		return
	}
	newest, err := n.Store.Newest(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(newest) // a client that has disconnected retries
}
