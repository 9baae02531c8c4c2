package apiserver_test

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The aggregated API server of these tests is another server of this package with the same authorities. It
// serves a custom resource.
const (
	orchardsGroup   = "orchards.example.com"
	orchardsService = "orchards"
)

// startOrchards starts a server that serves trees.orchards.example.com, and waits until it does.
func startOrchards(t *testing.T, authority *auth.Authority) *server {
	t.Helper()
	dir := t.TempDir()
	s := &server{dir: dir, authority: authority, ended: make(chan error, 1)}
	var err error
	if s.store, err = etcd.Open(context.Background(), etcd.Options{Dir: filepath.Join(dir, "etcd"), Ephemeral: true}); err != nil {
		t.Fatal(err)
	}
	err = s.serve(func(c *apiserver.Config) { c.ServingNames = []string{orchardsService + ".default.svc"} })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	s.define(t, definition(orchardsGroup, "trees", "Tree"))
	return s
}

func (s *server) apiServices(t testing.TB) collection {
	return s.collection(t, gvk("apiregistration.k8s.io", "v1", "APIService"), "apiservices", "", nil)
}

// expose creates a Service of that name for a server on this machine, which has only a loopback address.
func (s *server) expose(t *testing.T, name string) {
	t.Helper()
	services := s.collection(t, schema.GroupVersionKind{Version: "v1", Kind: "Service"}, "services", metav1.NamespaceDefault, map[string]any{
		"spec": map[string]any{"type": "ExternalName", "externalName": "localhost"},
	})
	services.create(name)
}

// register creates an APIService for a server at a port behind a Service.
func (s *server) register(t *testing.T, group, service, url string, change map[string]any) *object {
	t.Helper()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{
		"group": group, "version": "v1", "groupPriorityMinimum": int64(2000), "versionPriority": int64(15),
		"service": map[string]any{"namespace": metav1.NamespaceDefault, "name": service, "port": number},
	}
	maps.Copy(spec, change)
	o := s.apiServices(t).named("v1." + group)
	o.Object["spec"] = spec
	return s.apiServices(t).post(o)
}

// availability returns "STATUS REASON" of the condition of an APIService.
func (s *server) availability(t testing.TB, name string) string {
	t.Helper()
	o := s.apiServices(t).get(name)
	if o == nil {
		return "gone"
	}
	status, _ := o.Object["status"].(map[string]any)
	conditions, _ := status["conditions"].([]any)
	if len(conditions) == 0 {
		return "none"
	}
	c := conditions[0].(map[string]any)
	return fmt.Sprint(c["status"], " ", c["reason"])
}

func (s *server) becomes(t *testing.T, name, want string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		if got := s.availability(t, name); got != want {
			return fmt.Sprintf("%s is %s, want %s", name, got, want)
		}
		return ""
	})
}

