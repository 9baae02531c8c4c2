package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/collector/client"
	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
)

var (
	podKind    = ownership.Kind{Kind: "Pod"}
	setKind    = ownership.Kind{Group: "apps", Kind: "ReplicaSet"}
	nodeKind   = ownership.Kind{Kind: "Node"}
	widgetKind = ownership.Kind{Group: "example.com", Kind: "Widget"}
)

const space = "shop"

func podRef(name string) client.Ref {
	return client.Ref{Kind: podKind, Namespace: space, Name: name}
}

// mapping is a Mapper of three kinds.
type mapping struct{}

func (mapping) Mapping(kind ownership.Kind) (gvr schema.GroupVersionResource, namespaced, ok bool) {
	switch kind {
	case podKind:
		return schema.GroupVersionResource{Version: "v1", Resource: "pods"}, true, true
	case setKind:
		return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, true, true
	case nodeKind:
		return schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, false, true
	}
	return schema.GroupVersionResource{}, false, false
}

func (mapping) Survey(context.Context) (feed.Watched, error) {
	return feed.Watched{Namespaced: []ownership.Kind{podKind, setKind}, Cluster: []ownership.Kind{nodeKind}}, nil
}

func (mapping) Reached(ownership.Kind) string { return "5" }

// fakeServer gives one answer, and remembers the last request.
type fakeServer struct {
	code        int
	contentType string
	header      map[string]string
	body        string

	method, path, query, accept, sentType string
	sent                                  string
	requests                              int
}

func (w *fakeServer) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	sent, _ := io.ReadAll(r.Body)
	w.method, w.path, w.query, w.sent = r.Method, r.URL.Path, r.URL.RawQuery, string(sent)
	w.accept, w.sentType = r.Header.Get("Accept"), r.Header.Get("Content-Type")
	w.requests++
	for k, v := range w.header {
		rw.Header().Set(k, v)
	}
	rw.Header().Set("Content-Type", w.contentType)
	rw.WriteHeader(w.code)
	_, _ = io.WriteString(rw, w.body)
}

