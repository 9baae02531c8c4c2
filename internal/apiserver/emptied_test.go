package apiserver_test

import (
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// bundle is a namespace whose contents a client deletes after the namespace, as `kubectl delete -f` does
// with a file.
type bundle struct {
	*server
	t      *testing.T
	name   string
	config *rest.Config
}

// newBundle creates a namespace. The client is an administrator with a name of its own.
func newBundle(t *testing.T, s *server) bundle {
	config := s.acting(unique("jane"), "system:masters")
	config.UserAgent = "kubectl/v1.32.4 (linux/amd64)"
	return bundle{s, t, s.namespace(t), config}
}

// as returns a collection with the client's configuration, modified by change.
func (b bundle) as(c collection, change func(*rest.Config)) collection {
	b.t.Helper()
	config := rest.CopyConfig(b.config)
	if change != nil {
		change(config)
	}
	var err error
	if c.client, err = newClient(config); err != nil {
		b.t.Fatal(err)
	}
	return c
}

// empty deletes the namespace as the client. Then it deletes the contents and finalizes the namespace as
// another user.
func (b bundle) empty(contents collection, names ...string) {
	b.t.Helper()
	all := b.namespaces(b.t)
	b.as(all, nil).mustRemove(b.name, nil)
	for _, name := range names {
		contents.mustRemove(name, metav1.NewDeleteOptions(0))
	}
	if _, err := all.finalize(all.get(b.name)); err != nil {
		b.t.Fatal(err)
	}
}

// A client that deletes a namespace and then its contents, one by one, may be slower than the namespace
// controller: the deletion of each object that was in the namespace succeeds.
func TestR21_ContentsThatWentWithTheirNamespaceAreDeleted(t *testing.T) {
	s := sharedServer(t)
	_, things := s.things(t)
	pod := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}}}
	for name, in := range map[string]func(namespace string) (collection, string){
		"a config map":                  func(n string) (collection, string) { return s.configMaps(t, n), "" },
		"a pod, which upstream returns": func(n string) (collection, string) { return s.collection(t, gvk("", "v1", "Pod"), "pods", n, pod), "" },
		"a custom resource": func(n string) (collection, string) {
			return s.collection(t, things.kind, things.resource.Resource, n, nil), ""
		},
		"in a legacy version": func(n string) (collection, string) {
			template := map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": pod["spec"]}
			spec := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": template}
			c := s.collection(t, gvk("apps", "v1", "ReplicaSet"), "replicasets", n, map[string]any{"spec": spec})
			return c, "/apis/extensions/v1beta1/namespaces/" + n + "/replicasets"
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t, s)
			contents, path := in(b.name)
			created := contents.create("a")
			b.empty(contents, "a")
			own := b.as(contents, nil)
			if path != "" {
				own.path = path
			}
			answer := own.mustRemove("a", &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
			details, _ := answer.Object["details"].(map[string]any)
			if !isStatus(answer) || answer.Object["status"] != "Success" || details["uid"] != string(created.GetUID()) || details["name"] != "a" || details["kind"] != contents.resource.Resource {
				t.Errorf("the response is %v", answer.Object)
			}
			version, err := strconv.Atoi(answer.GetResourceVersion())
			before, _ := strconv.Atoi(created.GetResourceVersion())
			if err != nil || version <= before+1 { // it was created, the namespace marked, the object removed
				t.Errorf("the resourceVersion of the response is %q, that of the object was %d", answer.GetResourceVersion(), before)
			}
			if own.get("a") != nil {
				t.Error("it can be read")
			}
		})
	}
}

// Other clients get 404, and so do requests with more than the name.
func TestR21_NotFoundIsTheTruthForOthers(t *testing.T) {
	s := sharedServer(t)
	remove := func(name string, options *metav1.DeleteOptions) func(collection) error {
		return func(c collection) error {
			_, err := c.remove(name, options)
			return err
		}
	}
	plain := remove("a", nil)
	for name, test := range map[string]struct {
		change func(*rest.Config)
		before func(b bundle, contents collection) // the deletion of the namespace
		after  func(b bundle)
		do     func(collection) error
	}{
		"another user":                {change: func(c *rest.Config) { c.Impersonate.UserName = "joe" }, do: plain},
		"another program":             {change: func(c *rest.Config) { c.UserAgent = "kube-controller-manager/v1.37.2" }, do: plain},
		"a condition on the uid":      {do: remove("a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("u"))}})},
		"a condition on the version":  {do: remove("a", &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: new("1")}})},
		"a condition in the query":    {do: remove("a?uid=u", nil)},
		"a name that never was":       {do: remove("ab", nil)},
		"the beginning of a name":     {do: remove("aa", nil)},
		"deleted before":              {before: func(_ bundle, c collection) { c.mustRemove("aaa", nil) }, do: remove("aaa", nil)},
		"a namespace that is another": {after: func(b bundle) { b.namespaces(t).create(b.name) }, do: plain},
		"a subresource":               {do: remove("a/status", nil)},
		"a read": {do: func(c collection) error {
			_, err := c.send(http.MethodGet, c.at("a"), "", nil)
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBundle(t, s)
			contents := s.configMaps(t, b.name)
			for _, name := range []string{"a", "aaa", "aab"} {
				contents.create(name)
			}
			left := []string{"a", "aab"}
			if test.before != nil {
				test.before(b, contents)
			} else {
				left = append(left, "aaa")
			}
			b.empty(contents, left...)
			if test.after != nil {
				test.after(b)
			}
			if err := test.do(b.as(contents, test.change)); !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
				t.Errorf("%v, want 404", err)
			}
		})
	}
}

// A dry run of the deletion of a namespace deletes nothing, and a user without permission to delete an object is
// refused, whether or not the object exists.
func TestR21_OnlyWhoMayDeleteIsAnswered(t *testing.T) {
	s := sharedServer(t)
	b := newBundle(t, s)
	contents := s.configMaps(t, b.name)
	contents.create("a")
	b.as(s.namespaces(t), nil).mustRemove(b.name, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	contents.mustRemove("a", nil)
	if _, err := b.as(contents, nil).remove("a", nil); !apierrors.IsNotFound(err) {
		t.Errorf("after a dry run: %v, want 404", err)
	}

	b = newBundle(t, s)
	contents = s.configMaps(t, b.name)
	contents.create("a")
	namespaced := func(c *rest.Config) { c.Impersonate.Groups = nil }
	b.empty(contents, "a")
	if _, err := b.as(contents, namespaced).remove("a", nil); !apierrors.IsForbidden(err) {
		t.Errorf("without the right to delete: %v, want 403", err)
	}
	if _, err := b.as(contents, nil).remove("a", nil); err != nil {
		t.Errorf("with it: %v", err)
	}
}

// The response is in the encoding that the client accepts.
func TestR21_TheResponseIsEncodedAsAccepted(t *testing.T) {
	s := sharedServer(t)
	b := newBundle(t, s)
	contents := s.configMaps(t, b.name)
	contents.create("a")
	b.empty(contents, "a")
	for accept, begins := range map[string]string{"application/yaml": "apiVersion: v1", "application/vnd.kubernetes.protobuf": "k8s\x00", "application/json": "{"} {
		own := b.as(contents, nil)
		request, err := http.NewRequest(http.MethodDelete, own.base+own.at("a")+"?"+url.Values{"propagationPolicy": {"Foreground"}}.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", accept)
		response, err := own.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != accept || !strings.HasPrefix(string(body), begins) {
			t.Errorf("%s: %v %s %q", accept, err, response.Status, body)
		}
	}
}
