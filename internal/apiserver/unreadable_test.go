package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// junk encodes every object as bytes that cannot be decoded.
type junk struct{ runtime.Codec }

func (junk) Decode([]byte, *schema.GroupVersionKind, runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return nil, nil, errors.New("junk")
}

func (junk) Encode(_ runtime.Object, w io.Writer) error {
	_, err := w.Write([]byte("\x00not an object"))
	return err
}

func (junk) Identifier() runtime.Identifier { return "junk" }

type noOptions struct{}

func (noOptions) GetRESTOptions(schema.GroupResource, runtime.Object) (generic.RESTOptions, error) {
	return generic.RESTOptions{}, nil
}

// damage stores a ConfigMap whose bytes cannot be decoded.
func (s *server) damage(t *testing.T, namespace, name string) {
	t.Helper()
	s.storeJunk(t, "configmaps", "/configmaps/"+namespace+"/"+name)
}

func (s *server) storeJunk(t *testing.T, resource, key string) {
	t.Helper()
	options, err := s.store.RESTOptions(noOptions{}, nil, nil).GetRESTOptions(corev1.Resource(resource), nil)
	if err != nil {
		t.Fatal(err)
	}
	config := &storagebackend.ConfigForResource{GroupResource: corev1.Resource(resource), Config: storagebackend.Config{
		Prefix: "/registry", EventsHistoryWindow: storagebackend.DefaultEventsHistoryWindow, Codec: junk{},
	}}
	store, destroy, err := options.Decorator(config, "/"+resource,
		func(runtime.Object) (string, error) { return key, nil },
		func() runtime.Object { return &corev1.ConfigMap{} }, func() runtime.Object { return &corev1.ConfigMapList{} },
		func(runtime.Object) (labels.Set, fields.Set, error) { return nil, nil, nil }, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer destroy()
	if err := store.Create(context.Background(), key, &corev1.ConfigMap{}, nil, 0); err != nil {
		t.Fatal(err)
	}
}

// All errors about an object whose stored bytes cannot be decoded name it. The option
// ignoreStoreReadErrorWithClusterBreakingPotential deletes it, and no other object.
func TestR18_UnreadableObject(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	namespace := s.namespace(t)
	c := s.configMaps(t, namespace)
	c.create("sound", foreign)
	s.damage(t, namespace, "damaged")
	const named = "/configmaps/"
	wants := func(what string, err error) {
		t.Helper()
		if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), named+namespace+"/damaged") {
			t.Errorf("%s: %v, want an internal error that names the object", what, err)
		}
	}
	_, err := c.send(http.MethodGet, c.at("damaged"), "", nil)
	wants("get", err)
	_, err = c.remove("damaged", nil)
	wants("delete", err)
	_, err = c.patch("damaged", "application/merge-patch+json", mergeFinalizers())
	wants("patch", err)
	for _, path := range []string{c.path, c.path + "?limit=500", c.path + "?labelSelector=a%3Db"} {
		if _, err := c.send(http.MethodGet, path, "", nil); err == nil || !strings.Contains(causes(err), "damaged") {
			t.Errorf("list %s: %v, want an error that names the object", path, err)
		}
	}

	ignore := &metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)}
	if _, err := c.remove("sound", ignore); !apierrors.IsConflict(err) {
		t.Errorf("an object that can be read: %v, want 409", err)
	}
	trial := ignore.DeepCopy()
	trial.DryRun = []string{metav1.DryRunAll}
	if _, err := c.remove("damaged", trial); err != nil {
		t.Errorf("dry run: %v", err)
	}
	_, err = c.send(http.MethodGet, c.at("damaged"), "", nil)
	wants("get after a dry run", err)
	if _, err := c.remove("damaged", ignore); err != nil {
		t.Fatal(err)
	}
	if left := c.get("damaged"); left != nil {
		t.Errorf("it still exists: %v", left)
	}
	eventually.Agrees(t, func() string {
		answer, err := c.send(http.MethodGet, c.path, "", nil)
		if err != nil {
			return err.Error()
		}
		if left := items(t, answer); len(left) != 1 || left[0].GetName() != "sound" {
			return fmt.Sprintf("left are %v, want sound", left)
		}
		return ""
	})
	if _, err := c.remove("damaged", ignore); !apierrors.IsNotFound(err) {
		t.Errorf("again: %v, want 404", err)
	}
}

// causes returns an error with the causes in its details.
func causes(err error) string {
	text := []string{err.Error()}
	if status, ok := err.(*apierrors.StatusError); ok && status.ErrStatus.Details != nil { //nolint:errorlint // the client returns it unwrapped
		for _, cause := range status.ErrStatus.Details.Causes {
			text = append(text, cause.Field, cause.Message)
		}
	}
	return strings.Join(text, "\n")
}

// The permission to delete is not sufficient to remove an unreadable object.
func TestR18_UnreadableObjectIsForThePrivileged(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.configMaps(t, namespace).create("a")
	s.bind(t, namespace, bootstrappolicy.Edit, "editor")
	editor := typed(t, s.acting("editor")).CoreV1().ConfigMaps(namespace)
	err := editor.Delete(t.Context(), "a", metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: new(true)})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "unsafe-delete-ignore-read-errors") {
		t.Errorf("%v, want 403 that names the verb", err)
	}
	if err := editor.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}
