package apiserver

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// smallError is the length of an error that never names more than validate.MaxErrors fields.
const smallError = 4 << 10

// withBoundedErrors bounds the errors of writes that k8s.io/apiserver makes before it asks a registry: a custom resource with
// 20,000 fields that its definition does not have was refused with 700 kB, and a patch of it with 2 MB.
func withBoundedErrors(next http.Handler, codecs runtime.NegotiatedSerializer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := genericrequest.RequestInfoFrom(r.Context())
		if !ok || !info.IsResourceRequest || r.Method == http.MethodGet || r.Method == http.MethodDelete {
			next.ServeHTTP(w, r)
			return
		}
		kept := &errorWriter{ResponseWriter: w}
		next.ServeHTTP(kept, r)
		if kept.status == 0 {
			return
		}
		if status, differs := kept.bounded(codecs); differs {
			for _, name := range []string{"Content-Type", "Content-Length", "Content-Encoding"} {
				w.Header().Del(name)
			}
			version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
			responsewriters.ErrorNegotiated(&apierrors.StatusError{ErrStatus: status}, codecs, version, w, r)
			return
		}
		w.WriteHeader(kept.status)
		_, _ = w.Write(kept.body.Bytes())
	})
}

// errorWriter keeps an error, and passes every other response on.
type errorWriter struct {
	http.ResponseWriter
	status      int // 0: there is no error
	body        bytes.Buffer
	wroteHeader bool
}

// WriteHeader implements http.ResponseWriter.
func (w *errorWriter) WriteHeader(status int) {
	switch {
	case w.wroteHeader:
	case status >= http.StatusBadRequest:
		w.wroteHeader, w.status = true, status
	default:
		w.wroteHeader = status >= http.StatusOK
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (w *errorWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.status != 0 {
		return w.body.Write(p)
	}
	return w.ResponseWriter.Write(p)
}

// bounded returns the error with bounds. It returns false if the error is within them, or is no Status.
func (w *errorWriter) bounded(codecs runtime.NegotiatedSerializer) (metav1.Status, bool) {
	body := io.Reader(bytes.NewReader(w.body.Bytes()))
	if w.Header().Get("Content-Encoding") == "gzip" {
		plain, err := gzip.NewReader(body)
		if err != nil {
			return metav1.Status{}, false
		}
		body = plain
	} else if w.body.Len() <= smallError {
		return metav1.Status{}, false
	}
	text, err := io.ReadAll(body)
	if err != nil {
		return metav1.Status{}, false
	}
	media, _, _ := mime.ParseMediaType(w.Header().Get("Content-Type"))
	encoding, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		return metav1.Status{}, false
	}
	var status metav1.Status
	if _, _, err := encoding.Serializer.Decode(text, nil, &status); err != nil || status.Status != metav1.StatusFailure {
		return metav1.Status{}, false
	}
	return validate.BoundedStatus(status)
}
