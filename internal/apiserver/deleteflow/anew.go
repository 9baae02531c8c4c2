package deleteflow

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// serveAnew serves a request about one object, if need be more than once.
//
// The library's registry decides first whether the object goes, then tells the
// storage to remove it, and has its answer ready: that it is gone. When the storage
// finds the object changed, nothing has been written yet; then that answer is thrown
// away, and the request served again, by a registry that sees the object as it is now.
// So a DELETE that meets a new finalizer marks the object and answers with it (R20),
// and an update without a resourceVersion is no conflict.
func serveAnew(next http.Handler, w http.ResponseWriter, r *http.Request, verb string) {
	var body bytes.Buffer // what was read of the request's body so far
	for tries := maxTries; ; tries-- {
		about := &request{deletes: verb == "delete", tries: tries}
		attempt := withRequest(r, about)
		attempt.Body = readCloser{io.MultiReader(bytes.NewReader(body.Bytes()), io.TeeReader(r.Body, &body)), r.Body}
		next.ServeHTTP(&draft{ResponseWriter: w, header: w.Header().Clone(), about: about}, attempt)
		if !about.isVoid() {
			return
		}
	}
}

type readCloser struct {
	io.Reader
	io.Closer
}

// draft is the answer to a request that may begin anew: of one that does, nothing is sent.
type draft struct {
	http.ResponseWriter
	about  *request
	header http.Header
	begun  bool // the handler has sent its header
	void   bool // and nobody is to see it
}

// Header implements http.ResponseWriter.
func (d *draft) Header() http.Header { return d.header }

// WriteHeader implements http.ResponseWriter.
func (d *draft) WriteHeader(status int) {
	if d.begun {
		return
	}
	d.begun, d.void = true, d.about.isVoid()
	if d.void {
		return
	}
	maps.Copy(d.ResponseWriter.Header(), d.header)
	d.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (d *draft) Write(p []byte) (int, error) {
	d.WriteHeader(http.StatusOK)
	if d.void {
		return len(p), nil
	}
	_, err := d.ResponseWriter.Write(d.completed(p))
	return len(p), err
}

// completed is the answer to a DELETE that has removed an object: the library's, with
// the resourceVersion of the removal (R20), which the library does not tell. Any other
// answer stays what it is.
func (d *draft) completed(p []byte) []byte {
	uid, version := d.about.removal()
	if version == "" || d.header.Get("Content-Type") != runtime.ContentTypeJSON {
		return p
	}
	var status metav1.Status
	if err := json.Unmarshal(p, &status); err != nil || status.Kind != "Status" || status.Details == nil || status.Details.UID != uid {
		return p
	}
	status.ResourceVersion = version
	told, err := json.Marshal(status)
	if err != nil {
		return p
	}
	return told
}