func TestAggregatedGroupIsServed(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	orchards := startOrchards(t, s.authority)
	s.expose(t, orchardsService)
	s.register(t, orchardsGroup, orchardsService, orchards.url, map[string]any{"caBundle": s.authority.Certificate()})
	s.becomes(t, "v1."+orchardsGroup, "True Passed")

	trees := s.collection(t, gvk(orchardsGroup, "v1", "Tree"), "trees", metav1.NamespaceDefault, nil)
	trees.create("apple", "example.com/hold")
	if own := orchards.collection(t, trees.kind, "trees", metav1.NamespaceDefault, nil); own.get("apple") == nil {
		t.Error("the other server does not have what was created")
	}
	dynamicClient := dynamic.NewForConfigOrDie(s.config).Resource(schema.GroupVersionResource{Group: orchardsGroup, Version: "v1", Resource: "trees"}).Namespace(metav1.NamespaceDefault)
	watch, err := dynamicClient.Watch(t.Context(), metav1.ListOptions{ResourceVersion: trees.get("apple").GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	trees.mustRemove("apple", &metav1.DeleteOptions{})
	if event := <-watch.ResultChan(); event.Type != "MODIFIED" {
		t.Errorf("the watch sends %s", event.Type)
	}
	if _, err := trees.patch("apple", types.MergePatchType, mergeFinalizers()); err != nil {
		t.Fatal(err)
	}
	if event := <-watch.ResultChan(); event.Type != "DELETED" {
		t.Errorf("the watch sends %s", event.Type)
	}

	// Both servers see the same user.
	ann := typed(t, s.acting("ann"))
	treesOf := func() error {
		return ann.CoreV1().RESTClient().Get().AbsPath(trees.path).Do(t.Context()).Error()
	}
	grant := func(on *server) {
		t.Helper()
		client := typed(t, on.config)
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "trees"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"list"}, APIGroups: []string{orchardsGroup}, Resources: []string{"trees"}}}}
		if _, err := client.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "trees"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "trees"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "ann"}},
		}
		if _, err := client.RbacV1().ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	grant(orchards)
	if err := treesOf(); !apierrors.IsForbidden(err) {
		t.Errorf("who may list there, but not here, gets %v", err)
	}
	grant(s)
	eventually.Succeeds(t, treesOf)
	if err := typed(t, orchards.config).RbacV1().ClusterRoleBindings().Delete(t.Context(), "trees", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		if err := treesOf(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "ann"`) {
			return fmt.Sprintf("who may list here, but not there, gets %v", err)
		}
		return ""
	})

	// An object of the aggregated server can own objects here.
	pear := trees.create("pear")
	fruit := s.configMaps(t, metav1.NamespaceDefault).named("fruit")
	fruit.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: orchardsGroup + "/v1", Kind: "Tree", Name: "pear", UID: pear.GetUID()}})
	s.configMaps(t, metav1.NamespaceDefault).post(fruit)
}

// foundIn returns the discovery documents of a server that contain a group version: "aggregated",
// "aggregated but stale", "unaggregated" or both.
func foundIn(t testing.TB, s *server, version schema.GroupVersion) string {
	t.Helper()
	var found []string
	client := discovery.NewDiscoveryClientForConfigOrDie(s.config)
	_, resources, failed, err := client.GroupsAndMaybeResources()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := resources[version]; ok {
		found = append(found, "aggregated")
	}
	if _, ok := failed[version]; ok {
		found = append(found, "stale")
	}
	client.UseLegacyDiscovery = true
	groups, err := client.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups.Groups {
		if group.Name == version.Group && group.PreferredVersion.GroupVersion == version.String() {
			found = append(found, "listed")
		}
	}
	switch list, err := client.ServerResourcesForGroupVersion(version.String()); {
	case err == nil && len(list.APIResources) > 0:
		found = append(found, "answering")
	case apierrors.IsServiceUnavailable(err):
		found = append(found, "unavailable")
	case !apierrors.IsNotFound(err):
		t.Fatal(err)
	}
	return strings.Join(found, " ")
}

func TestAggregatedGroupIsDiscovered(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	orchards := startOrchards(t, s.authority)
	version := schema.GroupVersion{Group: orchardsGroup, Version: "v1"}
	is := func(want string) {
		t.Helper()
		eventually.Agrees(t, func() string {
			if got := foundIn(t, s, version); got != want {
				return fmt.Sprintf("%q, want %q", got, want)
			}
			return ""
		})
	}
	openAPI := func() bool {
		paths, err := discovery.NewDiscoveryClientForConfigOrDie(s.config).OpenAPIV3().Paths()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := paths["apis/apps/v1"]; !ok {
			t.Error("the OpenAPI documents of this server are not listed")
		}
		there, ok := paths["apis/"+version.String()]
		if !ok {
			return false
		}
		document, err := there.Schema("application/json")
		if err != nil || !strings.Contains(string(document), `"kind":"Tree"`) {
			t.Errorf("%.200s %v", document, err)
		}
		return true
	}
	is("")
	s.register(t, orchardsGroup, orchardsService, orchards.url, map[string]any{"caBundle": s.authority.Certificate()})
	s.becomes(t, "v1."+orchardsGroup, "False ServiceNotFound")
	is("stale listed unavailable")
	if openAPI() {
		t.Error("OpenAPI has a group that is not available")
	}
	s.expose(t, orchardsService)
	s.becomes(t, "v1."+orchardsGroup, "True Passed")
	is("aggregated listed answering")
	eventually.Holds(t, "OpenAPI has the group", openAPI) // the other server may take a moment
	eventually.Holds(t, "OpenAPI v2 has the group, and what is here", func() bool {
		document, err := typed(t, s.config).Discovery().RESTClient().Get().AbsPath("/openapi/v2").SetHeader("Accept", "application/json").Do(t.Context()).Raw()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(document), `"com.example.orchards.v1.Tree"`) && strings.Contains(string(document), `"/apis/apps/v1/`)
	})
	group, err := s.client(t).send(http.MethodGet, "/apis/"+orchardsGroup, "", nil)
	if err != nil || group.GetKind() != "APIGroup" || group.Object["name"] != orchardsGroup {
		t.Errorf("%v %v", group, err)
	}
	if err := typed(t, s.config).CoreV1().Services(metav1.NamespaceDefault).Delete(t.Context(), orchardsService, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.becomes(t, "v1."+orchardsGroup, "False ServiceNotFound")
	is("stale listed unavailable")

	// A server that has never reached the other one must not conclude that its group does not exist.
	s.restart(t)
	is("stale listed unavailable")
	s.expose(t, orchardsService)
	is("aggregated listed answering")
	s.apiServices(t).mustRemove("v1."+orchardsGroup, nil)
	is("")
}

