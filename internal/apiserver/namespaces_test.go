package apiserver_test

import (
	"errors"
	"net/http"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func phaseOf(ns *object) corev1.NamespacePhase {
	status, _ := ns.Object["status"].(map[string]any)
	phase, _ := status["phase"].(string)
	return corev1.NamespacePhase(phase)
}

// finalize writes spec.finalizers.
func (c collection) finalize(ns *object, finalizers ...string) (*object, error) {
	ns = ns.DeepCopy()
	list := []any{}
	for _, finalizer := range finalizers {
		list = append(list, finalizer)
	}
	ns.Object["spec"] = map[string]any{"finalizers": list}
	return c.put(ns, "finalize")
}

// NS-23: one write marks a namespace and sets its phase to Terminating.
func TestR21_TerminatingAtOnce(t *testing.T) {
	s := sharedServer(t)
	c := s.namespaces(t)
	created := c.create(unique("test"))
	events := c.watch(created.GetResourceVersion())
	name := created.GetName()
	if _, err := c.remove(name, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(types.UID("another"))}}); !apierrors.IsConflict(err) {
		t.Errorf("another uid: %v, want 409", err)
	}
	answer := c.mustRemove(name, nil)
	if answer.GetDeletionTimestamp() == nil || phaseOf(answer) != corev1.NamespaceTerminating {
		t.Errorf("the answer is %v", answer.Object)
	}
	e := next(t, events)
	for e.Object.GetUID() != created.GetUID() { // events of other tests come first
		e = next(t, events)
	}
	if e.Type != watch.Modified || e.Object.GetDeletionTimestamp() == nil || phaseOf(&e.Object) != corev1.NamespaceTerminating {
		t.Errorf("the first event is %s of %v", e.Type, e.Object.Object)
	}
	active := answer.DeepCopy()
	active.Object["status"] = map[string]any{"phase": "Active"}
	if _, err := c.put(active, "status"); !apierrors.IsInvalid(err) {
		t.Errorf("making it active again: %v, want 422", err)
	}
}

// NS-23: spec.finalizers and metadata.finalizers each hold a namespace, and the write that
// empties the second of them removes it.
func TestR18_NamespaceStaysUntilBothListsAreEmpty(t *testing.T) {
	s := sharedServer(t)
	c := s.namespaces(t)
	specFirst := func(ns *object) []func() error {
		return []func() error{
			func() error { _, err := c.finalize(ns); return err },
			func() error {
				_, err := c.patch(ns.GetName(), types.MergePatchType, mergeFinalizers())
				return err
			},
		}
	}
	metadataFirst := func(ns *object) []func() error {
		steps := specFirst(ns)
		ns.SetResourceVersion("") // the first step creates another version
		return []func() error{steps[1], steps[0]}
	}
	for name, order := range map[string]func(*object) []func() error{"spec first": specFirst, "metadata first": metadataFirst} {
		t.Run(name, func(t *testing.T) {
			created := c.create(unique("test"), foreign)
			steps := order(c.mustRemove(created.GetName(), nil))
			if err := steps[0](); err != nil {
				t.Fatal(err)
			}
			if left := c.get(created.GetName()); left == nil || phaseOf(left) != corev1.NamespaceTerminating {
				t.Fatalf("after the first list is empty: %v", left)
			}
			if err := steps[1](); err != nil {
				t.Fatal(err)
			}
			if left := c.get(created.GetName()); left != nil {
				t.Errorf("it still exists: %v", left)
			}
		})
	}
}

