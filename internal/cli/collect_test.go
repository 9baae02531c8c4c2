package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/coppice-dev/coppice/internal/cli"
	"github.com/coppice-dev/coppice/internal/testing/freeport"
)

// fakeServer serves only the requests of coppice collect before it starts.
type fakeServer struct {
	*httptest.Server
	code    int             // of /version, unless it is 200
	reviews bool            // access reviews are served
	denied  map[string]bool // by "verb resource.group"
	denyAll bool            // access reviews of "*" are denied
	refused atomic.Int64    // how many access reviews are answered with 503

	mu    sync.Mutex
	asked map[string]bool // guarded by mu
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	s := &fakeServer{reviews: true, denied: map[string]bool{}, asked: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "watch"}
	switch path := r.URL.Path; {
	case path == "/version" && s.code != 0:
		fail(w, s.code, "")
	case path == "/version":
		reply(w, map[string]string{"gitVersion": "v1.37.2"})
	case path == "/api":
		reply(w, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case path == "/apis":
		apps := metav1.GroupVersionForDiscovery{GroupVersion: "apps/v1", Version: "v1"}
		broken := metav1.GroupVersionForDiscovery{GroupVersion: "broken.example.com/v1", Version: "v1"}
		reply(w, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"}, Groups: []metav1.APIGroup{
			{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{apps}, PreferredVersion: apps},
			{Name: "broken.example.com", Versions: []metav1.GroupVersionForDiscovery{broken}, PreferredVersion: broken},
		}})
	case path == "/api/v1":
		reply(w, metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: verbs},
			{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: verbs},
			{Name: "events", Kind: "Event", Namespaced: true, Verbs: verbs},
			{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
		}})
	case path == "/apis/apps/v1":
		reply(w, metav1.APIResourceList{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
			{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: verbs},
			{Name: "deployments/scale", Kind: "Scale", Namespaced: true, Verbs: metav1.Verbs{"get"}},
		}})
	case path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" && s.reviews:
		if s.refused.Add(-1) >= 0 {
			fail(w, http.StatusServiceUnavailable, "apiserver not ready")
			return
		}
		s.review(w, r)
	case r.Method == http.MethodGet && strings.HasPrefix(path, "/api"):
		s.list(w, path)
	default:
		fail(w, http.StatusNotFound, "")
	}
}

func (s *fakeServer) review(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	var review authorizationv1.SelfSubjectAccessReview
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	a := review.Spec.ResourceAttributes
	name := strings.TrimSuffix(a.Verb+" "+a.Resource+"."+a.Group, ".")
	s.mu.Lock()
	s.asked[name] = true
	s.mu.Unlock()
	review.Status.Allowed = !s.denied[name] && (a.Resource != "*" || !s.denyAll)
	review.TypeMeta = metav1.TypeMeta{APIVersion: "authorization.k8s.io/v1", Kind: "SelfSubjectAccessReview"}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review)
}

func (s *fakeServer) list(w http.ResponseWriter, path string) {
	resource := path[strings.LastIndex(path, "/")+1:]
	if s.denied["list "+resource] {
		fail(w, http.StatusForbidden, "no")
		return
	}
	reply(w, metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}})
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

func fail(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	reasons := map[int]metav1.StatusReason{401: metav1.StatusReasonUnauthorized, 403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound}
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reasons[code], Message: message,
	})
}