// TestServerIsVerified checks that no request goes to a server with an unknown authority or another name.
func TestServerIsVerified(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	orchards := startOrchards(t, s.authority)
	other, err := auth.LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s.expose(t, orchardsService)
	s.expose(t, "elsewhere")
	for name, test := range map[string]struct {
		service string
		change  map[string]any
		want    string
	}{
		"unknown":   {orchardsService, nil, "False FailedDiscoveryCheck"},
		"other":     {orchardsService, map[string]any{"caBundle": other.Certificate()}, "False FailedDiscoveryCheck"},
		"senseless": {orchardsService, map[string]any{"caBundle": []byte("nonsense")}, "False FailedDiscoveryCheck"},
		"name":      {"elsewhere", map[string]any{"caBundle": s.authority.Certificate()}, "False FailedDiscoveryCheck"},
		"insecure":  {orchardsService, map[string]any{"insecureSkipTLSVerify": true}, "False FailedDiscoveryCheck"}, // it does not serve that group
	} {
		s.register(t, name+".example.com", test.service, orchards.url, test.change)
		s.becomes(t, "v1."+name+".example.com", test.want)
	}
	// A server without the group is not available either, but its certificate was accepted: the message
	// differs.
	messages := fmt.Sprint(s.apiServices(t).get("v1.insecure.example.com").Object["status"])
	if !strings.Contains(messages, "bad status") {
		t.Error(messages)
	}
	if messages := fmt.Sprint(s.apiServices(t).get("v1.unknown.example.com").Object["status"]); !strings.Contains(messages, "certificate") {
		t.Error(messages)
	}
}

// witness is a server that records the requests for a group version, and answers with a redirect on
// request.
type witness struct {
	mu    sync.Mutex
	heads []http.Header // guarded by mu
	names []string      // guarded by mu: of the client certificates
}

func (w *witness) ServeHTTP(response http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/apis/seen.example.com/v1/") {
		fmt.Fprint(response, `{"kind":"APIResourceList","groupVersion":"seen.example.com/v1","resources":[{"name":"things","kind":"Thing","namespaced":true,"verbs":["get"]}]}`)
		return
	}
	w.mu.Lock()
	w.heads = append(w.heads, r.Header.Clone())
	for _, c := range r.TLS.PeerCertificates {
		w.names = append(w.names, c.Subject.CommonName)
	}
	w.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/redirect"):
		http.Redirect(response, r, "https://169.254.169.254/", http.StatusFound)
	case strings.HasSuffix(r.URL.Path, "/upgrade"):
		connection, stream, err := response.(http.Hijacker).Hijack()
		if err != nil {
			return
		}
		defer connection.Close()
		fmt.Fprint(stream, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_ = stream.Flush()
		line, _ := stream.ReadString('\n')
		fmt.Fprint(stream, strings.ToUpper(line))
		_ = stream.Flush()
	default:
		fmt.Fprint(response, `{"kind":"Thing","apiVersion":"seen.example.com/v1"}`)
	}
}

