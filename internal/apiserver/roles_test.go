package apiserver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// acting returns the configuration of the administrator impersonating a user.
func (s *server) acting(user string, groups ...string) *rest.Config {
	config := rest.CopyConfig(s.config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return config
}

func typed(t testing.TB, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// bind binds a ClusterRole to a user in a namespace, and waits until that is effective.
func (s *server) bind(t testing.TB, namespace, role, user string) {
	t.Helper()
	_, err := typed(t, s.config).RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: unique("binding")},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	client := typed(t, s.acting(user))
	eventually.Agrees(t, func() string {
		if _, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestRoleIsForItsNamespace(t *testing.T) {
	s := sharedServer(t)
	namespace, other := s.namespace(t), s.namespace(t)
	s.bind(t, namespace, bootstrappolicy.Edit, "ann")
	ann := typed(t, s.acting("ann")).CoreV1()
	if err := ann.Pods(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	err := ann.Pods(other).Delete(t.Context(), "x", metav1.DeleteOptions{})
	want := `pods "x" is forbidden: User "ann" cannot delete resource "pods" in API group "" in the namespace "` + other + `"`
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if _, err := ann.Nodes().List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("nodes: %v", err)
	}
}

func TestEveryUserMayDiscover(t *testing.T) {
	anybody := typed(t, sharedServer(t).acting("anybody"))
	if _, err := anybody.Discovery().ServerVersion(); err != nil {
		t.Error(err)
	}
	if _, lists, err := anybody.Discovery().ServerGroupsAndResources(); err != nil || len(lists) == 0 {
		t.Errorf("%d %v", len(lists), err)
	}
	if err := anybody.Discovery().RESTClient().Get().AbsPath("/metrics").Do(t.Context()).Error(); !apierrors.IsForbidden(err) {
		t.Errorf("metrics: %v", err)
	}
}

// Users cannot grant permissions that they do not have, by a role, a binding or a patch.
func TestNoEscalation(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	s.bind(t, namespace, bootstrappolicy.Admin, "boss")
	boss := typed(t, s.acting("boss")).RbacV1()
	own := []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"secrets"}}}
	alien := []rbacv1.PolicyRule{{Verbs: []string{"update", "get"}, APIGroups: []string{""}, Resources: []string{"endpoints"}}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: own}
	if _, err := boss.Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "attempting to grant RBAC permissions not currently held:\n{") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := boss.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "alien"}, Rules: alien}, metav1.CreateOptions{})
	refused("create", err)
	if want := `{APIGroups:[""], Resources:["endpoints"], Verbs:["update"]}`; err == nil || !strings.HasSuffix(err.Error(), "\n"+want) {
		t.Errorf("%v, want only %s", err, want)
	}
	_, err = boss.Roles(namespace).Update(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Rules: alien}, metav1.UpdateOptions{})
	refused("update", err)
	_, err = boss.Roles(namespace).Patch(t.Context(), "own", "application/merge-patch+json",
		[]byte(`{"rules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"]}]}`), metav1.PatchOptions{})
	refused("patch", err)

	bindTo := func(name string) error {
		_, err := boss.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: unique("b")},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "friend"}},
		}, metav1.CreateOptions{})
		return err
	}
	if err := bindTo(bootstrappolicy.Edit); err != nil {
		t.Errorf("a role that is less than one's own: %v", err)
	}
	refused("bind", bindTo(bootstrappolicy.ClusterAdmin))
	if err := bindTo("not-yet"); !apierrors.IsNotFound(err) {
		t.Errorf("a role that does not exist yet: %v", err)
	}
}

// The verbs bind and escalate allow granting permissions that the user does not have.
func TestBindAndEscalate(t *testing.T) {
	s := sharedServer(t)
	namespace, user := s.namespace(t), unique("officer")
	admin := typed(t, s.config).RbacV1()
	_, err := admin.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: user}, Rules: []rbacv1.PolicyRule{
			{Verbs: []string{"bind"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{bootstrappolicy.View}},
			{Verbs: []string{"create"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"rolebindings", "roles"}},
			{Verbs: []string{"escalate"}, APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}},
			{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.bind(t, namespace, user, user)
	officer := typed(t, s.acting(user)).RbacV1()
	for role, allowed := range map[string]bool{bootstrappolicy.View: true, bootstrappolicy.Edit: false} {
		_, err := officer.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		if (err == nil) != allowed {
			t.Errorf("bind %s: %v", role, err)
		}
	}
	_, err = officer.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Rules: rbac.Everything()[:1]}, metav1.CreateOptions{})
	if err != nil {
		t.Errorf("escalate: %v", err)
	}
}

