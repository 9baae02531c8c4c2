package apiserver

import (
	"encoding/json"
	"io"
	"net/http"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// SnapshotPath serves a snapshot of the store. It contains every object, including Secrets: permission to
// read this path is permission to read everything, and of the default roles only cluster-admin grants it.
const SnapshotPath = "/coppice/snapshot"

// NewestPath serves the revision at which each resource was last written, a etcd.Newest
// as JSON. The collector's barrier reads it (R15).
const NewestPath = bootstrappolicy.NewestPath

// snapshotHandler serves snapshots of a store.
type snapshotHandler struct{ store *etcd.Store }

// ServeHTTP implements http.Handler.
func (s snapshotHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
		return
	}
	stream, err := s.store.Snapshot(r.Context())
	if err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	// The status has been sent: a client detects a truncated snapshot by its checksum.
	_, _ = io.Copy(w, stream)
}

// isSnapshot reports whether a request is for a snapshot, which may take longer than the server's request
// timeout.
func isSnapshot(info *apirequest.RequestInfo) bool { return info.Path == SnapshotPath }

// newestHandler serves the newest revisions of a store.
type newestHandler struct{ store *etcd.Store }

// ServeHTTP implements http.Handler.
func (n newestHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "only GET is supported", http.StatusMethodNotAllowed)
		return
	}
	newest, err := n.store.Newest(r.Context())
	if err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(newest) // a client that has disconnected retries
}