// TestProxiedRequests checks that only the proxy names the user of a request to the server, and that the
// proxy follows no redirects.
func TestProxiedRequests(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	w := &witness{}
	backend := httptest.NewUnstartedServer(w)
	backend.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	backend.StartTLS()
	s.expose(t, "seen")
	s.register(t, "seen.example.com", "seen", backend.URL, map[string]any{"insecureSkipTLSVerify": true})
	s.becomes(t, "v1.seen.example.com", "True Passed")

	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/apis/seen.example.com/v1/things/a", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for header, value := range map[string]string{"X-Remote-User": "system:admin", "X-Remote-Group": "forged", "X-Remote-Extra-Forged": "yes", "X-Remote-Uid": "0"} {
		request.Header.Set(header, value)
	}
	administrator, err := newClient(s.as(t, (*auth.Authority).Admin))
	if err != nil {
		t.Fatal(err)
	}
	response, err := administrator.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	w.mu.Lock()
	head, names := w.heads[len(w.heads)-1], w.names
	w.mu.Unlock()
	if !slices.Equal(names, []string{auth.FrontProxyUser}) {
		t.Errorf("the client certificates are %v", names)
	}
	if got := head.Values("X-Remote-User"); !slices.Equal(got, []string{auth.AdminUser}) {
		t.Errorf("the user is %v", got)
	}
	if got := head.Values("X-Remote-Group"); !slices.Contains(got, "system:masters") || slices.Contains(got, "forged") {
		t.Errorf("the groups are %v", got)
	}
	if head.Get("X-Remote-Extra-Forged") != "" || head.Get("X-Remote-Uid") == "0" || head.Get("Authorization") != "" {
		t.Errorf("the proxy passes on %v", head)
	}

	status, _, err := s.client(t).exchange(http.MethodGet, "/apis/seen.example.com/v1/things/redirect", "", nil)
	if status == http.StatusFound || status == http.StatusOK || err == nil {
		t.Errorf("a redirect is answered with %d %v", status, err)
	}
	upgraded(t, s, "/apis/seen.example.com/v1/namespaces/default/things/a/upgrade")

	backend.Close() // a failed request causes a check
	if status, _, _ := s.client(t).exchange(http.MethodGet, "/apis/seen.example.com/v1/things/a", "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("a server that is gone is answered for with %d", status)
	}
	s.becomes(t, "v1.seen.example.com", "False FailedDiscoveryCheck")
}