// A role with an aggregation label extends view, edit and admin until it is deleted.
func TestAggregatedRoles(t *testing.T) {
	s := sharedServer(t)
	roles := typed(t, s.config).RbacV1().ClusterRoles()
	name := unique("gadgets")
	_, err := roles.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
		Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{name}, Resources: []string{"gadgets"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has := func(role string) bool {
		r, err := roles.Get(t.Context(), role, metav1.GetOptions{})
		return err == nil && slices.ContainsFunc(r.Rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, name) })
	}
	for _, want := range []bool{true, false} {
		for _, role := range []string{bootstrappolicy.View, bootstrappolicy.Edit, bootstrappolicy.Admin} {
			eventually.Agrees(t, func() string {
				if has(role) != want {
					return role + " is not created again"
				}
				return ""
			})
		}
		if err := roles.Delete(t.Context(), name, metav1.DeleteOptions{}); want && err != nil {
			t.Fatal(err)
		}
	}
}

// After a restart, the default roles and bindings grant all default rules again, unless they have the annotation
// autoupdate "false". Additions stay.
func TestDefaultRolesAreRestored(t *testing.T) {
	const system, reader = metav1.NamespaceSystem, "extension-apiserver-authentication-reader"
	s := startServer(t, nil)
	c := typed(t, s.config).RbacV1()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	added := rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/added"}}
	damage := func(name, autoupdate string) {
		t.Helper()
		r, err := c.ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		must(err)
		r.Rules, r.Annotations[rbacv1.AutoUpdateAnnotationKey] = []rbacv1.PolicyRule{added}, autoupdate
		_, err = c.ClusterRoles().Update(t.Context(), r, metav1.UpdateOptions{})
		must(err)
	}
	damage(bootstrappolicy.Collector, "true")
	damage("system:controller:job-controller", "true")
	damage("system:controller:cronjob-controller", "false")
	role, err := c.Roles(system).Get(t.Context(), reader, metav1.GetOptions{})
	must(err)
	role.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{"other"}}}
	_, err = c.Roles(system).Update(t.Context(), role, metav1.UpdateOptions{})
	must(err)
	scheduler, err := c.ClusterRoleBindings().Get(t.Context(), user.KubeScheduler, metav1.GetOptions{})
	must(err)
	scheduler.Subjects = []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "ann"}}
	_, err = c.ClusterRoleBindings().Update(t.Context(), scheduler, metav1.UpdateOptions{})
	must(err)
	must(c.ClusterRoles().Delete(t.Context(), bootstrappolicy.View, metav1.DeleteOptions{}))
	must(c.RoleBindings(system).Delete(t.Context(), "system::"+reader, metav1.DeleteOptions{}))

	s.restart(t)
	c = typed(t, s.config).RbacV1()
	for name, want := range map[string]int{bootstrappolicy.Collector: 3, "system:controller:job-controller": 3, "system:controller:cronjob-controller": 1} {
		r, err := c.ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
		must(err)
		got := r.Rules
		if !slices.ContainsFunc(got, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.NonResourceURLs, "/added") }) {
			t.Errorf("%s: the addition is gone", name)
		}
		if len(got) < want || want == 1 && len(got) > 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
	r, err := c.Roles(system).Get(t.Context(), reader, metav1.GetOptions{})
	must(err)
	if got := r.Rules; len(got) < 2 || got[0].ResourceNames[0] != "other" {
		t.Errorf("%s: %v", reader, got)
	}
	b, err := c.ClusterRoleBindings().Get(t.Context(), user.KubeScheduler, metav1.GetOptions{})
	must(err)
	if len(b.Subjects) != 2 || b.Subjects[0].Name != "ann" || b.Subjects[1].Name != user.KubeScheduler {
		t.Errorf("binding: %v", b.Subjects)
	}
	view, err := c.ClusterRoles().Get(t.Context(), bootstrappolicy.View, metav1.GetOptions{})
	must(err)
	if len(view.Rules) == 0 {
		t.Errorf("%s has no rules", bootstrappolicy.View)
	}
	_, err = c.RoleBindings(system).Get(t.Context(), "system::"+reader, metav1.GetOptions{})
	must(err)
}

// The server is not ready before the default roles exist, and reports that under upstream's name.
func TestReadinessWaitsForDefaultRoles(t *testing.T) {
	s := sharedServer(t)
	answer, err := typed(t, s.config).Discovery().RESTClient().Get().AbsPath("/readyz/poststarthook/rbac/bootstrap-roles").DoRaw(t.Context())
	if err != nil || string(answer) != "ok" {
		t.Errorf("%q %v", answer, err)
	}
}

// A request with an invalid token of a component is refused, not treated as anonymous.
func TestComponentTokens(t *testing.T) {
	s := sharedServer(t)
	config, err := s.Collector()
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{config.BearerToken: http.StatusOK, "": http.StatusUnauthorized, "guess": http.StatusUnauthorized} {
		config.BearerToken = token
		c, err := newClient(config)
		if err != nil {
			t.Fatal(err)
		}
		if code, _, err := c.exchange(http.MethodGet, "/api", "", nil); code != want {
			t.Errorf("%q: %d %v", token, code, err)
		}
	}
}
