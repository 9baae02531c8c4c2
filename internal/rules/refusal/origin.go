package refusal

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// MaxStatus bounds the body of an answer that is searched for a Status, in bytes.
const MaxStatus = 64 << 10

// Codes of answers. The package is pure, and imports no net/http.
const (
	codeMultipleChoices    = 300
	codeUnauthorized       = 401
	codeNotFound           = 404
	codeInternalError      = 500
	codeBadGateway         = 502
	codeServiceUnavailable = 503
	codeGatewayTimeout     = 504
)

// Answer is an answer over HTTP, as far as it shows who has given it. A load balancer, a proxy or an identity provider may
// answer in place of an API server that is away.
type Answer struct {
	Code        int
	Path        string // of the request
	ContentType string
	// AuditID is the header Audit-Id. Each API server of Kubernetes sets it, also in answers without a Status: those of its
	// limit on requests in flight (429) are plain text.
	AuditID string
	// Body is the body, or its first bytes if it is longer than MaxStatus. It counts only if NeedsBody.
	Body []byte
}

// NeedsBody reports whether only the body shows who has given the answer.
func (a Answer) NeedsBody() bool { return a.Code >= codeMultipleChoices && !isReplaced(a.Code) }

// IsFromServer reports whether the answer proves that an API server has answered. Others prove nothing about the state of
// the server: an API server that starts also answers 401, until its authentication is ready. A 404 about another object
// than those in the path is of an API server that passes requests on.
func (a Answer) IsFromServer() bool {
	switch {
	case isReplaced(a.Code):
		return false
	case a.Code < codeMultipleChoices:
		return !strings.HasPrefix(a.ContentType, "text/") // a page for people: objects are JSON, protobuf or CBOR
	}
	status, ok := statusIn(a.Body)
	if !ok {
		return a.AuditID != ""
	}
	name := nameIn(status)
	return a.Code != codeNotFound || name == "" || a.isAbout(name)
}

// EndsSilence reports whether the answer shows that the server is there, and does not fail. A server without its storage
// answers mostly with 500 ("etcdserver: request timed out"), and the storage may come back from a backup. Webhooks choose that
// code, too: such an answer is one of a server nevertheless, and no outage.
func (a Answer) EndsSilence() bool { return a.Code < codeInternalError && a.IsFromServer() }

// ShowsObjects reports whether the answer shows that objects are there, or that one is gone.
func (a Answer) ShowsObjects() bool {
	switch {
	case !a.IsFromServer():
		return false
	case a.Code == codeNotFound:
		status, ok := statusIn(a.Body)
		return ok && nameIn(status) != ""
	}
	return a.Code < codeMultipleChoices
}

// isAbout reports whether the requested path contains a name. An API server may pass on requests below a path of its own, with
// the name of a cluster in it: that does not count.
func (a Answer) isAbout(name string) bool {
	return slices.Contains(strings.Split(afterLast(afterLast(a.Path, "/apis/"), "/api/v1/"), "/"), name)
}

// afterLast returns the part of a path after the last occurrence of another one; the whole path if it has no such part.
func afterLast(path, prefix string) string {
	if at := strings.LastIndex(path, prefix); at >= 0 {
		return path[at+len(prefix):]
	}
	return path
}

// isReplaced reports whether an answer with a code may come from something else than the API server, or from one whose
// storage or authentication is away, whatever its body is.
func isReplaced(code int) bool {
	switch code {
	case codeUnauthorized, codeBadGateway, codeServiceUnavailable, codeGatewayTimeout:
		return true
	}
	return false
}

// The first bytes of objects in other encodings than JSON.
const (
	protobufPrefix = "k8s\x00"
	cborPrefix     = "\xd9\xd9\xf7"
)

// statusIn returns the Status in a body. One in CBOR is not decoded: only API servers use that.
func statusIn(body []byte) (*metav1.Status, bool) {
	status := &metav1.Status{}
	if encoded, ok := bytes.CutPrefix(body, []byte(protobufPrefix)); ok {
		var object runtime.Unknown
		if object.Unmarshal(encoded) != nil || object.Kind != "Status" {
			return nil, false
		}
		return status, status.Unmarshal(object.Raw) == nil
	}
	if bytes.HasPrefix(body, []byte(cborPrefix)) {
		return status, true
	}
	err := json.Unmarshal(body, status)
	return status, err == nil && status.Kind == "Status" && status.APIVersion == "v1"
}

// nameIn returns the name of the object that a Status is about; empty if it names none.
func nameIn(status *metav1.Status) string {
	if status.Details == nil {
		return ""
	}
	return status.Details.Name
}

// IsUnanswered reports whether the error of a request means that no API server has answered it. client-go keeps a part of
// each answer, which decides.
func IsUnanswered(err error) bool {
	if err == nil {
		return false
	}
	answer := apierrors.APIStatus(nil)
	if !errors.As(err, &answer) {
		return true
	}
	return isReplaced(int(answer.Status().Code)) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IsGone reports whether the error of a request for an object says that it does not exist. A 404 for the path does not: the
// server may not serve the kind for a moment, or something else has answered. client-go returns such errors unwrapped.
func IsGone(err error, name string) bool {
	answer, ok := err.(apierrors.APIStatus)
	if !ok || !apierrors.IsNotFound(err) || IsUnanswered(err) {
		return false
	}
	status := answer.Status()
	return nameIn(&status) == name
}
