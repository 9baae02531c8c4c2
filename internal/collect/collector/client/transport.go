package client

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WithoutRetry makes a transport return answers with Retry-After as plain errors.
// client-go would wait and repeat the request, up to ten times, within the call. The
// collector and the feed wait between requests: in the queue, and in the back-off of a watch.
func WithoutRetry(next http.RoundTripper) http.RoundTripper { return withoutRetry{next} }

type withoutRetry struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t withoutRetry) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusTooManyRequests && response.StatusCode < http.StatusInternalServerError {
		return response, err
	}
	seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
	if err != nil {
		return response, nil //nolint:nilerr // no such header, or a date: client-go does not wait for it either
	}
	status := apierrors.NewGenericServerResponse(response.StatusCode, r.Method, schema.GroupResource{}, "", "", seconds, false).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return response, nil //nolint:nilerr // the answer as it was is as good
	}
	_ = response.Body.Close()
	response.Header.Del("Retry-After")
	response.Header.Set("Content-Type", "application/json")
	response.Header.Del("Content-Length")
	response.ContentLength = int64(len(body))
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// WrappedRoundTripper implements net.RoundTripperWrapper.
func (t withoutRetry) WrappedRoundTripper() http.RoundTripper { return t.next }
