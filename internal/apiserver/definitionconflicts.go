package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

var errStaleStatus = errors.New("the status of the CustomResourceDefinition was written from a stale cache")

// retryStatusConflicts makes the CustomResourceDefinition controllers of
// apiextensions-apiserver retry after a conflict: it turns a 409 response to an update of a
// definition's status into a 500.
//
// On a conflict these controllers give up without an error, because they expect another event for the
// definition. It may never come: the finalizing controller writes the status twice in a sync, ignores its
// own first write, and is called again by the event of that write. If it then reads a cache without the
// second write, its update conflicts, and no event follows. The deletion of the definition, and of all its
// instances, would hang until the informer's next resync, up to 5 minutes later. After any other error the
// controllers retry with back-off.
//
// TestDefinitionFinalizerIgnoresConflicts fails once apiextensions-apiserver retries by itself.
func retryStatusConflicts(next http.RoundTripper) http.RoundTripper { return retryConflicts{next} }

type retryConflicts struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t retryConflicts) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(r)
	ofStatus := r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, definitionsPath) && strings.HasSuffix(r.URL.Path, "/status")
	if err != nil || !ofStatus || response.StatusCode != http.StatusConflict {
		return response, err
	}
	status := apierrors.NewInternalError(errStaleStatus).Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	body, err := json.Marshal(status)
	if err != nil {
		return response, nil //nolint:nilerr // the conflict is an answer too
	}
	_ = response.Body.Close()
	response.StatusCode, response.Status = http.StatusInternalServerError, http.StatusText(http.StatusInternalServerError)
	response.Header.Set("Content-Type", runtime.ContentTypeJSON)
	response.Header.Del("Content-Length")
	response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return response, nil
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (t retryConflicts) WrappedRoundTripper() http.RoundTripper { return t.next }
