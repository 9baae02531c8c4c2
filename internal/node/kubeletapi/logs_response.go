package kubeletapi

import (
	"io"
	"net/http"
)

// WriteLog writes a log as a response and flushes each part at once, so that a client that follows
// the log sees each line when it is written. It flushes the header before the first line. The
// returned error is an error of reading the log; a write error means that the client has gone away
// and is dropped.
func WriteLog(w http.ResponseWriter, log io.Reader) error {
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	from, to := &readErrorRecorder{reader: log}, flushWriter{w}
	to.flush()
	_, _ = io.Copy(to, from)
	return from.err
}

// readErrorRecorder keeps read errors apart from the write errors of io.Copy.
type readErrorRecorder struct {
	reader io.Reader
	err    error // nil at the end of the log
}

func (r *readErrorRecorder) Read(p []byte) (int, error) {
	n, err := r.reader.Read(p)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

// flushWriter flushes after each write.
type flushWriter struct{ w http.ResponseWriter }

func (f flushWriter) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err == nil {
		f.flush()
	}
	return n, err
}

func (f flushWriter) flush() {
	if flusher, ok := f.w.(http.Flusher); ok {
		flusher.Flush()
	}
}