func (w *fakeServer) config(t *testing.T) *rest.Config {
	t.Helper()
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

func (w *fakeServer) connect(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(w.config(t), mapping{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// connectBinary connects as to our own server, which reads protobuf.
func (w *fakeServer) connectBinary(t *testing.T) *client.Client {
	t.Helper()
	config := w.config(t)
	config.ContentType = runtime.ContentTypeProtobuf
	c, err := client.New(config, mapping{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const podAnswer = `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{
	"namespace":"shop","name":"a","uid":"u","resourceVersion":"8",
	"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"o","controller":false}]}}`

func answerWith(body string) *fakeServer {
	return &fakeServer{code: http.StatusOK, contentType: "application/json", body: body}
}

var (
	observedPod = ownership.Object{UID: "u", Kind: podKind, Namespace: space, Name: "a", ResourceVersion: "7"}
	answeredPod = ownership.Object{
		UID: "u", Kind: podKind, Namespace: space, Name: "a", ResourceVersion: "8",
		Owners: []ownership.Reference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "o", Controller: ownership.False}},
	}
)

// sameJSON compares JSON texts by their values.
func sameJSON(t *testing.T, got, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(got), &g); err != nil {
		t.Fatalf("%q: %v", got, err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

// R12: on the wire, DELETE carries both conditions.
func TestR12_DeleteOnTheWire(t *testing.T) {
	w := answerWith(`{"apiVersion":"v1","kind":"Status","status":"Success"}`)
	if err := w.connect(t).Delete(t.Context(), observedPod, verdict.Foreground); err != nil {
		t.Fatal(err)
	}
	if w.method != "DELETE" || w.path != "/api/v1/namespaces/shop/pods/a" {
		t.Errorf("%s %s", w.method, w.path)
	}
	sameJSON(t, w.sent, `{"apiVersion":"v1","kind":"DeleteOptions",
		"preconditions":{"uid":"u","resourceVersion":"7"},"propagationPolicy":"Foreground"}`)
}

// R12: so it does in protobuf.
func TestR12_DeleteInProtobuf(t *testing.T) {
	w := answerWith(`{"apiVersion":"v1","kind":"Status","status":"Success"}`)
	if err := w.connectBinary(t).Delete(t.Context(), ownership.Object{UID: "u", Kind: nodeKind, Name: "n", ResourceVersion: "7"}, verdict.Orphan); err != nil {
		t.Fatal(err)
	}
	if w.path != "/api/v1/nodes/n" || w.sentType != runtime.ContentTypeProtobuf {
		t.Errorf("%s with %s", w.path, w.sentType)
	}
	var options metav1.DeleteOptions
	if _, _, err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Decode([]byte(w.sent), nil, &options); err != nil {
		t.Fatal(err)
	}
	p, policy := options.Preconditions, options.PropagationPolicy
	if p == nil || p.UID == nil || *p.UID != "u" || p.ResourceVersion == nil || *p.ResourceVersion != "7" || policy == nil || *policy != metav1.DeletePropagationOrphan {
		t.Errorf("options %v", options)
	}
}

// A rate limit that the configuration sets bounds deletions too.
func TestDeleteKeepsToTheRateLimit(t *testing.T) {
	w := answerWith(`{"apiVersion":"v1","kind":"Status","status":"Success"}`)
	config := w.config(t)
	config.QPS, config.Burst = 0.001, 1
	c, err := client.New(config, mapping{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Delete(ctx, observedPod, verdict.Background); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(ctx, observedPod, verdict.Background); err == nil || client.IsRefusal(err) || w.requests != 1 {
		t.Errorf("%d requests, %v; one request in 1000 s is allowed", w.requests, err)
	}
}

// A server that does not read protobuf gets JSON, at once, and from then on.
func TestDeleteInJSONAfterRefusal(t *testing.T) {
	for reason, code := range map[metav1.StatusReason]int{metav1.StatusReasonUnsupportedMediaType: http.StatusUnsupportedMediaType, metav1.StatusReasonNotAcceptable: http.StatusNotAcceptable} {
		w := &fakeServer{code: code, contentType: "application/json", body: fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)}
		c := w.connectBinary(t)
		for _, requests := range []int{2, 3} {
			if err := c.Delete(t.Context(), observedPod, verdict.Background); apierrors.ReasonForError(err) != reason {
				t.Fatalf("%s: %v", reason, err)
			}
			if w.requests != requests || w.sentType != runtime.ContentTypeJSON {
				t.Errorf("%s: %d requests, the last one in %s; want %d", reason, w.requests, w.sentType, requests)
			}
		}
	}
}

// R31: a webhook that answers a write with 404 has refused it; the kind is served.
func TestR31_WebhooksAnswerWithAnyCode(t *testing.T) {
	const denied = `admission webhook "keep.example.com" denied the request: it is kept`
	w := &fakeServer{code: http.StatusNotFound, contentType: "application/json", body: `{"kind":"Status","apiVersion":"v1","status":"Failure","message":` + strconv.Quote(denied) + `,"code":404}`}
	c := w.connect(t)
	_, patched := c.PatchOwners(t.Context(), observedPod, nil)
	for verb, err := range map[string]error{"DELETE": c.Delete(t.Context(), observedPod, verdict.Background), "PATCH": patched} {
		if r, refused := refusal.Of(err); !refused || r.By != refusal.ByWebhook || r.Message != "it is kept" || !client.IsRefusal(err) {
			t.Errorf("%s: %v", verb, err)
		}
	}
	if _, err := c.Get(t.Context(), client.RefOf(observedPod)); apierrors.IsNotFound(err) {
		t.Errorf("GET: %v, which is no proof", err)
	}
}

// R16: a patch writes one list and its conditions, and every flag as it was read.
func TestR16_PatchesOnTheWire(t *testing.T) {
	owners := []ownership.Reference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "o", Controller: ownership.True, BlockOwnerDeletion: ownership.False},
		{APIVersion: "v1", Kind: "Node", Name: "n", UID: "m"},
	}
	tests := map[string]struct {
		call func(c *client.Client) (ownership.Object, error)
		want string
	}{
		"owners": {
			func(c *client.Client) (ownership.Object, error) {
				return c.PatchOwners(t.Context(), observedPod, owners)
			},
			`{"metadata":{"uid":"u","resourceVersion":"7","ownerReferences":[
				{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"o","controller":true,"blockOwnerDeletion":false},
				{"apiVersion":"v1","kind":"Node","name":"n","uid":"m"}]}}`,
		},
		"no owners": {
			func(c *client.Client) (ownership.Object, error) {
				return c.PatchOwners(t.Context(), observedPod, nil)
			},
			`{"metadata":{"uid":"u","resourceVersion":"7","ownerReferences":null}}`,
		},
		"finalizers": {
			func(c *client.Client) (ownership.Object, error) {
				return c.PatchFinalizers(t.Context(), observedPod, []string{"example.com/own"})
			},
			`{"metadata":{"uid":"u","resourceVersion":"7","finalizers":["example.com/own"]}}`,
		},
		"no finalizers": {
			func(c *client.Client) (ownership.Object, error) {
				return c.PatchFinalizers(t.Context(), observedPod, []string{})
			},
			`{"metadata":{"uid":"u","resourceVersion":"7","finalizers":null}}`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := answerWith(podAnswer)
			got, err := test.call(w.connect(t))
			if err != nil {
				t.Fatal(err)
			}
			if w.method != "PATCH" || w.sentType != "application/merge-patch+json" || !strings.Contains(w.accept, "as=PartialObjectMetadata") {
				t.Errorf("%s of %s, accepts %s", w.method, w.sentType, w.accept)
			}
			sameJSON(t, w.sent, test.want)
			if diff := cmp.Diff(answeredPod, got); diff != "" {
				t.Errorf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGetReadsMetadataOnly(t *testing.T) {
	w := answerWith(podAnswer)
	got, err := w.connect(t).Get(t.Context(), podRef("a"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(answeredPod, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	if w.path != "/api/v1/namespaces/shop/pods/a" || !strings.Contains(w.accept, "as=PartialObjectMetadata") {
		t.Errorf("GET %s accepts %s", w.path, w.accept)
	}
}

// A name in an owner reference is any text: none leads to an object of another namespace, or to a path that is no object.
func TestR5_NoNameLeadsElsewhere(t *testing.T) {
	w := answerWith(podAnswer)
	c := w.connect(t)
	for _, ref := range []client.Ref{podRef("../../other/pods/a"), podRef("a:8080/proxy/x"), podRef(".."), podRef("a%2fb"), {Kind: podKind, Namespace: "../other", Name: "a"}} {
		o := ownership.Object{UID: "u", Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, ResourceVersion: "7"}
		_, got := c.Get(t.Context(), ref)
		_, patched := c.PatchFinalizers(t.Context(), o, nil)
		if deleted := c.Delete(t.Context(), o, verdict.Background); got == nil || patched == nil || deleted == nil {
			t.Errorf("%s: GET %v, PATCH %v, DELETE %v; want errors", ref, got, patched, deleted)
		}
	}
	if w.requests > 0 {
		t.Errorf("%d requests, the last to %s", w.requests, w.path)
	}
	if _, err := c.Get(t.Context(), podRef("b")); err == nil {
		t.Error("an answer about another object counts")
	}
}

// R15: a list is consistent (no resourceVersion), of metadata, page by page.
func TestR15_ListOnTheWire(t *testing.T) {
	w := answerWith(`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList",
		"metadata":{"resourceVersion":"9","continue":"more"},
		"items":[` + strings.ReplaceAll(podAnswer, "\n", "") + `,{"metadata":{"name":"computed"}}]}`)
	c := w.connect(t)
	for _, test := range []struct {
		kind            ownership.Kind
		namespace, path string
	}{
		{podKind, space, "/api/v1/namespaces/shop/pods"},
		{podKind, "", "/api/v1/pods"},
		{nodeKind, "", "/api/v1/nodes"},
	} {
		got, err := c.List(t.Context(), test.kind, test.namespace, 500, "token")
		if err != nil {
			t.Fatal(err)
		}
		answered := answeredPod
		answered.Kind = test.kind
		want := client.Page{Objects: []ownership.Object{answered}, ResourceVersion: "9", Continue: "more"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("page (-want +got):\n%s", diff)
		}
		if w.path != test.path || w.query != "continue=token&limit=500" || !strings.Contains(w.accept, "as=PartialObjectMetadataList") {
			t.Errorf("GET %s?%s accepts %s", w.path, w.query, w.accept)
		}
	}
	if _, err := c.List(t.Context(), nodeKind, space, 500, ""); err == nil {
		t.Error("a cluster-scoped kind was listed in a namespace")
	}
	if _, err := c.List(t.Context(), widgetKind, "", 500, ""); err == nil || !strings.Contains(err.Error(), "not served") {
		t.Errorf("error = %v, want one about a kind that is not served", err)
	}
	if got, err := c.Survey(t.Context()); err != nil || len(got.Namespaced) != 2 || c.Reached(podKind) != "5" {
		t.Errorf("watched %+v, %v up to %s, want what the mapper says", got, err, c.Reached(podKind))
	}
}

func TestR15_ListThatIsRefused(t *testing.T) {
	w := &fakeServer{code: http.StatusForbidden, contentType: "application/json", body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`}
	if _, err := w.connect(t).List(t.Context(), podKind, space, 500, ""); !apierrors.IsForbidden(err) {
		t.Errorf("error = %v, want forbidden", err)
	}
}

// R15: the answer of our own server is translated from resources to kinds; kinds that it does
// not know are left out.
func TestR15_NewestIsTranslatedToKinds(t *testing.T) {
	w := &fakeServer{code: http.StatusOK, contentType: "application/json", body: `{"history":"one","now":12,"writes":{"pods":7,"replicasets.apps":11,"other":12}}`}
	got, err := w.connect(t).Newest(t.Context(), []ownership.Kind{podKind, setKind, nodeKind, widgetKind})
	want := client.Newest{History: "one", Now: 12, Writes: map[ownership.Kind]uint64{podKind: 7, setKind: 11}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got)\n%s", err, diff)
	}
	if w.method != http.MethodGet || w.path != "/coppice/newest" {
		t.Errorf("it asked %s %s", w.method, w.path)
	}
}

// Servers without an answer rarely get a request.
func TestR15_NewestOfOtherServers(t *testing.T) {
	for name, w := range map[string]*fakeServer{
		"not found":       {code: http.StatusNotFound, contentType: "text/plain", body: "404 page not found"},
		"not allowed":     {code: http.StatusForbidden, contentType: "application/json", body: "{}"},
		"something else":  {code: http.StatusOK, contentType: "text/html", body: "<html>"},
		"not the numbers": {code: http.StatusOK, contentType: "application/json", body: `{"history":"one","now":-1}`},
	} {
		t.Run(name, func(t *testing.T) {
			c := w.connect(t)
			if _, err := c.Newest(t.Context(), nil); err == nil {
				t.Error("no error")
			}
			for range 100 {
				if got, err := c.Newest(t.Context(), nil); err != nil || got.History != "" {
					t.Fatalf("%+v, %v", got, err)
				}
			}
			if _, err := c.Newest(t.Context(), nil); err == nil || w.requests != 2 {
				t.Errorf("asked %d times in 102, want 2; %v", w.requests, err)
			}
		})
	}
}

// R3: only a 404 about the object is evidence. A server that does not serve the kind, or not
// yet, answers 404 too.
func TestR3_WhichNotFoundIsEvidence(t *testing.T) {
	status := func(name string) *fakeServer {
		return &fakeServer{code: http.StatusNotFound, contentType: "application/json", body: fmt.Sprintf(
			`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"details":{"name":%q,"kind":"pods"}}`, name)}
	}
	tests := map[string]struct {
		answer *fakeServer
		ref    client.Ref
		want   bool
	}{
		"about the object":         {status("a"), podRef("a"), true},
		"about something else":     {status("shop"), podRef("a"), false},
		"path not found":           {&fakeServer{code: http.StatusNotFound, contentType: "text/plain", body: "404 page not found"}, podRef("a"), false},
		"kind not mapped":          {status("a"), client.Ref{Kind: ownership.Kind{Kind: "Widget"}, Name: "a"}, false},
		"namespace missing in ref": {status("a"), client.Ref{Kind: podKind, Name: "a"}, false},
		"namespace too much":       {status("a"), client.Ref{Kind: nodeKind, Namespace: space, Name: "a"}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := test.answer.connect(t)
			_, reading := c.Get(t.Context(), test.ref)
			deleting := c.Delete(t.Context(), ownership.Object{Kind: test.ref.Kind, Namespace: test.ref.Namespace, Name: test.ref.Name}, verdict.Background)
			for _, err := range []error{reading, deleting} {
				if err == nil || apierrors.IsNotFound(err) != test.want {
					t.Errorf("IsNotFound(%v) = %v, want %v", err, apierrors.IsNotFound(err), test.want)
				}
			}
		})
	}
}

// An answer with Retry-After is returned with the time to wait in it; the client does not wait and ask again.
func TestClientDoesNotWait(t *testing.T) {
	for name, w := range map[string]*fakeServer{
		"flow control": {code: http.StatusTooManyRequests, contentType: "text/plain", body: "Too many requests, please try again later."},
		"unavailable":  {code: http.StatusServiceUnavailable, contentType: "text/plain", body: "apiserver is shutting down"},
	} {
		t.Run(name, func(t *testing.T) {
			w.header = map[string]string{"Retry-After": "9"}
			err := w.connect(t).Delete(t.Context(), observedPod, verdict.Background)
			seconds, ok := apierrors.SuggestsClientDelay(err)
			if !ok || seconds != 9 || w.requests != 1 {
				t.Errorf("error %v suggests %d s (%v) after %d requests", err, seconds, ok, w.requests)
			}
			if want := w.code == http.StatusTooManyRequests; apierrors.IsTooManyRequests(err) != want {
				t.Errorf("IsTooManyRequests(%v) = %v", err, !want)
			}
		})
	}
}

func TestConflictOnTheWire(t *testing.T) {
	w := &fakeServer{code: http.StatusConflict, contentType: "application/json", body: `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`}
	if err := w.connect(t).Delete(t.Context(), observedPod, verdict.Background); !apierrors.IsConflict(err) {
		t.Errorf("error = %v, want a conflict", err)
	}
}

func TestEventOnTheWire(t *testing.T) {
	w := answerWith(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"x"}}`)
	config := w.config(t)
	config.ContentType = "application/json"
	events, err := client.NewEventClient(config, mapping{}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	if err := events.Warn(t.Context(), observedPod, "OwnerRefInvalidNamespace", "why"); err != nil {
		t.Fatal(err)
	}
	var event corev1.Event
	if err := json.Unmarshal([]byte(w.sent), &event); err != nil {
		t.Fatal(err)
	}
	wantRegarding := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: space, Name: "a", UID: "u", ResourceVersion: "7"}
	if diff := cmp.Diff(wantRegarding, event.InvolvedObject); diff != "" {
		t.Errorf("regarding (-want +got):\n%s", diff)
	}
	if w.path != "/api/v1/namespaces/shop/events" || event.Type != "Warning" || event.Reason != "OwnerRefInvalidNamespace" || event.Message != "why" {
		t.Errorf("POST %s of %+v", w.path, event)
	}

	node := ownership.Object{UID: "n", Kind: nodeKind, Name: strings.Repeat("n", 253)}
	if err := events.Warn(t.Context(), node, "OwnerRefInvalidNamespace", "why"); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(w.sent), &event); err != nil {
		t.Fatal(err)
	}
	if w.path != "/api/v1/namespaces/default/events" || len(event.Name) > 253 {
		t.Errorf("POST %s with a name of %d characters", w.path, len(event.Name))
	}
}
