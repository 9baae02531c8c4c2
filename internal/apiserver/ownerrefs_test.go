package apiserver_test

import (
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/apiserver"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/ownerreferences"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
	"github.com/coppice-dev/coppice/internal/testing/transcript"
)

func owned(o *object, owners ...metav1.OwnerReference) *object {
	o.SetOwnerReferences(owners)
	return o
}

func referenceTo(owner *object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
}

// AD-02, AD-03: a refusal names the missing rule, and with that rule the write is admitted.
func TestOwnerReferencesNeedRights(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		s := sharedServer(t)
		namespace, user := strings.Split(c.path, "/")[5], unique("writer")
		roles := typed(t, s.config).RbacV1()
		give := func(rules ...rbacv1.PolicyRule) {
			t.Helper()
			name := unique("role")
			if _, err := roles.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			if _, err := roles.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
			}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		rule := func(verb, resource string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{c.resource.Group}, Resources: []string{resource}}
		}
		asUser := c
		var err error
		if asUser.client, err = newClient(s.acting(user)); err != nil {
			t.Fatal(err)
		}
		owner, child := c.create("owner"), c.create("child")
		patch := func(ref metav1.OwnerReference) error {
			_, err := asUser.patch(child.GetName(), types.MergePatchType, map[string]any{"metadata": map[string]any{"ownerReferences": []any{ref}}})
			return err
		}
		refusedFor := func(ref metav1.OwnerReference, words string) {
			t.Helper()
			eventually.Agrees(t, func() string {
				if err := patch(ref); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
					return "refused with " + errText(err) + ", want " + words
				}
				return ""
			})
		}
		give(rule("patch", c.resource.Resource))
		ref := referenceTo(owner)
		refusedFor(ref, `lacks the rule {apiGroups: ["`+c.resource.Group+`"], resources: ["`+c.resource.Resource+`"], verbs: ["delete"]}`)
		give(rule("delete", c.resource.Resource))
		blocking := ref
		blocking.BlockOwnerDeletion = new(true)
		refusedFor(blocking, `lacks the rule {apiGroups: ["`+c.resource.Group+`"], resources: ["`+c.resource.Resource+`/finalizers"], verbs: ["update"]}`)
		give(rule("update", c.resource.Resource+"/finalizers"))
		eventually.Agrees(t, func() string { return errText(patch(blocking)) })
	})
}

// writer returns the configuration of a user with these rules in the whole cluster.
func (s *server) writer(t *testing.T, c collection, rules ...rbacv1.PolicyRule) collection {
	t.Helper()
	name, roles := unique("writer"), typed(t, s.config).RbacV1()
	if _, err := roles.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := roles.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.client, err = newClient(s.acting(name)); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string { // the binding is effective
		_, err := c.tryPost(c.named(unique("first")))
		return errText(err)
	})
	return c
}