// NS-23: a DELETE removes a namespace without finalizers, and responds with it.
func TestR20_NamespaceThatNothingHolds(t *testing.T) {
	s := sharedServer(t)
	c := s.namespaces(t)
	created := c.create(unique("test"))
	if _, err := c.finalize(created); err != nil {
		t.Fatal(err)
	}
	answer := c.mustRemove(created.GetName(), nil)
	if isStatus(answer) || answer.GetUID() != created.GetUID() {
		t.Errorf("the answer is %v", answer.Object)
	}
	if left := c.get(created.GetName()); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

// Foreign entries stay in spec.finalizers, and only /finalize changes them.
func TestR18_NamespaceTokens(t *testing.T) {
	s := sharedServer(t)
	c := s.namespaces(t)
	created := c.create(unique("test"))
	if _, err := c.finalize(created, "kubernetes", "example.com/token"); err != nil {
		t.Fatal(err)
	}
	marked := c.mustRemove(created.GetName(), nil)
	emptied := marked.DeepCopy()
	emptied.Object["spec"] = map[string]any{}
	if _, err := c.put(emptied); err != nil {
		t.Fatal(err)
	}
	left := c.get(created.GetName())
	if left == nil {
		t.Fatal("a PUT without spec.finalizers has removed it")
	}
	if _, err := c.finalize(left, "example.com/token"); err != nil {
		t.Fatal(err)
	}
	if left = c.get(created.GetName()); left == nil {
		t.Fatal("gone in spite of a token")
	}
	if _, err := c.finalize(left); err != nil {
		t.Fatal(err)
	}
	if left = c.get(created.GetName()); left != nil {
		t.Errorf("it still exists: %v", left)
	}
}

// NS-24: how the options change the collector's finalizers.
func TestR17_NamespacePrecedence(t *testing.T) {
	s := sharedServer(t)
	c := s.namespaces(t)
	for _, test := range []struct {
		name     string
		options  *metav1.DeleteOptions
		existing map[string][]string // the finalizers after the DELETE, by the finalizer before
	}{
		{"nothing", nil, map[string][]string{"": nil, orphan: {orphan}, foreground: {foreground}}},
		{"empty options", &metav1.DeleteOptions{}, map[string][]string{"": nil, orphan: {orphan}, foreground: {foreground}}},
		{"orphanDependents", orphanDependents(true), map[string][]string{"": {orphan}, orphan: {orphan}, foreground: {orphan}}},
		{"orphanDependents false", orphanDependents(false), map[string][]string{"": {foreground}, orphan: {foreground}, foreground: {foreground}}},
		{"orphan", policy(metav1.DeletePropagationOrphan), map[string][]string{"": {orphan}, orphan: {orphan}, foreground: {orphan}}},
		{"foreground", policy(metav1.DeletePropagationForeground), map[string][]string{"": {foreground}, orphan: {foreground}, foreground: {foreground}}},
		{"background", policy(metav1.DeletePropagationBackground), map[string][]string{"": nil, orphan: nil, foreground: nil}},
	} {
		for existing, want := range test.existing {
			t.Run(test.name+", "+existing, func(t *testing.T) {
				name := unique("test")
				if existing == "" {
					c.create(name)
				} else {
					c.create(name, existing)
				}
				if got := c.mustRemove(name, test.options).GetFinalizers(); !slices.Equal(got, want) {
					t.Errorf("finalizers %v, want %v", got, want)
				}
			})
		}
	}
}

// NS-25: no request creates an object in a terminating namespace; other requests succeed.
func TestR21_TerminatingNamespaceRefusesCreation(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	for _, sub := range subjects {
		t.Run(sub.name, func(t *testing.T) {
			namespace := s.namespace(t)
			c := s.subject(t, sub, namespace)
			c.create("changes")
			c.create("goes")
			s.namespaces(t).mustRemove(namespace, nil)

			_, err := c.tryPost(c.named("late"))
			isTerminatingCause(t, err)
			_, err = c.apply("late")
			isTerminatingCause(t, err)
			if _, err := c.patch("changes", types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}}); err != nil {
				t.Errorf("update: %v", err)
			}
			if _, err := c.remove("goes", nil); err != nil {
				t.Errorf("delete: %v", err)
			}
			if got := c.names(); !slices.Equal(got, []string{"changes"}) {
				t.Errorf("left are %v", got)
			}
		})
	}
}

// isTerminatingCause checks the refusal of a creation in a terminating namespace.
func isTerminatingCause(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) {
		t.Errorf("create: %v, want 403", err)
		return
	}
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("create: %v does not have the cause %s", err, corev1.NamespaceTerminatingCause)
	}
}