// kubeconfig writes a file that names a server.
func kubeconfig(t *testing.T, url string) string {
	t.Helper()
	return file(t, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
users: [{name: u, user: {token: secret-token}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, url))
}

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// run runs a command line, which must fail and print one line, and returns that line.
func run(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	got := cli.Run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	line := strings.TrimSuffix(errs.String(), "\n")
	if got != code || out.Len() > 0 || strings.Contains(line, "\n") || !strings.HasPrefix(line, "coppice: ") {
		t.Errorf("coppice %s: exit %d, want %d and one line\nstdout: %s\nstderr: %s", strings.Join(args, " "), got, code, out.String(), errs.String())
	}
	if strings.Contains(line, "secret-token") {
		t.Errorf("a credential is printed: %s", line)
	}
	return line
}

// TestCollectSaysWhatIsWrong: the error for bad input is one line.
func TestCollectSaysWhatIsWrong(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	good := newFakeServer(t)
	config := kubeconfig(t, good.URL)
	gone := "http://127.0.0.1:" + freeport.Find(t)
	strange := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "teapot", http.StatusTeapot) }))
	t.Cleanup(strange.Close)
	unauthorized := newFakeServer(t)
	unauthorized.code = http.StatusUnauthorized

	for name, c := range map[string]struct {
		args []string
		code int
		want []string // all of these are in the line
	}{
		"unreachable":          {[]string{"--kubeconfig", kubeconfig(t, gone)}, 1, []string{"cannot reach " + gone, "connection refused"}},
		"not an API server":    {[]string{"--kubeconfig", kubeconfig(t, strange.URL)}, 1, []string{strange.URL, "does not answer like an API server"}},
		"bad credentials":      {[]string{"--kubeconfig", kubeconfig(t, unauthorized.URL)}, 1, []string{unauthorized.URL + " does not accept the credentials of kubeconfig "}},
		"no file":              {[]string{"--kubeconfig", "/nowhere/kubeconfig"}, 1, []string{"kubeconfig /nowhere/kubeconfig: no such file"}},
		"not a kubeconfig":     {[]string{"--kubeconfig", file(t, "hello: [")}, 1, []string{"kubeconfig ", "yaml"}},
		"empty kubeconfig":     {[]string{"--kubeconfig", file(t, "")}, 1, []string{"names no API server"}},
		"no such context":      {[]string{"--kubeconfig", config, "--context", "other"}, 1, []string{config, `context "other" does not exist`}},
		"no server at all":     {nil, 1, []string{"no API server is named", "--kubeconfig", "$KUBECONFIG"}},
		"unknown resource":     {[]string{"--kubeconfig", config, "--ignore-resources=widgets"}, 2, []string{"--ignore-resources", "widgets", good.URL}},
		"resource in a group":  {[]string{"--kubeconfig", config, "--ignore-resources=configmaps,deployments"}, 2, []string{"deployments", "did you mean deployments.apps?"}},
		"singular":             {[]string{"--kubeconfig", config, "--ignore-resources=configmap"}, 2, []string{"did you mean configmaps?"}},
		"unknown controller":   {[]string{"--kubeconfig", config, "--controllers=gc,deployment"}, 2, []string{"--controllers", `"deployment"`, "gc, namespace"}},
		"incomplete order":     {[]string{"--kubeconfig", config, "--namespace-deletion-order=pods"}, 2, []string{"--namespace-deletion-order", "no stage is *"}},
		"no controller":        {[]string{"--kubeconfig", config, "--controllers="}, 2, []string{"--controllers"}},
		"not loopback":         {[]string{"--kubeconfig", config, "--bind-address=0.0.0.0:10270"}, 2, []string{"--bind-address", "loopback", "--metrics-address"}},
		"no port":              {[]string{"--kubeconfig", config, "--metrics-address=10271"}, 2, []string{"--metrics-address"}},
		"log format":           {[]string{"--kubeconfig", config, "--log-format=xml"}, 2, []string{"--log-format", "text or json"}},
		"log level":            {[]string{"--kubeconfig", config, "--log-level=loud"}, 2, []string{"--log-level"}},
		"observing namespaces": {[]string{"--kubeconfig", config, "--observe-only", "--controllers=gc,namespace"}, 2, []string{"--observe-only"}},
		"share":                {[]string{"--kubeconfig", config, "--breaker-share=10"}, 2, []string{"--breaker-share 10", "between 0 and 1"}},
		"unknown flag":         {[]string{"--force"}, 2, []string{"--force"}},
		"arguments":            {[]string{"everything"}, 2, []string{"everything"}},
		"address in use":       {[]string{"--kubeconfig", config, "--bind-address", strings.TrimPrefix(good.URL, "http://")}, 1, []string{"address already in use", "--bind-address"}},
	} {
		t.Run(name, func(t *testing.T) {
			line := run(t, c.code, append([]string{"collect"}, c.args...)...)
			for _, part := range c.want {
				if !strings.Contains(line, part) {
					t.Errorf("%q does not say %q", line, part)
				}
			}
		})
	}
}

// TestCollectNamesMissingRights: the error names missing permissions, found by access reviews, or by lists on a
// server without access reviews.
func TestCollectNamesMissingRights(t *testing.T) {
	s := newFakeServer(t)
	s.denyAll = true
	s.refused.Store(3) // each of them is asked again
	s.denied = map[string]bool{"list secrets": true, "delete deployments.apps": true}
	line := run(t, 1, "collect", "--kubeconfig", kubeconfig(t, s.URL), "--bind-address=0")
	if !strings.Contains(line, s.URL+" does not allow") || !strings.Contains(line, "list secrets") || !strings.Contains(line, "delete deployments.apps") {
		t.Error(line)
	}
	if strings.Contains(line, "configmaps") || strings.Contains(line, "more") {
		t.Errorf("names rights that are granted: %s", line)
	}
	if s.asked["list events"] {
		t.Error("checks a right that it does not need")
	}

	// Ignored resources need no permissions, so only the permission on the Lease is missing.
	s.denied = map[string]bool{"list secrets": true, "create leases.coordination.k8s.io": true}
	line = run(t, 1, "collect", "--kubeconfig", kubeconfig(t, s.URL), "--bind-address=0", "--ignore-resources=secrets", "--leader-elect", "--leader-elect-namespace=shop")
	if !strings.Contains(line, "create leases.coordination.k8s.io in namespace shop") || strings.Contains(line, "secrets") {
		t.Error(line)
	}

	s = newFakeServer(t)
	s.reviews = false
	s.denied = map[string]bool{"list configmaps": true}
	if line := run(t, 1, "collect", "--kubeconfig", kubeconfig(t, s.URL), "--bind-address=0"); !strings.Contains(line, "list configmaps") || strings.Contains(line, "secrets") {
		t.Error(line)
	}
}

// TestGraphSaysWhatIsWrong: the error for bad input is one line.
func TestGraphSaysWhatIsWrong(t *testing.T) {
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "standing by: another leads", http.StatusServiceUnavailable)
	}))
	t.Cleanup(refusing.Close)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"format":     {[]string{"--output=png"}, 2, "choose one of dot, json"},
		"in clear":   {[]string{"--address=http://example.com:1", "pod/web", "--server=https://127.0.0.1:1"}, 2, "your token would be sent to it in the clear"},
		"nothing":    {[]string{"--up"}, 2, "need an object to begin at"},
		"no server":  {[]string{"--kubeconfig=/nowhere"}, 1, "/nowhere"},
		"address":    {[]string{"--address=here"}, 2, "--address"},
		"nobody":     {[]string{"--address=http://127.0.0.1:1"}, 1, "no collector answers at http://127.0.0.1:1"},
		"not leader": {[]string{"--address=" + refusing.URL}, 1, "standing by: another leads"},
	} {
		t.Run(name, func(t *testing.T) {
			if line := run(t, c.code, append([]string{"graph"}, c.args...)...); !strings.Contains(line, c.want) {
				t.Errorf("%q does not say %q", line, c.want)
			}
		})
	}
}
