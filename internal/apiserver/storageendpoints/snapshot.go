// Package storageendpoints serves endpoints that read the store as a whole.
package storageendpoints

import (
	"io"
	"net/http"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// SnapshotPath serves a snapshot of the store. It contains every object, including Secrets: permission to
// read this path is permission to read everything, and of the default roles only cluster-admin grants it.
const SnapshotPath = "/coppice/snapshot"

// Snapshot serves snapshots of a store.
type Snapshot struct{ Store *storage.Store }

// ServeHTTP implements http.Handler.
func (s Snapshot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
		return
	}
	stream, err := s.Store.Snapshot(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	// The status has been sent: a client detects a truncated snapshot by its checksum.
	_, _ = io.Copy(w, stream)
}

// IsSnapshot reports whether a request is for a snapshot, which may take longer than the server's request
// timeout.
func IsSnapshot(info *apirequest.RequestInfo) bool { return info.Path == SnapshotPath }
