package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// damage stores a ConfigMap whose bytes cannot be decoded.
func (s *server) damage(t *testing.T, namespace, name string) {
	t.Helper()
	key := s.store.Prefix() + "/configmaps/" + namespace + "/" + name
	if _, err := s.store.Client().Put(context.Background(), key, "\x00not an object"); err != nil {
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
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok && status.ErrStatus.Details != nil {
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
