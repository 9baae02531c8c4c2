package differential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const widgetGroup = "differential.coppice.dev"

// apiServer is one of the two API servers, accessed in JSON.
type apiServer struct {
	name   string
	client *http.Client
	base   string
}

// servers returns our server and the kube-apiserver that the kubeconfig in kubeconfigVariable names. It skips the test
// if none is named.
func servers(t *testing.T) [2]*apiServer {
	t.Helper()
	path := os.Getenv(kubeconfigVariable)
	if path == "" {
		t.Skipf("%s names no kube-apiserver to compare with", kubeconfigVariable)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return [2]*apiServer{newServer(t, "ours", startOurs(t)), newServer(t, "theirs", config)}
}

func newServer(t *testing.T, name string, config *rest.Config) *apiServer {
	t.Helper()
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &apiServer{name: name, client: client, base: config.Host}
}

// send makes one request and decodes the answer.
func (s *apiServer) send(ctx context.Context, method, path, contentType string, body any) (int, *unstructured.Unstructured, error) {
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequestWithContext(ctx, method, s.base+path, content)
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "differential") // managed fields name it
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err
	}
	answer := &unstructured.Unstructured{}
	if err := utiljson.Unmarshal(data, &answer.Object); err != nil {
		return 0, nil, fmt.Errorf("%s %s: %d %q: %w", method, path, response.StatusCode, data, err)
	}
	return response.StatusCode, answer, nil
}

// define makes the custom resource, and waits until it is served.
func (s *apiServer) define(t *testing.T) {
	t.Helper()
	free := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	definition := map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "widgets." + widgetGroup},
		"spec": map[string]any{
			"group": widgetGroup, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": "v1", "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": free}}},
			}},
		},
	}
	if code, answer, err := s.send(t.Context(), http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", definition); err != nil || code != http.StatusCreated && code != http.StatusConflict {
		t.Fatalf("%s: define: %d %v %v", s.name, code, answer, err)
	}
	// A create is refused for longer than a list.
	probe := map[string]any{"apiVersion": widgetGroup + "/v1", "kind": "Widget", "metadata": map[string]any{"name": "probe"}}
	eventually.Succeeds(t, func() error {
		code, answer, err := s.send(t.Context(), http.MethodPost, "/apis/"+widgetGroup+"/v1/namespaces/default/widgets", "application/json", probe)
		if err == nil && code != http.StatusCreated && code != http.StatusConflict {
			err = fmt.Errorf("%s: create a custom resource: %d %v", s.name, code, answer)
		}
		return err
	})
}

// prepare makes the namespace of a sequence.
func (s *apiServer) prepare(ctx context.Context, namespace string) error {
	code, answer, err := s.send(ctx, http.MethodPost, "/api/v1/namespaces", "application/json", map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	})
	if err == nil && code != http.StatusCreated {
		err = fmt.Errorf("%d %v", code, answer)
	}
	if err != nil {
		return fmt.Errorf("%s: create namespace %s: %w", s.name, namespace, err)
	}
	return nil
}

// memory holds the known objects of a sequence on one server.
type memory struct {
	before *unstructured.Unstructured  // the object that the last request was about, as it was; nil for none
	all    []unstructured.Unstructured // the objects that it was about, as they were
	former map[string]types.UID        // by name: the uid of the object before the one that is there
	last   map[string]types.UID        // by name: the uid of the last one seen
}

func newMemory() *memory {
	return &memory{former: map[string]types.UID{}, last: map[string]types.UID{}}
}

func (m *memory) see(name string, o *unstructured.Unstructured) {
	m.before = o
	if o == nil || o.GetUID() == m.last[name] {
		return
	}
	m.former[name], m.last[name] = m.last[name], o.GetUID()
}

// uid and version translate a word into this server's values.
func (m *memory) uid(name, word string) *types.UID {
	var uid types.UID
	switch word {
	case "":
		return nil
	case "current":
		uid = m.last[name]
	case "former":
		uid = m.former[name]
	}
	if uid == "" {
		uid = "00000000-0000-0000-0000-000000000000"
	}
	return &uid
}

func (m *memory) version(word string) *string {
	version := "1"
	switch {
	case word == "":
		return nil
	case word == "current" && m.before != nil:
		version = m.before.GetResourceVersion()
	}
	return &version
}