// OwnerReferencesPermissionEnforcement works as in Kubernetes (AD-01 to AD-06), for users with and without
// permissions.
func TestOwnerReferenceAdmission(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		s := sharedServer(t)
		everything := func(verbs ...string) rbacv1.PolicyRule {
			return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{"*"}, Resources: []string{"*"}}
		}
		finalizers := rbacv1.PolicyRule{Verbs: []string{"update"}, APIGroups: []string{"*"}, Resources: []string{"*/finalizers"}}
		plain := func(rules ...rbacv1.PolicyRule) []rbacv1.PolicyRule {
			return append(rules, rbacv1.PolicyRule{Verbs: []string{"create", "get", "patch"}, APIGroups: []string{c.resource.Group}, Resources: []string{c.resource.Resource, c.resource.Resource + "/status"}})
		}
		users := map[string]collection{
			"writer": s.writer(t, c, plain()...), "deleter": s.writer(t, c, plain(everything("delete"))...), "finalizer": s.writer(t, c, plain(finalizers)...),
			"both": s.writer(t, c, plain(everything("delete"), finalizers)...),
		}
		one, two := referenceTo(c.create("one")), referenceTo(c.create("two"))
		blocks := func(ref metav1.OwnerReference) metav1.OwnerReference {
			ref.BlockOwnerDeletion = new(true)
			return ref
		}
		absent := metav1.OwnerReference{APIVersion: "nowhere.example.com/v1", Kind: "Widget", Name: "w", UID: "w"}
		refs := func(all ...metav1.OwnerReference) []metav1.OwnerReference { return all }
		for _, test := range []struct {
			id, user string
			had      []metav1.OwnerReference // nil: the object is created
			wants    []metav1.OwnerReference
			creates  bool
			status   bool // through /status
			refused  bool
		}{
			{id: "AD-01 create with an owner", user: "writer", wants: refs(one), creates: true},
			{id: "AD-01 create with two", user: "writer", wants: refs(one, two), creates: true},
			{id: "AD-02 add one", user: "writer", wants: refs(one), refused: true},
			{id: "AD-02 add one, may delete", user: "deleter", wants: refs(one)},
			{id: "AD-02 replace one", user: "writer", had: refs(one), wants: refs(two), refused: true},
			{id: "AD-02 nothing changes", user: "writer", had: refs(one, two), wants: refs(one, two)},
			{id: "AD-02 in a status", user: "writer", wants: refs(one), status: true},
			{id: "AD-03 create, blocking", user: "writer", wants: refs(blocks(one)), creates: true, refused: true},
			{id: "AD-03 create, blocking, may", user: "finalizer", wants: refs(blocks(one)), creates: true},
			{id: "AD-03 add one that blocks", user: "deleter", wants: refs(blocks(one)), refused: true},
			{id: "AD-03 what blocks stays", user: "deleter", had: refs(blocks(one)), wants: refs(blocks(one), two)},
			{id: "AD-04 begin to block", user: "deleter", had: refs(one), wants: refs(blocks(one)), refused: true},
			{id: "AD-04 stop blocking", user: "writer", had: refs(blocks(one)), wants: refs(one)},
			{id: "AD-05 may finalize everywhere", user: "both", had: refs(one), wants: refs(blocks(one), blocks(two))},
			{id: "AD-06 a kind that is not served", user: "both", wants: refs(blocks(absent)), creates: true, refused: true},
			{id: "AD-06 another order", user: "writer", had: refs(one, two), wants: refs(two, one), refused: true},
		} {
			t.Run(test.id, func(t *testing.T) {
				user, o, name := users[test.user], c.named(unique("object")), ""
				var err error
				if test.creates {
					_, err = user.tryPost(owned(o, test.wants...))
				} else {
					name = c.post(owned(o, test.had...)).GetName()
					var subresource []string
					if test.status {
						subresource = []string{"status"}
					}
					_, err = user.patch(name, types.MergePatchType, map[string]any{"metadata": map[string]any{"ownerReferences": test.wants}}, subresource...)
				}
				if apierrors.IsForbidden(err) != test.refused || err != nil && !test.refused {
					t.Errorf("%v", err)
				}
			})
		}
	})
}

// AD-05: references are checked without reading the owner, so without delay even if the owner is unreadable
// because the conversion webhook of its kind does not respond.
func TestOwnersNeedNoReading(t *testing.T) {
	s := sharedServer(t)
	plural := "hanging"
	d := definition("hanging."+widgetGroup, plural, "Hang")
	spec := d["spec"].(map[string]any)
	first := spec["versions"].([]any)[0].(map[string]any)
	second := maps.Clone(first)
	first["storage"], second["name"] = false, "v2"
	spec["versions"] = []any{first, second}
	s.define(t, d) // no object is stored in a version that needs conversion
	silent := holdConnections(t)
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": "https://" + silent + "/"},
	}}
	if _, err := s.definitions(t).patch(plural+".hanging."+widgetGroup, types.MergePatchType, map[string]any{"spec": spec}); err != nil {
		t.Fatal(err)
	}
	c := s.configMaps(t, s.namespace(t))
	user := s.writer(t, c, rbacv1.PolicyRule{Verbs: []string{"create"}, APIGroups: []string{""}, Resources: []string{"configmaps"}},
		rbacv1.PolicyRule{Verbs: []string{"update"}, APIGroups: []string{"*"}, Resources: []string{"*/finalizers"}})
	ref := metav1.OwnerReference{APIVersion: "hanging." + widgetGroup + "/v1", Kind: "Hang", Name: "h", UID: "h", BlockOwnerDeletion: new(true)}
	if _, err := user.tryPost(owned(c.named("a"), ref)); err != nil {
		t.Error(err)
	}
}

