package apiserver_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// hold keeps the next server from reading resources until release is called. arrived counts down when a request
// arrives from outside.
func (s *server) hold(t *testing.T, resources []string, arrived *sync.WaitGroup) (release func()) {
	released := make(chan struct{})
	s.intercept = func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch own := inprocess.Is(r.Context()); {
			case own && r.Method == http.MethodGet && slices.Contains(resources, r.URL.Path):
				select {
				case <-released:
				case <-r.Context().Done():
				}
			case !own && r.URL.Path != "/readyz":
				arrived.Done()
			}
			next.ServeHTTP(w, r)
		})
	}
	release = sync.OnceFunc(func() { close(released) })
	t.Cleanup(release)
	return release
}

// awaitRest waits until only the checks that the test blocks fail in /readyz.
func (s *server) awaitRest(t *testing.T, admin *client) {
	t.Helper()
	eventually.Agrees(t, func() string {
		status, text := s.readyz(t, admin)
		if status == http.StatusOK {
			t.Fatalf("/readyz is ok before everything is read: %s", text)
		}
		for _, check := range []string{"etcd", "poststarthook/start-informers", "poststarthook/identity-lease"} {
			if !strings.Contains(text, "[+]"+check+" ok") {
				return text
			}
		}
		return ""
	})
}

func (s *server) readyz(t *testing.T, admin *client) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/readyz?verbose", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := admin.http.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// startingCase is a request to a server that has not read a resource yet.
type startingCase struct {
	unread string // path of the list
	as     func() *rest.Config
	method string
	path   string
	body   any
	want   string
}

// A server that has just started on a store with objects gives no wrong answer because of data that it has
// not read yet: the request waits.
func TestRequestsDuringAStart(t *testing.T) {
	s := startServer(t, nil)
	cases := s.startingCases(t)
	s.end(t)
	var resources []string
	var arrived sync.WaitGroup
	for _, c := range cases {
		resources = append(resources, c.unread)
		arrived.Add(1)
	}
	release := s.hold(t, resources, &arrived)
	if err := s.launch(nil); err != nil {
		t.Fatal(err)
	}
	admin := over(t, s.as(t, (*auth.Authority).Admin))
	var answered sync.WaitGroup
	for name, c := range cases {
		user := over(t, c.as())
		answered.Go(func() {
			if got := c.answer(user); got != c.want {
				t.Errorf("%s: %s %s, asked before %s was read, is answered %s; want %s", name, c.method, c.path, c.unread, got, c.want)
			}
		})
	}
	arrived.Wait()
	s.awaitRest(t, admin)
	release()
	answered.Wait()
	if err := s.awaitReady(); err != nil {
		t.Fatal(err)
	}
	if status, text := s.readyz(t, admin); status != http.StatusOK {
		t.Errorf("/readyz of a server that is ready answers %s", text)
	}
}

// answer sends the request, and returns the code, the outcome of a review, or the reason of an error.
func (c startingCase) answer(user *client) string {
	code, answer, err := user.exchange(c.method, c.path, "application/json", c.body)
	text := strconv.Itoa(code)
	if answer != nil && answer.GetKind() == "SubjectAccessReview" {
		text += fmt.Sprint(" ", answer.Object["status"].(map[string]any)["allowed"])
	}
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		text += " " + string(reason)
	}
	return text
}

// The checks for which a slow start waits exist, and pass in the end.
func TestReadChecks(t *testing.T) {
	s := sharedServer(t)
	pair, err := s.authority.Admin()
	if err != nil {
		t.Fatal(err)
	}
	admin := s.outside(t, nil, pair)
	for _, check := range apiserver.ReadChecks() {
		if got := s.status(t, admin, "/readyz/"+check); got != http.StatusOK {
			t.Errorf("/readyz/%s answers %d", check, got)
		}
	}
}

