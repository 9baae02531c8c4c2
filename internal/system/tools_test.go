package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// A control plane shows each user the objects that the user may list, and nothing to other clients.
func TestToolsAPI(t *testing.T) {
	runWithPlane(t, Options{Ephemeral: true}, func(ctx context.Context, p Plane) error {
		config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
		if err != nil {
			return err
		}
		if err := prepareTools(ctx, config); err != nil {
			return err
		}
		of := api.Component + "?object=configmaps/default/settings"
		eventually.Agrees(t, func() string {
			code, body := getAs(t, config, of)
			if code == http.StatusOK && strings.Contains(body, `"name": "password"`) {
				return ""
			}
			return fmt.Sprintf("an administrator sees %d %s", code, body)
		})
		ann := rest.CopyConfig(config)
		ann.Impersonate.UserName = "ann"
		var body string
		eventually.Agrees(t, func() string { // the server may not have observed ann's role yet
			code, answer := getAs(t, ann, of)
			if body = answer; code != http.StatusOK {
				return fmt.Sprintf("ann asks: %d %s", code, answer)
			}
			return ""
		})
		var g api.Graph
		if err := json.Unmarshal([]byte(body), &g); err != nil {
			return err
		}
		if len(g.Objects) != 1 || len(g.Unread) != 1 || strings.Contains(body, "password") {
			t.Errorf("ann, who may not list secrets, sees %s", body)
		}
		for path, want := range map[string]int{
			api.Component + "?object=secrets/default/password":  http.StatusForbidden,
			api.Preview + "?object=secrets/default/password":    http.StatusForbidden,
			api.Preview + "?object=configmaps/default/settings": http.StatusOK, api.Explain + "?object=configmaps/default/settings": http.StatusOK,
			api.Records: http.StatusOK, api.Status: http.StatusOK, "/records": http.StatusForbidden, "/status": http.StatusForbidden,
		} {
			if code, body := getAs(t, ann, path); code != want {
				t.Errorf("ann asks for %s: %d %s, want %d", path, code, body, want)
			}
		}
		for _, path := range api.Paths() {
			if code, body := getAs(t, rest.AnonymousClientConfig(config), path); code != http.StatusUnauthorized && code != http.StatusForbidden {
				t.Errorf("nobody asks for %s: %d %s", path, code, body)
			}
		}
		return nil
	})
}

// prepareTools creates a ConfigMap that a Secret owns, and lets ann list ConfigMaps.
func prepareTools(ctx context.Context, config *rest.Config) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	secret, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "password"}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "settings", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: secret.Name, UID: secret.UID}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := client.RbacV1().Roles("default").Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "lists"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}},
	}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err = client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "lists"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "lists"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ann"}},
	}, metav1.CreateOptions{})
	return err
}

// getAs sends a GET as a user.
func getAs(t *testing.T, config *rest.Config, path string) (int, string) {
	t.Helper()
	return sendAs(t, config, http.MethodGet, path)
}

// sendAs sends a request without a body as a user.
func sendAs(t *testing.T, config *rest.Config, method, path string) (int, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Error(err)
		return 0, ""
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Error(err)
	}
	return response.StatusCode, string(body)
}
