package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// client sends and receives JSON, so that tests see the data on the wire.
type client struct {
	http *http.Client
	base string
}

// object is an API object or a Status as decoded from JSON.
type object = unstructured.Unstructured

func newClient(config *rest.Config) (*client, error) {
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &client{http: transport, base: config.Host}, nil
}

// client returns an in-process client of the administrator.
func (s *server) client(t testing.TB) *client {
	t.Helper()
	c, err := newClient(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// send sends a request. The error is the Status in the response.
func (c *client) send(method, path, contentType string, body any) (*object, error) {
	_, answer, err := c.exchange(method, path, contentType, body)
	return answer, err
}

// exchange is like send and also returns the HTTP status.
func (c *client) exchange(method, path, contentType string, body any) (int, *object, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(context.Background(), method, c.base+path, content)
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("Content-Type", contentType)
	response, err := c.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	answer := &object{}
	if err := answer.UnmarshalJSON(data); err != nil {
		return response.StatusCode, nil, fmt.Errorf("%s %s: %s: %q: %w", method, path, response.Status, data, err)
	}
	if response.StatusCode >= http.StatusBadRequest {
		var status metav1.Status
		if err := json.Unmarshal(data, &status); err != nil {
			return response.StatusCode, nil, err
		}
		return response.StatusCode, nil, &apierrors.StatusError{ErrStatus: status}
	}
	return response.StatusCode, answer, nil
}

// collection is the objects of a resource, in a namespace if the resource is namespaced.
type collection struct {
	*client
	t        testing.TB
	path     string
	resource schema.GroupResource
	kind     schema.GroupVersionKind
	content  map[string]any
}

func (c collection) at(name string, subresource ...string) string {
	path := c.path + "/" + name
	for _, s := range subresource {
		path += "/" + s
	}
	return path
}

// named returns an object of the kind without creating it.
func (c collection) named(name string, finalizers ...string) *object {
	o := (&object{Object: c.content}).DeepCopy()
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetGroupVersionKind(c.kind)
	o.SetName(name)
	o.SetFinalizers(finalizers)
	return o
}

// create creates an object, and fails the test on an error.
func (c collection) create(name string, finalizers ...string) *object {
	c.t.Helper()
	return c.post(c.named(name, finalizers...))
}

func (c collection) post(o *object) *object {
	c.t.Helper()
	created, err := c.tryPost(o)
	if err != nil {
		c.t.Fatalf("create %s: %v", o.GetName(), err)
	}
	return created
}

func (c collection) tryPost(o *object) (*object, error) {
	return c.send(http.MethodPost, c.path, "application/json", o)
}

// get returns the object, or nil if it does not exist.
func (c collection) get(name string) *object {
	c.t.Helper()
	o, err := c.send(http.MethodGet, c.at(name), "", nil)
	if err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatalf("get %s: %v", name, err)
	}
	return o
}

// names returns the names of all objects.
func (c collection) names() []string {
	c.t.Helper()
	names := []string{}
	for _, o := range c.list() {
		names = append(names, o.GetName())
	}
	slices.Sort(names)
	return names
}

func (c collection) list() []object {
	c.t.Helper()
	answer, err := c.send(http.MethodGet, c.path, "", nil)
	if err != nil {
		c.t.Fatal(err)
	}
	return items(c.t, answer)
}

func items(t testing.TB, answer *object) []object {
	t.Helper()
	list, err := answer.ToList()
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// remove deletes an object. With nil options, the request has no body.
func (c collection) remove(name string, options *metav1.DeleteOptions) (*object, error) {
	if options == nil {
		return c.send(http.MethodDelete, c.at(name), "", nil)
	}
	return c.send(http.MethodDelete, c.at(name), "application/json", options)
}

// mustRemove is like remove, and fails the test on an error.
func (c collection) mustRemove(name string, options *metav1.DeleteOptions) *object {
	c.t.Helper()
	answer, err := c.remove(name, options)
	if err != nil {
		c.t.Fatalf("delete %s: %v", name, err)
	}
	return answer
}

// removeAll deletes the objects of the collection that query selects.
func (c collection) removeAll(query url.Values, options *metav1.DeleteOptions) (*object, error) {
	path := c.path
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if options == nil {
		return c.send(http.MethodDelete, path, "", nil)
	}
	return c.send(http.MethodDelete, path, "application/json", options)
}

func (c collection) put(o *object, subresource ...string) (*object, error) {
	return c.send(http.MethodPut, c.at(o.GetName(), subresource...), "application/json", o)
}

func (c collection) patch(name string, kind types.PatchType, patch any, subresource ...string) (*object, error) {
	return c.send(http.MethodPatch, c.at(name, subresource...), string(kind), patch)
}

// mergeFinalizers returns a merge patch of the finalizers.
func mergeFinalizers(finalizers ...string) map[string]any {
	return map[string]any{"metadata": map[string]any{"finalizers": slices.Clone(finalizers)}}
}

// isStatus reports whether a response is a Status and not an object.
func isStatus(o *object) bool { return o.GetKind() == "Status" }

// count makes the names of objects unique.
var count atomic.Int64

func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, count.Add(1)) }

// namespace creates a namespace for one test.
func (s *server) namespace(t testing.TB) string {
	t.Helper()
	name := unique("test")
	s.namespaces(t).create(name)
	return name
}
