package system

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
	"github.com/coppice-dev/coppice/internal/collect/protected"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

// walked is the result of a request: a refusal, an answer without the secret, or the secret.
type walked int

const (
	refused  walked = iota // 401 or 403
	answered               // without the secret
	told                   // everything
)

const theCollector = "the collector"

// identities returns the identities that request every path, with the expected results for the tools and for
// the administrators' paths.
func identities(config *rest.Config) map[string]struct {
	config       *rest.Config
	tools, admin walked
} {
	as := func(name string, groups ...string) *rest.Config {
		one := rest.CopyConfig(config)
		one.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
		return one
	}
	type row = struct {
		config       *rest.Config
		tools, admin walked
	}
	return map[string]row{
		"anonymous":                 {rest.AnonymousClientConfig(config), refused, refused},
		"a user without rights":     {as("bob"), answered, refused},
		"a reader of a namespace":   {as("ann"), answered, refused},
		"a node":                    {as(bootstrappolicy.NodeUserPrefix+"na", "system:nodes"), refused, refused},
		"a component of upstream's": {as("system:kube-scheduler"), refused, refused},
		theCollector:                {as(bootstrappolicy.Collector), refused, refused},
		"the namespace controller":  {as(bootstrappolicy.NamespaceController), refused, refused},
		"the scheduler":             {as(bootstrappolicy.Scheduler), refused, refused},
		"an administrator":          {config, told, told},
	}
}

// Every identity requests every path of the control plane that is not a resource. Restricted users, with few rights
// or metadata only, are refused; no identity gets objects that it may not read.
func TestEveryPathByEveryIdentity(t *testing.T) {
	t.Parallel()
	o := Options{Ephemeral: true, Recycle: recyclebin.Bounds{Bytes: 1 << 20, Age: time.Hour}}
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		config, err := clientcmd.BuildConfigFromFlags("", p.Kubeconfig)
		if err != nil {
			return err
		}
		uids, err := prepareWalk(ctx, t, config)
		if err != nil {
			return err
		}
		paths, err := pathsOf(t, config)
		if err != nil {
			return err
		}
		for who, identity := range identities(config) {
			for _, path := range paths {
				want := identity.tools
				if !strings.HasPrefix(path, api.Prefix) {
					want = identity.admin
				}
				if path == apiserver.NewestPath && who == theCollector {
					want = told // the barrier needs it (R15)
				}
				if path == protected.DefaultsPath && who == "a component of upstream's" {
					want = answered // it names resources, and no objects
				}
				for _, query := range queriesOf(path, uids) {
					walk(t, identity.config, who, path+query, want)
				}
			}
			if _, body := getAs(t, identity.config, api.Status); countsObjects(body) != (identity.tools == told) {
				t.Errorf("%s gets the status %s", who, body)
			}
		}
		return nil
	})
}

// countsObjects reports whether a status contains the total number of objects.
func countsObjects(body string) bool {
	var status struct {
		Graph struct{ Objects, References int }
		Stats struct{ Gets, Lists int64 }
	}
	return json.Unmarshal([]byte(body), &status) == nil && status.Graph.Objects+status.Graph.References+int(status.Stats.Gets+status.Stats.Lists) > 0
}

// secretName is a name that only administrators may learn.
const secretName = "hidden-name"

// prepareWalk creates a Secret, and another one that it deletes. It returns the UIDs of both.
func prepareWalk(ctx context.Context, t *testing.T, config *rest.Config) (uids []string, err error) {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{secretName, secretName + "-deleted"} {
		secret, err := client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"p": secretName},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		uids = append(uids, string(secret.UID))
	}
	if err := client.CoreV1().Secrets("default").Delete(ctx, secretName+"-deleted", metav1.DeleteOptions{}); err != nil {
		return nil, err
	}
	if _, err := client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reads"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ann"}},
	}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	for _, path := range []string{recyclebin.Path + "?uid=" + uids[1], api.Component + "?uid=" + uids[0]} {
		eventually.Agrees(t, func() string {
			if code, body := getAs(t, config, path); code != http.StatusOK || !strings.Contains(body, secretName) {
				return fmt.Sprintf("%s: %d %s", path, code, body)
			}
			return ""
		})
	}
	return uids, bringsBack(ctx, t, client, config)
}

// bringsBack deletes a ConfigMap and checks that a user who may get ConfigMaps in its namespace, which still exists,
// gets it from the recycle bin.
func bringsBack(ctx context.Context, t *testing.T, client kubernetes.Interface, config *rest.Config) error {
	t.Helper()
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, settings, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(ctx, settings.Name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	ann := rest.CopyConfig(config)
	ann.Impersonate.UserName = "ann"
	eventually.Agrees(t, func() string {
		if code, body := getAs(t, ann, recyclebin.Path+"?name=settings"); !strings.Contains(body, `"settings"`) {
			return fmt.Sprintf("ann gets %d %s", code, body)
		}
		return ""
	})
	return nil
}

// pathsOf returns all paths in the server's own index, without those of Kubernetes and the files of the web page, and
// the API's paths with a variable part.
func pathsOf(t *testing.T, config *rest.Config) ([]string, error) {
	t.Helper()
	_, body := getAs(t, config, "/")
	var index struct{ Paths []string }
	if err := json.Unmarshal([]byte(body), &index); err != nil {
		return nil, fmt.Errorf("read the index of paths: %w: %s", err, body)
	}
	ours := []string{web.Status, web.Records, web.Settled, web.Graph}
	var paths []string
	for _, path := range index.Paths {
		isOurs := strings.HasPrefix(path, controllersPrefix) || slices.Contains(ours, path)
		if isOurs && !slices.Contains(page.Paths(), path) {
			paths = append(paths, path)
		}
	}
	for _, route := range api.Routes() {
		if _, path, _ := strings.Cut(route, " "); !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	for _, path := range append(ours, recyclebin.Path) {
		if !slices.Contains(paths, path) {
			t.Errorf("the index does not have %s: %v", path, paths)
		}
	}
	return paths, nil
}

// queriesOf returns the queries to send to a path.
func queriesOf(path string, uids []string) []string {
	if path == api.Watch || strings.HasSuffix(path, "/watch") {
		return []string{"?after=nonsense"} // a stream would not end
	}
	queries := []string{""}
	for _, uid := range uids {
		queries = append(queries, "?uid="+url.QueryEscape(uid))
	}
	return append(queries, "?object=secrets/default/"+secretName, "?name="+secretName+"-deleted", "?uid=absent")
}

func walk(t *testing.T, config *rest.Config, who, path string, want walked) {
	t.Helper()
	code, body := getAs(t, config, strings.ReplaceAll(path, "{id}", "absent"))
	switch isRefused := code == http.StatusUnauthorized || code == http.StatusForbidden; {
	case want == refused && !isRefused:
		t.Errorf("%s asks for %s: %d, and must be refused", who, path, code)
	case want == told && code >= http.StatusInternalServerError, want == told && isRefused:
		t.Errorf("%s asks for %s: %d %s", who, path, code, body)
	case want != told && strings.Contains(strings.ReplaceAll(body, "/"+secretName, ""), secretName):
		t.Errorf("%s asks for %s and learns %s", who, path, body)
	}
}
