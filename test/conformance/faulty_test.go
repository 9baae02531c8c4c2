package conformance

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// middle is what stands between a client and the server.
type middle func(to upstream, r *http.Request) (*http.Response, error)

// upstream is the server behind a middle.
type upstream struct{ http.RoundTripper }

// wrapped makes a transport of a middle.
func wrapped(m middle) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return faultyTransport{m, upstream{next}} }
}

type faultyTransport struct {
	middle middle
	to     upstream
}

// RoundTrip implements http.RoundTripper.
func (t faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) { return t.middle(t.to, r) }

// collectBehind runs a collector and a namespace controller behind a middle until the test ends.
func (w *cluster) collectBehind(m func() middle) {
	w.t.Helper()
	config := rest.CopyConfig(w.server.Config)
	if m != nil {
		config.Wrap(wrapped(m()))
	}
	c, err := startCollector(config, collectingAndEmptying)
	if err != nil {
		w.t.Fatal(err)
	}
	w.server.collector = c
	w.t.Cleanup(func() {
		c.stop()
		w.server.collector = nil
	})
	waitFor(w.t, c)
}

// ask sends a request of the middle's own, and returns the answer's code and object.
func (to upstream) ask(r *http.Request, method, path, body string) (int, *unstructured.Unstructured) {
	at := *r.URL
	at.Path, at.RawQuery = path, ""
	own, err := http.NewRequestWithContext(r.Context(), method, at.String(), strings.NewReader(body))
	if err != nil {
		return 0, nil
	}
	own.Header.Set("Accept", "application/json")
	own.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		own.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := to.RoundTrip(own)
	if err != nil {
		return 0, nil
	}
	defer response.Body.Close()
	o := &unstructured.Unstructured{}
	if text, err := io.ReadAll(response.Body); err != nil || json.Unmarshal(text, &o.Object) != nil {
		return response.StatusCode, &unstructured.Unstructured{}
	}
	return response.StatusCode, o
}

// bodyOf reads the body of a request, which can still be sent.
func bodyOf(r *http.Request) []byte {
	if r.Body == nil {
		return nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// withBody returns a request with another body.
func withBody(r *http.Request, body []byte) *http.Request {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return r
}

// answerOf makes the answer to a request.
func answerOf(r *http.Request, code int, object any) *http.Response {
	body, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("encode an answer: %v", err))
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}

// change returns the new value of a field of a body, and whether the field is to be there.
type change func(old any) (value any, isThere bool)

func nothing(any) (any, bool) { return nil, false }

func always(value any) change { return func(any) (any, bool) { return value, true } }

func instead(of, other metav1.DeletionPropagation) change {
	return func(old any) (any, bool) {
		if old == string(of) {
			return string(other), true
		}
		return old, old != nil
	}
}

func byDefault(policy metav1.DeletionPropagation) change {
	return func(old any) (any, bool) {
		if old == nil {
			return string(policy), true
		}
		return old, true
	}
}

// changed changes a field in the bodies of requests with a method. The field of a PATCH is changed
// where it is.
func changed(method, field string, to change) middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		body := map[string]any{}
		if r.Method != method || json.Unmarshal(bodyOf(r), &body) != nil {
			return server.RoundTrip(r)
		}
		path := strings.Split(field, ".")
		old, isThere, _ := unstructured.NestedFieldNoCopy(body, path...)
		if method == http.MethodPatch && !isThere {
			return server.RoundTrip(r)
		}
		unstructured.RemoveNestedField(body, path...)
		if value, ok := to(old); ok {
			if err := unstructured.SetNestedField(body, value, path...); err != nil {
				return nil, err
			}
		}
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		return server.RoundTrip(withBody(r, text))
	}
}

// refused answers requests whose body has some text with 500.
func refused(method, text string) middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		if r.Method == method && bytes.Contains(bodyOf(r), []byte(text)) {
			return refusal(rule{status: serverError, reason: string(serverErrorReason)}), nil
		}
		return server.RoundTrip(r)
	}
}

