package apiserver_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// labelled creates an object with a label.
func (c collection) labelled(name, value string, finalizers ...string) *object {
	c.t.Helper()
	o := c.named(name, finalizers...)
	o.SetLabels(map[string]string{"set": value})
	return c.post(o)
}

// AS-13: selected objects are removed, except those with finalizers, which are marked.
func TestR18_DeleteCollection(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		for i := range 3 {
			c.labelled(fmt.Sprintf("goes-%d", i), "goes")
			c.labelled(fmt.Sprintf("stays-%d", i), "stays")
		}
		held := c.labelled("held", "goes", foreign)
		events := c.watch(held.GetResourceVersion())

		answer, err := c.removeAll(url.Values{"labelSelector": {"set=goes"}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if listed := items(t, answer); len(listed) != 4 {
			t.Errorf("the answer has %d objects, want the 4 that were selected", len(listed))
		}
		if got, want := c.names(), []string{"held", "stays-0", "stays-1", "stays-2"}; !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
		isMarked(t, c.get("held"), held, []string{foreign})
		seen := map[watch.EventType]int{}
		for range 4 {
			e := next(t, events)
			if seen[e.Type]++; e.Type == watch.Error {
				t.Fatalf("the watch gets %v", e.Object)
			}
		}
		if seen[watch.Deleted] != 3 || seen[watch.Modified] != 1 {
			t.Errorf("watchers have seen %v", seen)
		}

		if _, err := c.removeAll(url.Values{"fieldSelector": {"metadata.name=stays-1"}}, nil); err != nil {
			t.Fatal(err)
		}
		if got, want := c.names(), []string{"held", "stays-0", "stays-2"}; !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
	})
}

// The options apply to all objects, even if the effect differs from object to object.
func TestR17_DeleteCollectionOptions(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		objects := map[string]*object{
			"terminating": c.create("terminating", orphan),
			"plain":       c.create("plain"),
			"foreground":  c.create("foreground", foreground),
			"held":        c.create("held", foreign),
		}
		c.mustRemove("terminating", nil)
		if _, err := c.removeAll(nil, policy(metav1.DeletePropagationForeground)); err != nil {
			t.Fatal(err)
		}
		if got, want := c.names(), []string{"foreground", "held", "plain"}; !slices.Equal(got, want) {
			t.Fatalf("left are %v, want %v", got, want)
		}
		isMarked(t, c.get("plain"), objects["plain"], []string{foreground})
		isMarked(t, c.get("foreground"), objects["foreground"], []string{foreground})
		isMarked(t, c.get("held"), objects["held"], []string{foreign, foreground})

		// Conversely, background removes an object that only the collector holds.
		if _, err := c.removeAll(nil, policy(metav1.DeletePropagationBackground)); err != nil {
			t.Fatal(err)
		}
		if got, want := c.names(), []string{"held"}; !slices.Equal(got, want) {
			t.Errorf("left are %v, want %v", got, want)
		}
	})
}

func TestR17_DeleteCollectionPreconditions(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		first, second := c.create("a"), c.create("b")
		options := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(first.GetUID())}}
		if _, err := c.removeAll(nil, options); !apierrors.IsConflict(err) {
			t.Errorf("%v, want 409", err)
		}
		if left := c.get("b"); left == nil || left.GetResourceVersion() != second.GetResourceVersion() {
			t.Errorf("the one with another uid has become %v", left)
		}
	})
}

