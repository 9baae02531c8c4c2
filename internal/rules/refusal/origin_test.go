package refusal

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const secretPath = "/api/v1/namespaces/shop/secrets/a"

// about returns a Status about an object.
func about(code int32, name string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: code, Details: &metav1.StatusDetails{Name: name},
	}
}

func inJSON(t *testing.T, object any) []byte {
	t.Helper()
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func inProtobuf(t *testing.T, status *metav1.Status) []byte {
	t.Helper()
	raw, err := status.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: status.Kind}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

// R4: objects, and a Status, show that an API server has answered. Pages of load balancers do not, nor do answers that API
// servers also give before they are ready.
func TestR4_AnswersOfAServer(t *testing.T) {
	page := []byte("default backend")
	pod := about(404, "p")
	pod.Kind = "Pod"
	long := about(404, "a")
	long.Message = strings.Repeat("x", MaxStatus)
	throughProxy := "/apis/fleet.example.com/v1/clusters/one/proxy" + secretPath
	for name, test := range map[string]struct {
		answer       Answer
		is           bool
		showsObjects bool
	}{
		"an object":                       {Answer{Code: 200, ContentType: "application/json"}, true, true},
		"an object in protobuf":           {Answer{Code: 201, ContentType: "application/vnd.kubernetes.protobuf"}, true, true},
		"no content":                      {Answer{Code: 200}, true, true},
		"a page":                          {Answer{Code: 200, ContentType: "text/html; charset=utf-8", Body: page}, false, false},
		"a redirect":                      {Answer{Code: 302, ContentType: "text/html"}, false, false},
		"401":                             {Answer{Code: 401, Body: page}, false, false},
		"401 of an API server":            {Answer{Code: 401, AuditID: "1", Body: inJSON(t, about(401, ""))}, false, false},
		"502":                             {Answer{Code: 502, Body: page}, false, false},
		"503 of an API server":            {Answer{Code: 503, AuditID: "1", Body: inJSON(t, about(503, ""))}, false, false},
		"504 of an API server":            {Answer{Code: 504, AuditID: "1", Body: inProtobuf(t, about(504, ""))}, false, false},
		"403":                             {Answer{Code: 403, Body: page}, false, false},
		"403 of an API server":            {Answer{Code: 403, Body: inJSON(t, about(403, "a"))}, true, false},
		"403 about another object":        {Answer{Code: 403, Body: inJSON(t, about(403, "event.1"))}, true, false},
		"404":                             {Answer{Code: 404, Body: page}, false, false},
		"404 without a body":              {Answer{Code: 404}, false, false},
		"404 about the object":            {Answer{Code: 404, Body: inJSON(t, about(404, "a"))}, true, true},
		"404 in protobuf":                 {Answer{Code: 404, Body: inProtobuf(t, about(404, "a"))}, true, true},
		"404 about the namespace":         {Answer{Code: 404, Body: inJSON(t, about(404, "shop"))}, true, true},
		"404 about another object":        {Answer{Code: 404, AuditID: "1", Body: inJSON(t, about(404, "one"))}, false, false},
		"404 about a cluster":             {Answer{Code: 404, Path: throughProxy, Body: inJSON(t, about(404, "one"))}, false, false},
		"404 of a cluster":                {Answer{Code: 404, Path: throughProxy, Body: inJSON(t, about(404, "a"))}, true, true},
		"404 about an object of a group":  {Answer{Code: 404, Path: "/apis/apps/v1/namespaces/shop/deployments/a", Body: inJSON(t, about(404, "a"))}, true, true},
		"404 for the path":                {Answer{Code: 404, Body: inJSON(t, about(404, ""))}, true, false},
		"404 for the path, in plain text": {Answer{Code: 404, AuditID: "1", Body: []byte("404 page not found")}, true, false},
		"404 in CBOR":                     {Answer{Code: 404, Body: []byte("\xd9\xd9\xf7\xa0")}, true, false},
		"404 with another object":         {Answer{Code: 404, Body: inJSON(t, pod)}, false, false},
		"404 with another in protobuf":    {Answer{Code: 404, Body: inProtobuf(t, pod)}, false, false},
		"404 with broken protobuf":        {Answer{Code: 404, Body: []byte("k8s\x00\xff")}, false, false},
		"404 with other JSON":             {Answer{Code: 404, Body: []byte(`{"error":"no route"}`)}, false, false},
		"404 that is cut off":             {Answer{Code: 404, Body: inJSON(t, long)[:MaxStatus]}, false, false},
		"409 of an API server":            {Answer{Code: 409, Body: inJSON(t, about(409, "a"))}, true, false},
		"422 about a new object":          {Answer{Code: 422, Body: inJSON(t, about(422, "event.1"))}, true, false},
		"429":                             {Answer{Code: 429, Body: page}, false, false},
		"429 of an API server":            {Answer{Code: 429, Body: inJSON(t, about(429, ""))}, true, false},
		"429 of priority and fairness":    {Answer{Code: 429, AuditID: "1", Body: []byte("Too many requests, please try again later.\n")}, true, false},
		"500":                             {Answer{Code: 500, Body: page}, false, false},
		"500 of an API server":            {Answer{Code: 500, Body: inJSON(t, about(500, ""))}, true, false},
		"500 of an API server that fails": {Answer{Code: 500, AuditID: "1", Body: []byte("This request caused apiserver to panic.")}, true, false},
	} {
		if test.answer.Path == "" {
			test.answer.Path = secretPath
		}
		if got, shows := test.answer.IsFromServer(), test.answer.ShowsObjects(); got != test.is || shows != test.showsObjects {
			t.Errorf("%s: %t, shows objects: %t; want %t and %t", name, got, shows, test.is, test.showsObjects)
		}
		if ends, is := test.answer.EndsSilence(), test.is && !strings.HasPrefix(name, "500"); ends != is {
			t.Errorf("%s: it ends a silence: %t, want %t", name, ends, is)
		}
		if without := test.answer; !without.NeedsBody() {
			if without.Body = nil; without.IsFromServer() != test.is {
				t.Errorf("%s: its body counts, and is not read", name)
			}
		}
	}
}

// R4: what client-go keeps of an answer shows whether an API server has given it, and whether it is about the object.
func TestR4_ErrorsOfAServer(t *testing.T) {
	generic := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "get", configMaps, "a", "default backend", 0, true)
	}
	for name, test := range map[string]struct {
		err                error
		isUnanswered, gone bool
	}{
		"nothing":           {nil, false, false},
		"no answer":         {errors.New("connection refused"), true, false},
		"not found":         {apierrors.NewNotFound(configMaps, "a"), false, true},
		"another not found": {apierrors.NewNotFound(configMaps, "b"), false, false},
		"no such path":      {status(404, metav1.StatusReasonNotFound, "the server could not find the requested resource"), false, false},
		"a wrapped one":     {fmt.Errorf("get: %w", apierrors.NewNotFound(configMaps, "a")), false, false},
		"a page with 404":   {generic(http.StatusNotFound), true, false},
		"a page with 403":   {generic(http.StatusForbidden), true, false},
		"a page with 429":   {fmt.Errorf("list: %w", generic(http.StatusTooManyRequests)), true, false},
		"a page with 401":   {generic(http.StatusUnauthorized), true, false},
		"unauthorized":      {apierrors.NewUnauthorized("no"), true, false},
		"unavailable":       {apierrors.NewServiceUnavailable("no"), true, false},
		"forbidden":         {forbid(noRight), false, false},
		"too many requests": {apierrors.NewTooManyRequests("later", 1), false, false},
		"conflict":          {apierrors.NewConflict(configMaps, "a", errors.New("changed")), false, false},
		"a failure":         {apierrors.NewInternalError(errors.New("no")), false, false},
	} {
		if got, gone := IsUnanswered(test.err), IsGone(test.err, "a"); got != test.isUnanswered || gone != test.gone {
			t.Errorf("%s: unanswered: %t, gone: %t; want %t and %t", name, got, gone, test.isUnanswered, test.gone)
		}
	}
}