// afterwards does something after requests that have succeeded.
func afterwards(which func(r *http.Request, body []byte) bool, do func(server upstream, r *http.Request, body []byte)) middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		body := bodyOf(r)
		response, err := server.RoundTrip(r)
		if err == nil && response.StatusCode < http.StatusBadRequest && which(r, body) {
			do(server, r, body)
		}
		return response, err
	}
}

// around does something before requests and after them.
func around(which func(r *http.Request, body []byte) bool, do func(server upstream, r *http.Request, body []byte)) middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		body := bodyOf(r)
		if !which(r, body) {
			return server.RoundTrip(r)
		}
		do(server, r, body)
		response, err := server.RoundTrip(r)
		do(server, r, body)
		return response, err
	}
}

// deletes matches every DELETE that is not a dry run.
func deletes(r *http.Request, body []byte) bool {
	return r.Method == http.MethodDelete && !bytes.Contains(body, []byte("dryRun"))
}

func deletesOfNamespaces(r *http.Request, body []byte) bool {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	return deletes(r, body) && len(parts) == 4 && parts[2] == probe.Namespaces.Resource
}

func createsOfDependents(r *http.Request, body []byte) bool {
	return r.Method == http.MethodPost && bytes.Contains(body, []byte("ownerReferences"))
}

// withoutFinalizers takes all finalizers from the object of a request.
func withoutFinalizers(server upstream, r *http.Request, _ []byte) {
	server.ask(r, http.MethodPatch, r.URL.Path, `{"metadata":{"finalizers":null}}`)
}

// finalized takes spec.finalizers from a namespace. A namespace that is being deleted then goes, whatever it contains.
func finalized(server upstream, r *http.Request, _ []byte) {
	code, ns := server.ask(r, http.MethodGet, r.URL.Path, "")
	if code != http.StatusOK {
		return
	}
	unstructured.RemoveNestedField(ns.Object, "spec", "finalizers")
	if text, err := ns.MarshalJSON(); err == nil {
		server.ask(r, http.MethodPut, r.URL.Path+"/finalize", string(text))
	}
}

// deletedIfUnserved deletes an object with an owner whose group version is not served.
func deletedIfUnserved(server upstream, r *http.Request, body []byte) {
	o := &unstructured.Unstructured{}
	if json.Unmarshal(body, &o.Object) != nil {
		return
	}
	for _, owner := range o.GetOwnerReferences() {
		if code, _ := server.ask(r, http.MethodGet, "/apis/"+owner.APIVersion, ""); code == http.StatusNotFound && owner.APIVersion != "v1" {
			server.ask(r, http.MethodDelete, r.URL.Path+"/"+o.GetName(), "{}")
		}
	}
}

// rewritten changes the metadata in answers to the GET of one object, which come as JSON.
func rewritten(server upstream, r *http.Request, rewrite func(metadata map[string]any)) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	response, err := server.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		return response, err
	}
	defer response.Body.Close()
	o := map[string]any{}
	if err := json.NewDecoder(response.Body).Decode(&o); err != nil {
		return nil, err
	}
	if metadata, ok := o["metadata"].(map[string]any); ok {
		rewrite(metadata)
	}
	return answerOf(r, http.StatusOK, o), nil
}

// asked are the grace periods of the DELETEs of each path.
type asked struct {
	sync.Mutex
	seconds map[string][]float64 // guarded
}

// note records the grace period of a DELETE, and returns the recorded ones of the path.
func (a *asked) note(r *http.Request) []float64 {
	a.Lock()
	defer a.Unlock()
	if a.seconds == nil {
		a.seconds = map[string][]float64{}
	}
	options := map[string]any{}
	if r.Method == http.MethodDelete && json.Unmarshal(bodyOf(r), &options) == nil {
		if s, ok := options["gracePeriodSeconds"].(float64); ok {
			a.seconds[r.URL.Path] = append(a.seconds[r.URL.Path], s)
		}
	}
	return slices.Clone(a.seconds[r.URL.Path])
}

