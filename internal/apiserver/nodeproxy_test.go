package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/kubelet"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// proxiedNodes are nodes of this process, with the node "here".
type proxiedNodes struct{ kubelet.Nodes }

func (proxiedNodes) Handler(node string) (http.Handler, error) {
	if node != "here" {
		return nil, apierrors.NewNotFound(corev1.Resource("nodes"), node)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/streamed" {
			_, isFlusher := w.(http.Flusher)
			size, err := io.Copy(io.Discard, r.Body)
			_, _ = fmt.Fprintf(w, "%d bytes, flushed: %t, %v", size, isFlusher, err)
			return
		}
		_, _ = io.WriteString(w, r.Method+" "+r.URL.RequestURI())
	}), nil
}

// startProxied starts a server that serves the agent of the node "here" in this process. The agent of the node
// "elsewhere" is in another one.
func startProxied(t *testing.T) *server {
	t.Helper()
	s := startServer(t, func(c *apiserver.Config) {
		c.Companions = func() apiserver.Companions { return apiserver.Companions{Nodes: proxiedNodes{}} }
	})
	for _, name := range []string{"here", "elsewhere"} {
		if _, err := typed(t, s.config).CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A request reaches the agent of a node with its method and the rest of its path. No filter that keeps bodies, or answers,
// is on its way: a pod may read from a client for ever.
func TestNodeProxy(t *testing.T) {
	s := startProxied(t)
	for name, test := range map[string]struct {
		method, target string
		status         int
		says           string
	}{
		"a path":           {http.MethodGet, "here/proxy/healthz?verbose=1", http.StatusOK, "GET /healthz?verbose=1"},
		"no path":          {http.MethodGet, "here/proxy", http.StatusOK, "GET /"},
		"another method":   {http.MethodPost, "here/proxy/run/a/b", http.StatusOK, "POST /run/a/b"},
		"PUT, streamed":    {http.MethodPut, "here/proxy/streamed", http.StatusOK, "4 bytes, flushed: true, <nil>"},
		"PATCH, streamed":  {http.MethodPatch, "here/proxy/streamed", http.StatusOK, "4 bytes, flushed: true, <nil>"},
		"DELETE, streamed": {http.MethodDelete, "here/proxy/streamed", http.StatusOK, "4 bytes, flushed: true, <nil>"},
		"no node":          {http.MethodGet, "nowhere/proxy/healthz", http.StatusNotFound, `nodes \"nowhere\" not found`},
		"another process":  {http.MethodGet, "elsewhere/proxy/healthz", http.StatusServiceUnavailable, "cannot reach the agent of node elsewhere"},
		"the usual port":   {http.MethodGet, "here:10250/proxy/pods", http.StatusOK, "GET /pods"},
		"a scheme as well": {http.MethodGet, "https:here:10250/proxy/pods", http.StatusOK, "GET /pods"},
		"without TLS":      {http.MethodGet, "http:here:10250/proxy/pods", http.StatusOK, "GET /pods"},
		"its usual port":   {http.MethodGet, "elsewhere:10250/proxy/pods", http.StatusServiceUnavailable, "cannot reach the agent of node elsewhere"},
		"another port":     {http.MethodGet, "elsewhere:22/proxy/", http.StatusBadRequest, "address not allowed"},
		"what is no name":  {http.MethodGet, "a:b:c:d/proxy/", http.StatusBadRequest, `invalid node request`},
		"an unknown agent": {http.MethodGet, "https:elsewhere:/proxy/", http.StatusServiceUnavailable, "cannot reach the agent of node elsewhere"},
	} {
		status, text := forge(t, s.config, forged{method: test.method, path: "/api/v1/nodes/" + test.target, body: "body"})
		if status != test.status || !strings.Contains(text, test.says) {
			t.Errorf("%s: %d %s; want %d %q", name, status, text, test.status, test.says)
		}
	}
}

// A user who may only get nodes/proxy can read from agents, but cannot open streams: a WebSocket begins
// with a GET, and could run commands in every container of the node.
func TestNodeProxyStreamsNeedCreate(t *testing.T) {
	s := startProxied(t)
	client := typed(t, s.config).RbacV1()
	for user, verbs := range map[string][]string{"reader": {"get"}, "runner": {"get", "create"}} {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
			{Verbs: verbs, APIGroups: []string{""}, Resources: []string{"nodes/proxy"}}, {Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		}}
		if _, err := client.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		}
		if _, err := client.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually.Agrees(t, func() string { // the binding is effective
			_, err := typed(t, s.acting(user)).CoreV1().Pods(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
			return errText(err)
		})
	}
	for user, want := range map[string]int{"reader": http.StatusForbidden, "runner": http.StatusOK} {
		if status, text := forge(t, s.acting(user), forged{method: http.MethodGet, path: "/api/v1/nodes/here/proxy/pods"}); status != http.StatusOK {
			t.Errorf("%s reads: %d %s", user, status, text)
		}
		for _, node := range []string{"here", "here:10250", "https:here:10250"} {
			if status := s.upgrade(t, user, "/api/v1/nodes/"+node+"/proxy/exec/a/b/c"); status != want {
				t.Errorf("%s opens a stream to %s: %d, want %d", user, node, status, want)
			}
		}
	}
	for _, node := range []string{"here", "here:10250", "https:here:10250"} {
		if status, text := forge(t, s.acting("nobody"), forged{method: http.MethodGet, path: "/api/v1/nodes/" + node + "/proxy/pods"}); status != http.StatusForbidden {
			t.Errorf("nobody reads %s: %d %s", node, status, text)
		}
	}
}

// upgrade sends a GET with a connection upgrade, and returns the status of the response.
func (s *server) upgrade(t *testing.T, user, path string) int {
	t.Helper()
	config := s.acting(user)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", "websocket")
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	return response.StatusCode
}