// NS-25: in a namespace that does not exist, nothing can be created or found.
func TestR21_MissingNamespace(t *testing.T) {
	s := sharedServer(t)
	for _, sub := range subjects {
		t.Run(sub.name, func(t *testing.T) {
			c := s.subject(t, sub, unique("nowhere"))
			_, err := c.tryPost(c.named("a"))
			var status apierrors.APIStatus
			if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details.Kind != "namespaces" {
				t.Errorf("create: %v, want a namespace not found", err)
			}
			if _, err := c.remove("a", nil); !apierrors.IsNotFound(err) {
				t.Errorf("delete: %v, want 404", err)
			}
		})
	}
}

// NS-25.
func TestR21_ImmortalNamespaces(t *testing.T) {
	s := sharedServer(t)
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		if _, err := s.namespaces(t).remove(name, nil); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want 403", name, err)
		}
	}
	if status, _, err := s.client(t).exchange(http.MethodGet, "/api/v1/namespaces/kube-node-lease", "", nil); status != http.StatusOK {
		t.Errorf("kube-node-lease: %d %v", status, err)
	}
}

// kube-node-lease can be deleted, and is then created again.
func TestNodeLeaseNamespaceComesAgain(t *testing.T) {
	s := startServer(t, nil)
	namespaces := s.namespaces(t)
	for range 2 {
		first := namespaces.get("kube-node-lease")
		namespaces.mustRemove("kube-node-lease", nil)
		if _, err := namespaces.send(http.MethodPut, namespaces.at("kube-node-lease", "finalize"), "application/json", map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "kube-node-lease"},
		}); err != nil {
			t.Fatal(err)
		}
		eventually.Agrees(t, func() string {
			if now := namespaces.get("kube-node-lease"); now == nil || now.GetUID() == first.GetUID() {
				return "it has not come again"
			}
			return ""
		})
	}
}

// NS-13: every namespace has its name as a label, whatever clients send.
func TestNamespaceIsLabelledWithItsName(t *testing.T) {
	namespaces := sharedServer(t).namespaces(t)
	ns := namespaces.create(unique("labelled"))
	const label = "kubernetes.io/metadata.name"
	if got := ns.GetLabels()[label]; got != ns.GetName() {
		t.Errorf("%s is %q in a new namespace", label, got)
	}
	for _, value := range []any{nil, "other"} {
		changed, err := namespaces.patch(ns.GetName(), types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{label: value}}})
		if err == nil && changed.GetLabels()[label] != ns.GetName() {
			t.Errorf("%s can be set to %v", label, value)
		}
	}
}

// NS-18, NS-19, NS-20, NS-21: patch, status, update and finalize of a namespace.
func TestNamespaceEndpoints(t *testing.T) {
	namespaces := sharedServer(t).namespaces(t)
	ns := namespaces.create(unique("endpoints"))
	patched, err := namespaces.patch(ns.GetName(), types.MergePatchType, map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}})
	if err != nil || patched.GetLabels()["a"] != "b" {
		t.Fatalf("patch: %v %v", patched, err)
	}
	condition := map[string]any{"type": "Tested", "status": "True", "reason": "Test", "message": "by a test"}
	reported, err := namespaces.patch(ns.GetName(), types.MergePatchType, map[string]any{"status": map[string]any{"conditions": []any{condition}}}, "status")
	if err != nil || !hasCondition(reported, "Tested") {
		t.Fatalf("status: %v %v", reported, err)
	}
	reported.SetLabels(map[string]string{"a": "c"})
	updated, err := namespaces.put(reported)
	if err != nil || updated.GetLabels()["a"] != "c" || !hasCondition(updated, "Tested") {
		t.Fatalf("update: %v %v", updated, err)
	}
	finalized, err := namespaces.finalize(updated)
	if err != nil || finalized.GetUID() != ns.GetUID() {
		t.Fatalf("finalize: %v %v", finalized, err)
	}
	if tokens, found, _ := unstructured.NestedSlice(namespaces.get(ns.GetName()).Object, "spec", "finalizers"); found {
		t.Errorf("after finalize there is %v in spec.finalizers", tokens)
	}
}