// AS-13: limit is respected, and two concurrent deletions of one collection do not disturb each other. (The
// tests of the registries cover paging, with small pages.)
func TestR18_DeleteCollectionTwice(t *testing.T) {
	const all = 60
	s := sharedServer(t)
	c := s.configMaps(t, s.namespace(t))
	var creators sync.WaitGroup
	for worker := range 4 {
		creators.Go(func() {
			for i := worker; i < all; i += 4 {
				if _, err := c.tryPost(c.named(fmt.Sprintf("a-%d", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creators.Wait()
	if _, err := c.removeAll(url.Values{"limit": {"15"}}, nil); err != nil {
		t.Fatal(err)
	}
	if got := len(c.names()); got != all-15 {
		t.Errorf("with a limit of 15, %d of %d are left", got, all)
	}
	var errs [2]error
	var removers sync.WaitGroup
	for i := range errs {
		removers.Go(func() { _, errs[i] = c.removeAll(nil, nil) })
	}
	removers.Wait()
	for _, err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	if got := c.names(); len(got) > 0 {
		t.Errorf("%d are left", len(got))
	}
}

// Some kinds do not support deletecollection.
func TestNamespacesAreNotDeletedAsCollection(t *testing.T) {
	s := sharedServer(t)
	if _, err := s.namespaces(t).removeAll(nil, nil); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("%v, want 405", err)
	}
}

// Legacy defaults (AS-08): the policy for dependents of a request without one.
func TestR17_KindDefaults(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	template := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
		"spec":     map[string]any{"restartPolicy": "Never", "containers": []any{map[string]any{"name": "a", "image": "a"}}},
	}
	always := map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}},
	}
	for _, test := range []struct {
		c     collection
		wants []string
	}{
		{s.collection(t, gvk("", "v1", "ReplicationController"), "replicationcontrollers", namespace,
			map[string]any{"spec": map[string]any{"selector": map[string]any{"app": "a"}, "template": always}}), []string{orphan}},
		{s.collection(t, gvk("batch", "v1", "Job"), "jobs", namespace, map[string]any{"spec": map[string]any{"template": template}}), []string{orphan}},
		{s.configMaps(t, namespace), nil},
		{s.subject(t, subjects[0], namespace), nil},
	} {
		t.Run(test.c.resource.Resource, func(t *testing.T) {
			c := test.c
			c.t = t
			created := c.create("a")
			answer := c.mustRemove("a", nil)
			if test.wants == nil {
				isGone(t, c, answer, created)
			} else if got := answer.GetFinalizers(); !slices.Equal(got, test.wants) {
				t.Errorf("finalizers %v, want %v", got, test.wants)
			}
			// An explicit option overrides the default.
			created = c.create("b")
			isGone(t, c, c.mustRemove("b", policy(metav1.DeletePropagationBackground)), created)
		})
	}
}

// Without a collector, none of its finalizers is added.
func TestR17_CollectorDisabled(t *testing.T) {
	t.Parallel()
	s := startServer(t, disableCollector)
	s.define(t, definition(widgetGroup, "widgets", "Widget"))
	for _, sub := range subjects {
		t.Run(sub.name, func(t *testing.T) {
			c := s.subject(t, sub, s.namespace(t))
			for _, p := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
				created := c.create("a")
				isGone(t, c, c.mustRemove("a", policy(p)), created)
			}
			held := c.create("held", foreground)
			isMarked(t, c.mustRemove("held", policy(metav1.DeletePropagationOrphan)), held, []string{foreground})
			isMarked(t, c.mustRemove("held", policy(metav1.DeletePropagationOrphan)), held, []string{foreground})
			if _, err := c.patch("held", types.MergePatchType, mergeFinalizers()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The collector ignores Events: none gets a finalizer of the collector.
func TestR17_EventsTakeNoFinalizers(t *testing.T) {
	s := sharedServer(t)
	namespace := s.namespace(t)
	c := s.collection(t, gvk("", "v1", "Event"), "events", namespace, map[string]any{
		"involvedObject": map[string]any{"namespace": namespace, "name": "a"}, "reason": "Test",
	})
	created := c.create("a")
	isGone(t, c, c.mustRemove("a", policy(metav1.DeletePropagationForeground)), created)
}

// A PUT of an object that does not exist creates nothing.
func TestPutCreatesNothing(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		if _, err := c.put(c.named("a")); !apierrors.IsNotFound(err) {
			t.Errorf("%v, want 404", err)
		}
		if status, _, err := c.exchange(http.MethodDelete, c.at("a"), "", nil); status != http.StatusNotFound {
			t.Errorf("%d %v", status, err)
		}
	})
}

// refuseDeletions makes an admission policy refuse the deletion of objects named "bad…".
func refuseDeletions(t *testing.T, c collection) {
	t.Helper()
	client := typed(t, sharedServer(t).config).AdmissionregistrationV1()
	name, fail := unique("policy"), admissionregistrationv1.Fail
	rules := []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: writes(c, admissionregistrationv1.Delete)[0]}}
	_, err := client.ValidatingAdmissionPolicies().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    &fail,
			MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: rules},
			Validations: []admissionregistrationv1.Validation{{
				Expression: `!oldObject.metadata.name.startsWith("bad")`, MessageExpression: `oldObject.metadata.name + " is to stay"`,
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			MatchResources: &admissionregistrationv1.MatchResources{NamespaceSelector: inNamespace(namespaceOf(c))},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.create("bad-first")
	eventually.Agrees(t, func() string {
		if _, err := c.remove("bad-first", &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); !apierrors.IsInvalid(err) {
			return "the policy does not refuse: " + errText(err)
		}
		return ""
	})
}

// AS-13: in a large collection, some deletions are refused, some objects no longer exist, and some have a
// finalizer. All others are removed, and the response contains the number of failures and their reasons.
func TestR18_DeleteCollectionGoesOn(t *testing.T) {
	const all = 600 // more than a page of the built-in kinds
	onSubjects(t, func(t *testing.T, c collection) {
		refuseDeletions(t, c)
		names := []string{"bad-first", "bad-second"}
		c.create("bad-second")
		for i := range 20 {
			names = append(names, fmt.Sprintf("hangs-%02d", i))
			c.create(names[len(names)-1], foreign)
		}
		var creators sync.WaitGroup
		for worker := range 4 {
			creators.Go(func() {
				for i := worker; i < all; i += 4 {
					if _, err := c.tryPost(c.named(fmt.Sprintf("goes-%d", i))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		creators.Wait()

		dry := &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
		for _, options := range []*metav1.DeleteOptions{dry, {}, {}} {
			of := len(c.names())
			status, _, err := c.exchange(http.MethodDelete, c.path, "application/json", options)
			want := fmt.Sprintf("2 of %d objects were not deleted, the first one because: ", of)
			if !apierrors.IsInvalid(err) || status != http.StatusUnprocessableEntity || !strings.HasPrefix(err.Error(), want) || !strings.HasSuffix(err.Error(), "bad-first is to stay") {
				t.Errorf("%d %v, want %q", status, err, want)
			}
			if left := c.names(); options == dry && len(left) != of {
				t.Errorf("the dry run has left %d of %d", len(left), of)
			}
		}
		if left := c.names(); !slices.Equal(left, names) {
			t.Errorf("left are %v", left)
		}
		for _, o := range c.list() {
			if hangs := strings.HasPrefix(o.GetName(), "hangs"); hangs != (o.GetDeletionTimestamp() != nil) {
				t.Errorf("%s is deleted: %t", o.GetName(), !hangs)
			}
		}
	})
}

// The delete flow refuses one object, and a precondition holds for one object only.
func TestR19_DeleteCollectionRefusedInPart(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		c.create("hangs", foreign)
		c.mustRemove("hangs", nil)
		c.create("goes-on")
		_, err := c.removeAll(nil, policy(metav1.DeletePropagationOrphan))
		if !apierrors.IsInvalid(err) {
			t.Errorf("%v, want 422", err)
		}
		if o := c.get("goes-on"); o == nil || !slices.Equal(o.GetFinalizers(), []string{orphan}) {
			t.Errorf("it has become %v", o)
		}

		for i := range 40 {
			c.create(fmt.Sprintf("a-%02d", i))
		}
		last := c.create("last")
		of := len(c.names())
		_, err = c.removeAll(nil, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(last.GetUID())}})
		if want := fmt.Sprintf("%d of %d objects were not deleted", of-1, of); !apierrors.IsConflict(err) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if c.get("last") != nil || len(c.names()) != of-1 {
			t.Errorf("left are %v", c.names())
		}
	})
}
