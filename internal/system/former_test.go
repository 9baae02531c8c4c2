package system

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

const shared = "shared"

// A namespace that is recreated for another tenant does not show the tenant its former contents: neither its deletion
// records nor any deleted object.
func TestFormerNamespacesAreNotTold(t *testing.T) {
	runWithPlane(t, Options{Ephemeral: true}, func(ctx context.Context, p Plane) error {
		config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return err
		}
		return changeTenants(ctx, t, client, config, func(name string) *rest.Config {
			one := rest.CopyConfig(config)
			one.Impersonate.UserName = name
			return one
		})
	})
}

// changeTenants creates a namespace for a tenant, deletes it, and creates it for another tenant, who must not see the
// first one's objects. admin and as return configurations of the server with the records.
func changeTenants(ctx context.Context, t *testing.T, client kubernetes.Interface, admin *rest.Config, as func(name string) *rest.Config) error {
	t.Helper()
	former, err := tenancy(ctx, t, client, admin, "first", "former")
	if err != nil {
		return err
	}
	tells(t, as("first"), former)
	if err := client.CoreV1().Namespaces().Delete(ctx, shared, metav1.DeleteOptions{}); err != nil {
		return err
	}
	eventually.Agrees(t, func() string {
		if _, err := client.CoreV1().Namespaces().Get(ctx, shared, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("the namespace is still there: %v", err)
		}
		return ""
	})
	present, err := tenancy(ctx, t, client, admin, "second", "present")
	if err != nil {
		return err
	}
	tells(t, as("second"), present)
	tells(t, admin, present)
	// Its deletion may be part of the namespace's.
	if code, body := getAs(t, admin, api.Records); !strings.Contains(body, string(former)) {
		t.Errorf("an administrator is not told of the former tenant: %d %s", code, body)
	}
	for _, path := range formerPaths(former) {
		code, body := getAs(t, as("second"), path)
		repeatsQuestion := code == http.StatusNotFound && strings.Contains(path, "object=")
		if strings.Contains(body, "former") && !repeatsQuestion {
			t.Errorf("the tenant of now asks for %s: %d %s", path, code, body)
		}
	}
	return nil
}

// formerPaths returns the queries about an object that no longer exists.
func formerPaths(uid types.UID) []string {
	var paths []string
	for _, path := range []string{api.Records, api.Explain, api.Preview, api.Owners, api.Dependents, api.Component, api.Stories} {
		paths = append(paths, path+"?uid="+string(uid), path+"?object=configmaps/"+shared+"/former", path+"?object=configmaps/"+shared+"/former-dependent")
	}
	return append(paths, api.Records, api.Stories, api.Component, api.Deletions, api.Stories+"/"+string(uid), api.Stories+"/"+string(uid)+"?format=text")
}

// tenancy creates the namespace, in which a user may edit, and a ConfigMap with a dependent. Once the collector has
// observed them, it deletes the ConfigMap and with it the dependent. It returns the UID of the ConfigMap.
func tenancy(ctx context.Context, t *testing.T, client kubernetes.Interface, admin *rest.Config, user, name string) (types.UID, error) {
	t.Helper()
	namespace, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shared}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	// The server's cache may still contain the former namespace, which is terminating.
	eventually.Agrees(t, func() string {
		_, err := client.RbacV1().RoleBindings(shared).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "edits"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		}, metav1.CreateOptions{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	maps := client.CoreV1().ConfigMaps(shared)
	owner, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	dependent, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: name + "-dependent", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.UID}},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	for _, uid := range []types.UID{namespace.UID, owner.UID, dependent.UID} {
		eventually.Agrees(t, func() string {
			if code, body := getAs(t, admin, api.Owners+"?uid="+string(uid)); code != http.StatusOK || strings.Contains(body, `"missing": true`) {
				return fmt.Sprintf("the collector has not observed %s: %d %s", uid, code, body)
			}
			return ""
		})
	}
	return owner.UID, maps.Delete(ctx, name, metav1.DeleteOptions{})
}

// tells waits until a user sees a deletion: in the list of deletions, in its own entry, and in the collector's
// record of its dependent.
func tells(t *testing.T, config *rest.Config, uid types.UID) {
	t.Helper()
	for path, says := range map[string]string{
		api.Stories: string(uid), api.Stories + "/" + string(uid): "-dependent", api.Records: string(uid),
	} {
		eventually.Agrees(t, func() string {
			if code, body := getAs(t, config, path); code != http.StatusOK || !strings.Contains(body, says) {
				return fmt.Sprintf("%s asks for %s: %d %s", config.Impersonate.UserName, path, code, body)
			}
			return ""
		})
	}
}