// holdConnections accepts connections and never answers, until the test ends.
func holdConnections(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String() // the backlog of the socket accepts connections
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// An impossible owner is refused to every user, for objects of every kind.
func TestOwnersThatCannotBe(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		object := c.create("object")
		unknown := metav1.OwnerReference{APIVersion: "nowhere.example.com/v1", Kind: "Widget", Name: "w", UID: "w"}
		itself := referenceTo(object)
		for words, ref := range map[string]metav1.OwnerReference{"kind Widget is not served": unknown, "cannot own itself": itself} {
			if _, err := c.put(owned(c.get("object"), ref)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), words) {
				t.Errorf("%v, want %q", err, words)
			}
		}
		if _, err := c.tryPost(owned(c.named("other"), unknown)); !apierrors.IsForbidden(err) {
			t.Errorf("create: %v", err)
		}
		if _, err := c.put(owned(c.get("object"), referenceTo(c.create("real")))); err != nil {
			t.Errorf("one that can: %v", err)
		}
		namespaces := sharedServer(t).namespaces(t)
		if _, err := namespaces.tryPost(owned(namespaces.named(unique("ns")), referenceTo(object))); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cluster-scoped object cannot be owned") {
			t.Errorf("a namespaced owner of a cluster-scoped object: %v", err)
		}
	})
}

// A write of the status cannot change owner references, so it needs none of the permissions.
func TestStatusDoesNotOwn(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		object := c.create("object")
		sent := owned(c.get("object"), referenceTo(c.create("owner")))
		if _, err := c.put(sent, "status"); err != nil {
			t.Fatal(err)
		}
		if refs := c.get(object.GetName()).GetOwnerReferences(); len(refs) != 0 {
			t.Errorf("it is owned by %v", refs)
		}
	})
}

// Tests of a collector need objects that admission would refuse.
func TestOwnersUnchecked(t *testing.T) {
	s := startServer(t, func(c *apiserver.Config) { c.Features.OwnerChecks = false })
	c := s.configMaps(t, "default")
	c.post(owned(c.named("a"), metav1.OwnerReference{APIVersion: "nowhere.example.com/v1", Kind: "Widget", Name: "w", UID: "w"}))
}

// While too many objects of a namespace wait for the collector, references to absent owners are
// refused, for built-in and custom kinds; other writes succeed. The server has an audit log,
// because reading the owner is a request within a request.
func TestBacklogOfANamespace(t *testing.T) {
	t.Parallel()
	var companions atomic.Pointer[apiserver.Companions]
	companions.Store(&apiserver.Companions{})
	s := startServer(t, func(c *apiserver.Config) {
		c.Audit = &transcript.Transcript{}
		c.Companions = func() apiserver.Companions { return *companions.Load() }
	})
	s.define(t, definition(widgetGroup, "widgets", "Widget"))
	busy, calm := s.namespace(t), s.namespace(t)
	companions.Store(&apiserver.Companions{Backlog: func(namespace string) int {
		if namespace == busy {
			return ownerreferences.MaxBacklog + 1
		}
		return 0
	}})
	for _, sub := range subjects {
		for _, namespace := range []string{busy, calm} {
			c := s.subject(t, sub, namespace)
			owner := c.create("owner")
			owned := func(name string, uid types.UID) error {
				o := c.named(name)
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: uid}})
				_, err := c.tryPost(o)
				return err
			}
			if err := owned("held", owner.GetUID()); err != nil {
				t.Errorf("%s in %s, of an owner that is there: %v", sub.name, namespace, err)
			}
			if err := owned("dangling", "gone"); apierrors.IsTooManyRequests(err) != (namespace == busy) || err != nil && namespace == calm {
				t.Errorf("%s in %s, of an owner that is not there: %v", sub.name, namespace, err)
			}
		}
	}
	companions.Store(&apiserver.Companions{})
	c := s.subject(t, subjects[0], busy)
	o := c.named("later")
	o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "x"}})
	if _, err := c.tryPost(o); err != nil {
		t.Error(err)
	}
}
