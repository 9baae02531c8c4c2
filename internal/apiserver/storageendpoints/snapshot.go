package apiserver

import (
	"io"
	"net/http"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// SnapshotPath is where a snapshot of the store is read. It holds every object there
// is, Secrets included, so that whoever may read this path may read all; no role but
// cluster-admin grants it.
const SnapshotPath = "/coppice/snapshot"

// snapshots serves snapshots of a store.
type snapshots struct{ store *storage.Store }

// ServeHTTP implements http.Handler.
func (s snapshots) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "a snapshot can only be read", http.StatusMethodNotAllowed)
		return
	}
	stream, err := s.store.Snapshot(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	// The status is sent: what breaks off now is known by its checksum.
	_, _ = io.Copy(w, stream)
}

// untimed lets snapshots and logs take as long as they take, besides what the library lets.
func untimed(next apirequest.LongRunningRequestCheck) apirequest.LongRunningRequestCheck {
	return func(r *http.Request, info *apirequest.RequestInfo) bool {
		isLog := info != nil && info.IsResourceRequest && info.Subresource == "log"
		return isLog || info != nil && info.Path == SnapshotPath || next(r, info)
	}
}
