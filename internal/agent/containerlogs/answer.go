package containerlogs

import (
	"io"
	"net/http"
)

// Send answers with a log, as it is read: whoever follows it sees each line when it was
// written, and that there is a log before it has lines. The error is that of reading; that
// whoever asked has gone is none.
func Send(w http.ResponseWriter, log io.Reader) error {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	source, to := &reading{from: log}, flushing{w}
	to.flush()
	_, _ = io.Copy(to, source)
	return source.err
}

// reading keeps the error of a reader apart from that of the writer that it is copied to.
type reading struct {
	from io.Reader
	err  error // nil at the end
}

// Read implements io.Reader.
func (r *reading) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// flushing sends on what is written, as it is written.
type flushing struct{ w http.ResponseWriter }

// Write implements io.Writer.
func (f flushing) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		f.flush()
	}
	return n, err
}

func (f flushing) flush() {
	if flusher, ok := f.w.(http.Flusher); ok {
		flusher.Flush()
	}
}