// look records the state before a request.
func (s *apiServer) look(ctx context.Context, r request, m *memory, path string) error {
	m.all = nil
	if r.name == "" {
		_, answer, err := s.send(ctx, http.MethodGet, path, "", nil)
		if err != nil {
			return err
		}
		list, err := answer.ToList()
		if err != nil {
			return err
		}
		m.all = list.Items
		return nil
	}
	before, err := s.get(ctx, path+"/"+r.name)
	if err != nil {
		return err
	}
	m.see(r.name, before)
	if before != nil {
		m.all = []unstructured.Unstructured{*before}
	}
	return nil
}

func (s *apiServer) get(ctx context.Context, path string) (*unstructured.Unstructured, error) {
	code, answer, err := s.send(ctx, http.MethodGet, path, "", nil)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusNotFound:
		return nil, nil
	case code != http.StatusOK:
		return nil, fmt.Errorf("get %s: %d %v", path, code, answer)
	}
	return answer, nil
}

func (s *apiServer) carryOut(ctx context.Context, r request, m *memory, path string) (int, *unstructured.Unstructured, error) {
	object := path + "/" + r.name
	switch r.verb {
	case "create":
		return s.send(ctx, http.MethodPost, path, "application/json", r.object)
	case "get":
		return s.send(ctx, http.MethodGet, object, "", nil)
	case "patch":
		patch := map[string]any{"metadata": maps.Clone(r.object["metadata"].(map[string]any))}
		if uid := m.uid(r.name, r.uid); uid != nil {
			patch["metadata"].(map[string]any)["uid"] = *uid
		}
		if version := m.version(r.version); version != nil {
			patch["metadata"].(map[string]any)["resourceVersion"] = *version
		}
		return s.send(ctx, http.MethodPatch, object, r.patchType, patch)
	case "put", "finalize":
		return s.put(ctx, r, m, object)
	case "delete", "deletecollection":
		return s.delete(ctx, r, m, path)
	}
	return 0, nil, errors.New("unknown verb " + r.verb)
}

// put replaces the object by a copy with other finalizers.
func (s *apiServer) put(ctx context.Context, r request, m *memory, path string) (int, *unstructured.Unstructured, error) {
	if m.before == nil {
		return s.send(ctx, http.MethodGet, path, "", nil)
	}
	changed := m.before.DeepCopy()
	finalizers := r.object["finalizers"].([]any)
	if r.verb == "finalize" {
		if err := unstructured.SetNestedSlice(changed.Object, finalizers, "spec", "finalizers"); err != nil {
			return 0, nil, err
		}
		return s.send(ctx, http.MethodPut, path+"/finalize", "application/json", changed.Object)
	}
	if err := unstructured.SetNestedSlice(changed.Object, finalizers, "metadata", "finalizers"); err != nil {
		return 0, nil, err
	}
	switch r.version {
	case "none":
		changed.SetResourceVersion("")
	case "wrong":
		changed.SetResourceVersion("1")
	}
	return s.send(ctx, http.MethodPut, path, "application/json", changed.Object)
}

func (s *apiServer) delete(ctx context.Context, r request, m *memory, path string) (int, *unstructured.Unstructured, error) {
	query := url.Values{}
	var body any
	if r.options != nil {
		options := r.options.DeepCopy()
		if uid, version := m.uid(r.name, r.uid), m.version(r.version); uid != nil || version != nil {
			options.Preconditions = &metav1.Preconditions{UID: uid, ResourceVersion: version}
		}
		if body = options; r.query {
			query, body = inQuery(options), nil
		}
	}
	if r.name != "" {
		path += "/" + r.name
	}
	if r.selector != "" {
		query.Set("labelSelector", r.selector)
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return s.send(ctx, http.MethodDelete, path, "application/json", body)
}

func inQuery(o *metav1.DeleteOptions) url.Values {
	query := url.Values{}
	if o.PropagationPolicy != nil {
		query.Set("propagationPolicy", string(*o.PropagationPolicy))
	}
	if o.OrphanDependents != nil {
		query.Set("orphanDependents", fmt.Sprint(*o.OrphanDependents))
	}
	if o.GracePeriodSeconds != nil {
		query.Set("gracePeriodSeconds", fmt.Sprint(*o.GracePeriodSeconds))
	}
	for _, d := range o.DryRun {
		query.Add("dryRun", d)
	}
	return query
}