// startingCases creates the objects of the requests.
func (s *server) startingCases(t *testing.T) map[string]startingCase {
	const rbac, admission = "/apis/rbac.authorization.k8s.io/v1/", "/apis/admissionregistration.k8s.io/v1/"
	namespace := s.namespace(t)
	maps := s.configMaps(t, namespace)
	collected := func(name string) any { // as the collector deletes it
		o := maps.create(name)
		return &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(o.GetUID()), ResourceVersion: new(o.GetResourceVersion())}}
	}
	collector := func() *rest.Config {
		return s.as(t, func(a *auth.Authority) (auth.Pair, error) { return a.Component(bootstrappolicy.Collector) })
	}
	admin := func() *rest.Config { return s.as(t, (*auth.Authority).Admin) }
	robot := s.robot(t, namespace)
	custom := s.customObject(t, namespace)
	s.denyCreation(t, namespace, "denied")
	s.expose(t, "orchards")
	s.register(t, "orchards.example.com", "orchards", "https://127.0.0.1:1", map[string]any{"insecureSkipTLSVerify": true})
	full := s.fullNamespace(t)
	maps.create("c")
	return map[string]startingCase{
		"rights from a ClusterRoleBinding": {rbac + "clusterrolebindings", collector, http.MethodDelete, maps.at("a"), collected("a"), "200"},
		"rights from a ClusterRole":        {rbac + "clusterroles", collector, http.MethodDelete, maps.at("b"), collected("b"), "200"},
		"rights from a RoleBinding":        {rbac + "rolebindings", robot, http.MethodGet, maps.at("c"), nil, "200"},
		"review of rights":                 {rbac + "clusterrolebindings", admin, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", reviewOf(bootstrappolicy.Collector), "201 true"},
		"namespace":                        {"/api/v1/namespaces", admin, http.MethodPost, maps.path, maps.named("d").Object, "201"},
		"webhooks":                         {admission + "validatingwebhookconfigurations", admin, http.MethodPost, maps.path, maps.named("e").Object, "201"},
		"policy": {
			admission + "validatingadmissionpolicies", admin, http.MethodPost, maps.path, maps.named("denied").Object, "422 Invalid",
		},
		"quota":                 {"/api/v1/resourcequotas", admin, http.MethodPost, full.path, full.named("a").Object, "403 Forbidden"},
		"custom resource":       {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", admin, http.MethodGet, custom, nil, "200"},
		"group of a definition": {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", admin, http.MethodGet, custom[:strings.Index(custom, "/namespaces")], nil, "200"},
		"aggregated resource": {
			"/apis/apiregistration.k8s.io/v1/apiservices", admin, http.MethodDelete, "/apis/orchards.example.com/v1/trees/a", nil, "503",
		},
	}
}

// robot returns the client of a service account that may read the objects in a namespace.
func (s *server) robot(t *testing.T, namespace string) func() *rest.Config {
	s.account(t, namespace, "robot")
	token := s.token(t, namespace, "robot", authenticationv1.TokenRequestSpec{})
	s.bind(t, namespace, bootstrappolicy.View, "system:serviceaccount:"+namespace+":robot")
	return func() *rest.Config { return s.bearer(token.Token) }
}

// customObject creates an object of a custom resource, and returns its path.
func (s *server) customObject(t *testing.T, namespace string) string {
	group := unique("g") + ".coppice.dev"
	s.define(t, definition(group, "things", "Thing"))
	c := s.collection(t, gvk(group, "v1", "Thing"), "things", namespace, nil)
	c.create("a")
	return c.at("a")
}

// fullNamespace returns the ConfigMaps of a namespace whose quota allows none.
func (s *server) fullNamespace(t *testing.T) collection {
	namespace := s.namespace(t)
	hard := map[string]any{"count/configmaps": "0"}
	quotas := s.quotas(t, namespace, hard)
	quota := quotas.create("none")
	quota.Object["status"] = map[string]any{"hard": hard, "used": hard}
	if _, err := quotas.put(quota, "status"); err != nil {
		t.Fatal(err)
	}
	return s.configMaps(t, namespace)
}

func reviewOf(user string) map[string]any {
	return map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": map[string]any{
		"user": user, "groups": []any{"system:authenticated"}, "resourceAttributes": map[string]any{"verb": "delete", "resource": "configmaps", "namespace": "default"},
	}}
}

// denyCreation refuses new ConfigMaps of a name in a namespace.
func (s *server) denyCreation(t *testing.T, namespace, name string) {
	client, maps := typed(t, s.config).AdmissionregistrationV1(), s.configMaps(t, namespace)
	meta := metav1.ObjectMeta{Name: unique("policy")}
	rules := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: writes(maps, admissionregistrationv1.Create)[0]}}
	if _, err := client.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
			Validations:      []admissionregistrationv1.Validation{{Expression: fmt.Sprintf("object.metadata.name != %q", name)}},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: inNamespace(namespace)},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// over returns a client with a configuration.
func over(t *testing.T, config *rest.Config) *client {
	t.Helper()
	c, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.http.CloseIdleConnections)
	return c
}