// upgraded speaks another protocol through the proxy.
func upgraded(t *testing.T, s *server, path string) {
	t.Helper()
	config, err := rest.TLSConfigFor(s.as(t, (*auth.Authority).Admin))
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{"http/1.1"}
	dialer := tls.Dialer{Config: config}
	connection, err := dialer.DialContext(t.Context(), "tcp", strings.TrimPrefix(s.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	fmt.Fprintf(connection, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", path)
	answer := make([]byte, 4096)
	read := func(until string) string {
		t.Helper()
		var text string
		for !strings.Contains(text, until) {
			n, err := connection.Read(answer)
			text += string(answer[:n])
			if err != nil {
				t.Fatalf("%q %v", text, err)
			}
		}
		return text
	}
	if head := read("\r\n\r\n"); !strings.HasPrefix(head, "HTTP/1.1 101 ") {
		t.Fatal(head)
	}
	fmt.Fprint(connection, "hello\n")
	if text := read("\n"); text != "HELLO\n" {
		t.Errorf("%q", text)
	}
}

// TestOwnGroupsAreRegistered checks that every group version of the server itself has an APIService.
func TestOwnGroupsAreRegistered(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(s.config).ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{}
	for _, group := range groups.Groups {
		for _, v := range group.Versions {
			want = append(want, v.Version+"."+group.Name)
		}
	}
	slices.Sort(want)
	if got := s.apiServices(t).names(); !slices.Equal(got, want) {
		t.Errorf("when the server is ready: %v, want %v", got, want)
	}
	for _, name := range want {
		if got := s.availability(t, name); got != "True Local" {
			t.Errorf("%s is %s", name, got)
		}
	}

	group := unique("g") + ".coppice.dev"
	name := "v1." + group
	s.define(t, definition(group, "things", "Thing"))
	s.becomes(t, name, "True Local")
	s.apiServices(t).mustRemove(name, nil)
	s.becomes(t, name, "True Local")
	taken := map[string]any{"spec": map[string]any{"service": map[string]any{"namespace": "default", "name": "thief"}}}
	if _, err := s.apiServices(t).patch(name, types.MergePatchType, taken); err != nil {
		t.Fatal(err)
	}
	eventually.Holds(t, "the APIService of a definition is put right", func() bool {
		_, stolen := s.apiServices(t).get(name).Object["spec"].(map[string]any)["service"]
		return !stolen && s.availability(t, name) == "True Local"
	})
	if _, err := s.apiServices(t).patch("v1.apps", types.MergePatchType, taken); !apierrors.IsInvalid(err) {
		t.Errorf("another server for apps/v1: %v", err)
	}
	s.definitions(t).mustRemove("things."+group, nil)
	s.becomes(t, name, "gone")

	// Built-in APIServices belong to the administrator until the next start.
	s.apiServices(t).mustRemove("v1.apps", nil)
	s.restart(t)
	if got := s.availability(t, "v1.apps"); got != "True Local" {
		t.Errorf("after a restart, v1.apps is %s", got)
	}
	if again := s.apiServices(t).names(); !slices.Equal(again, want) {
		t.Errorf("after a restart: %v, want %v", again, want)
	}
}

// TestAuthoritiesArePublished checks that other servers can verify the proxy and the users.
func TestAuthoritiesArePublished(t *testing.T) {
	t.Parallel()
	s := startServer(t, nil)
	of := func() map[string]any {
		t.Helper()
		return s.configMaps(t, metav1.NamespaceSystem).get("extension-apiserver-authentication").Object["data"].(map[string]any)
	}
	data := of()
	for key, want := range map[string]string{
		"client-ca-file":                     string(s.authority.Certificate()),
		"requestheader-client-ca-file":       string(s.authority.FrontProxy().Authority()),
		"requestheader-allowed-names":        `["front-proxy-client"]`,
		"requestheader-username-headers":     `["X-Remote-User"]`,
		"requestheader-uid-headers":          `["X-Remote-Uid"]`,
		"requestheader-group-headers":        `["X-Remote-Group"]`,
		"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`,
	} {
		if data[key] != want {
			t.Errorf("%s is %q, want %q", key, data[key], want)
		}
	}
	// Another server on the store may have a different authority for the proxy.
	other, err := auth.LoadAuthority(t.TempDir(), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]any{"data": map[string]any{"requestheader-client-ca-file": string(other.FrontProxy().Authority()), "client-ca-file": nil}}
	if _, err := s.configMaps(t, metav1.NamespaceSystem).patch("extension-apiserver-authentication", types.MergePatchType, changed); err != nil {
		t.Fatal(err)
	}
	s.restart(t)
	data = of()
	if data["client-ca-file"] != string(s.authority.Certificate()) {
		t.Errorf("client-ca-file is %q after a restart", data["client-ca-file"])
	}
	blocks := 0
	for rest := []byte(data["requestheader-client-ca-file"].(string)); ; blocks++ {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
	}
	if blocks != 2 {
		t.Errorf("%d authorities of proxies after a restart", blocks)
	}
	reader, err := typed(t, s.config).RbacV1().Roles(metav1.NamespaceSystem).Get(t.Context(), "extension-apiserver-authentication-reader", metav1.GetOptions{})
	if err != nil || len(reader.Rules) != 1 || !slices.Equal(reader.Rules[0].ResourceNames, []string{"extension-apiserver-authentication"}) {
		t.Errorf("%v %v", reader, err)
	}
}