// postponed moves the end of a deletion by a minute with every DELETE after the first.
func postponed() middle {
	var deletes asked
	return func(server upstream, r *http.Request) (*http.Response, error) {
		n := len(deletes.note(r))
		if r.Method != http.MethodGet || n < 2 {
			return server.RoundTrip(r)
		}
		return rewritten(server, r, func(metadata map[string]any) {
			text, _ := metadata["deletionTimestamp"].(string)
			if end, err := time.Parse(time.RFC3339, text); err == nil {
				metadata["deletionTimestamp"] = end.Add(time.Duration(n-1) * time.Minute).Format(time.RFC3339)
			}
		})
	}
}

// growing has the longest grace period count that was asked for.
func growing() middle {
	var deletes asked
	return func(server upstream, r *http.Request) (*http.Response, error) {
		all := deletes.note(r)
		if r.Method != http.MethodGet || len(all) == 0 {
			return server.RoundTrip(r)
		}
		return rewritten(server, r, func(metadata map[string]any) {
			metadata["deletionGracePeriodSeconds"] = slices.Max(all)
		})
	}
}

// unselected ignores the label selector of the DELETE of a collection.
func unselected() middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		if query := r.URL.Query(); r.Method == http.MethodDelete && query.Has("labelSelector") {
			r = r.Clone(r.Context())
			query.Del("labelSelector")
			r.URL.RawQuery = query.Encode()
		}
		return server.RoundTrip(r)
	}
}

// accepting answers creations that were refused because the namespace terminates as if they were not.
func accepting() middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		o := &unstructured.Unstructured{}
		if r.Method != http.MethodPost || json.Unmarshal(bodyOf(r), &o.Object) != nil {
			return server.RoundTrip(r)
		}
		response, err := server.RoundTrip(r)
		if err != nil || response.StatusCode != http.StatusForbidden {
			return response, err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || !bytes.Contains(text, []byte(corev1.NamespaceTerminatingCause)) {
			response.Body = io.NopCloser(bytes.NewReader(text))
			return response, err
		}
		o.SetUID(uuid.NewUUID())
		return answerOf(r, http.StatusCreated, o), nil
	}
}

// keeping answers the collector's DELETEs of some objects as if they had been carried out.
func keeping(which func(server upstream, r *http.Request, o *unstructured.Unstructured) bool) middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodDelete {
			if code, o := server.ask(r, http.MethodGet, r.URL.Path, ""); code == http.StatusOK && which(server, r, o) {
				return answerOf(r, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}), nil
			}
		}
		return server.RoundTrip(r)
	}
}

// hasNamesake reports whether an object with the name of an owner exists and is another one.
func hasNamesake(server upstream, r *http.Request, o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		path := "/api/" + owner.APIVersion + "/namespaces/" + o.GetNamespace() + "/" + strings.ToLower(owner.Kind) + "s/" + owner.Name
		code, now := server.ask(r, http.MethodGet, path, "")
		return code == http.StatusOK && now.GetUID() != owner.UID
	})
}

// isOwnedElsewhere reports whether an owner of an object is in another namespace.
func isOwnedElsewhere(server upstream, r *http.Request, o *unstructured.Unstructured) bool {
	return slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool {
		_, list := server.ask(r, http.MethodGet, "/api/"+owner.APIVersion+"/"+strings.ToLower(owner.Kind)+"s", "")
		items, _, _ := unstructured.NestedSlice(list.Object, "items")
		return slices.ContainsFunc(items, func(item any) bool {
			one := unstructured.Unstructured{Object: item.(map[string]any)}
			return one.GetUID() == owner.UID && one.GetNamespace() != o.GetNamespace()
		})
	})
}

// detachedForGood deletes objects that the collector would detach from some of their owners.
func detachedForGood() middle {
	return func(server upstream, r *http.Request) (*http.Response, error) {
		body := map[string]any{}
		if r.Method != http.MethodPatch || json.Unmarshal(bodyOf(r), &body) != nil {
			return server.RoundTrip(r)
		}
		if owners, _, _ := unstructured.NestedSlice(body, "metadata", "ownerReferences"); len(owners) == 0 {
			return server.RoundTrip(r)
		}
		server.ask(r, http.MethodDelete, r.URL.Path, "{}")
		return refusal(rule{status: http.StatusNotFound, reason: string(metav1.StatusReasonNotFound)}), nil
	}
}
