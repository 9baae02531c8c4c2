package deleteflow

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/coppice-dev/coppice/internal/collect/auditreason"
)

// serveWithRetries serves a request for one object, more than once if necessary.
//
// Upstream's registry first decides to remove the object, with the response that the object is
// gone, and then calls the storage to remove it. If the storage finds that the object has changed,
// nothing has been written yet. The response is then discarded and the request is served again, so
// that the registry sees the current object. So a DELETE that meets a new finalizer marks the
// object and responds with it (R20), and an update without a resourceVersion does not get a
// conflict.
func serveWithRetries(next http.Handler, w http.ResponseWriter, r *http.Request, s served) {
	for tries := maxTries; ; tries-- {
		state := &request{deletes: s.verb == "delete", reasons: auditreason.IsCascade(r), agent: agentOf(r), tries: tries}
		attempt := withRequest(r, state)
		attempt.Body = readCloser{io.MultiReader(bytes.NewReader(s.body.Bytes()), io.TeeReader(r.Body, s.body)), r.Body}
		next.ServeHTTP(&retryWriter{ResponseWriter: w, header: w.Header().Clone(), state: state, instead: s.instead}, attempt)
		if !state.isDiscarded() {
			return
		}
	}
}

// served is a request that may be served more than once.
type served struct {
	verb string
	body *bytes.Buffer // the part of its body that was read so far
	// instead replaces a response 404, or returns false; nil if no response 404 may be replaced.
	instead func() bool
}

type readCloser struct {
	io.Reader
	io.Closer
}

// retryWriter sends a response unless the request will be served again.
type retryWriter struct {
	http.ResponseWriter
	state       *request
	instead     func() bool // see served
	header      http.Header
	wroteHeader bool
	discarded   bool // this response is not sent
}

// Header implements http.ResponseWriter.
func (w *retryWriter) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *retryWriter) WriteHeader(status int) {
	if w.wroteHeader {
		return
	}
	w.wroteHeader, w.discarded = true, w.state.isDiscarded()
	if !w.discarded && status == http.StatusNotFound && w.instead != nil {
		w.discarded = w.instead()
	}
	if w.discarded {
		return
	}
	maps.Copy(w.ResponseWriter.Header(), w.header)
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *retryWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.discarded {
		return len(p), nil
	}
	_, err := w.ResponseWriter.Write(w.completed(p))
	return len(p), err
}

// completed returns the response to a DELETE that has removed an object: upstream's, with the
// resourceVersion of the removal added (R20). For a dry run that would remove a finalizer and the
// object, upstream's response is an object without a name, which completed replaces. It returns
// other responses unchanged.
func (w *retryWriter) completed(p []byte) []byte {
	if w.header.Get("Content-Type") != runtime.ContentTypeJSON {
		return p
	}
	if answer := w.state.dryRunAnswer(); answer != nil && isBlank(p) {
		return encoded(answer, p)
	}
	uid, version := w.state.removal()
	if version == "" {
		return p
	}
	var status metav1.Status
	if err := json.Unmarshal(p, &status); err != nil || status.Kind != "Status" || status.Details == nil || status.Details.UID != uid {
		return p
	}
	status.ResourceVersion = version
	return encoded(&status, p)
}

// isBlank reports whether a response is an object without a name.
func isBlank(p []byte) bool {
	var object metav1.PartialObjectMetadata
	return json.Unmarshal(p, &object) == nil && object.Kind != "Status" && object.Name == ""
}

// encoded returns a Status as JSON, or instead if it cannot be encoded.
func encoded(status *metav1.Status, instead []byte) []byte {
	p, err := json.Marshal(status)
	if err != nil {
		return instead
	}
	return p
}
