package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// The conditions of a namespace while it is emptied.
func TestNamespaceConditions(t *testing.T) {
	t.Run("NS-10 conditions of others stay, and each of ours has its place", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		hanging := w.create(configMaps, "hanging", held)
		w.addSpecFinalizer()
		ns := w.namespace()
		ns.Status.Conditions = []corev1.NamespaceCondition{{Type: "Unrelated", Status: corev1.ConditionTrue, Reason: "Test", Message: "by a test"}}
		if _, err := w.server.kube.CoreV1().Namespaces().UpdateStatus(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		const unrelated = "Unrelated True Test: by a test"
		self := w.end()
		w.eventuallySays(unrelated, discovered, parsed, deleted, remain("configmaps. has 1 resource instances"), preserved(hold+" in 1 resource instances"))
		w.letGo(hanging)
		w.eventuallySays(unrelated, discovered, parsed, deleted, removed, finished)
		w.setSpecFinalizers()
		w.eventuallyGone(self)
	})
	t.Run("NS-10 the time of a condition is that of its status", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		w.ours("R22: lastTransitionTime changes with the status; upstream changes it with every message")
		hanging := w.createMany(2, configMaps, "hanging", held)
		w.addSpecFinalizer()
		w.end()
		w.eventuallySays(discovered, parsed, deleted, remain("configmaps. has 2 resource instances"), preserved(hold+" in 2 resource instances"))
		before := w.namespace().Status.Conditions
		eventually.Agrees(t, func() string { // times have seconds
			if since := time.Since(before[len(before)-1].LastTransitionTime.Time); since < 2*time.Second {
				return fmt.Sprintf("the conditions are %s old", since)
			}
			return ""
		})
		w.letGo(hanging[0])
		w.eventuallySays(discovered, parsed, deleted, remain("configmaps. has 1 resource instances"), preserved(hold+" in 1 resource instances"))
		for i, c := range w.namespace().Status.Conditions {
			if !c.LastTransitionTime.Equal(&before[i].LastTransitionTime) {
				t.Errorf("%s is of %s, and of %s before its message changed", c.Type, c.LastTransitionTime, before[i].LastTransitionTime)
			}
		}
		w.letGo(hanging[1])
		w.eventuallySays(discovered, parsed, deleted, removed, finished)
		for i, c := range w.namespace().Status.Conditions {
			if changed := i >= 3; c.LastTransitionTime.Equal(&before[i].LastTransitionTime) == changed {
				t.Errorf("%s is of %s, and was of %s; changed: %t", c.Type, c.LastTransitionTime, before[i].LastTransitionTime, changed)
			}
		}
	})
	t.Run("NS-11 what remains is counted by kind and by finalizer", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		const other = "conformance.example.com/other"
		two := w.createMany(2, configMaps, "one-finalizer", held)
		one := w.create(secrets, "two-finalizers", withFinalizers(hold, other))
		w.addSpecFinalizer()
		self := w.end()
		w.eventuallySays(discovered, parsed, deleted, remain("configmaps. has 2 resource instances, secrets. has 1 resource instances"),
			preserved(hold+" in 3 resource instances, "+other+" in 1 resource instances"))
		w.letGo(two[0])
		w.letGo(one, other)
		w.eventuallySays(discovered, parsed, deleted, remain("configmaps. has 1 resource instances, secrets. has 1 resource instances"),
			preserved(hold+" in 1 resource instances, "+other+" in 1 resource instances"))
		w.letGo(two[1])
		w.letGo(one)
		w.eventuallySays(discovered, parsed, deleted, removed, finished)
		w.setSpecFinalizers()
		w.eventuallyGone(self)
	})
	t.Run("NS-12 a deployment that hangs holds its namespace, which says so", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		hanging := w.create(deployments, "hanging", held)
		self := w.end()
		w.eventuallySays(discovered, parsed, deleted, remain("deployments.apps has 1 resource instances"), preserved(hold+" in 1 resource instances"))
		ns := w.namespace()
		if ns.Status.Phase != corev1.NamespaceTerminating || ns.UID != self.uid || len(ns.Spec.Finalizers) != 1 {
			t.Errorf("the namespace is %v", ns)
		}
		w.letGo(hanging)
		w.eventuallyGone(self, hanging)
	})
}

// A kind that cannot be read, or whose group cannot be discovered, holds all namespaces
// of the server: these tests run alone.
func TestNamespacesAndBrokenKinds(t *testing.T) {
	t.Run("NS-06 a kind whose conversion fails holds the namespace, which says so", func(t *testing.T) {
		w := shared(t)
		gizmos := w.define("gizmos")
		stored, repair := w.breakReading(gizmos)
		other, role := w.create(configMaps, "other"), w.create(roles, "role")
		self := w.end()
		w.eventuallyGone(other)
		words := []string{"Failed to delete all resource types, 1 remaining: "}
		if !w.server.foreign {
			words = append(words, gizmos.definition())
		}
		w.eventuallyMentions("NamespaceDeletionContentFailure True ContentDeletionFailed", words...)
		if !w.server.foreign { // upstream deletes all kinds but pods in any order
			w.areKept(role)
		}
		repair()
		w.eventuallyGone(self)
		w.eventuallyGone(stored...)
	})
	t.Run("NS-06 a group whose server is away holds the namespace, which says so", func(t *testing.T) {
		w := shared(t)
		group := w.space + ".example.com"
		repair := w.breakGroup(group)
		others := []object{w.create(configMaps, "other"), w.create(roles, "role")}
		self := w.end()
		w.eventuallyGone(others...)
		w.eventuallyMentions("NamespaceDeletionDiscoveryFailure True DiscoveryFailed", "Discovery failed for some groups, ", group+"/v1")
		w.must(self)
		repair()
		w.eventuallyGone(self)
	})
}

var apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}

// breakGroup registers an API group whose server does not exist, and waits until
// discovery fails for it. Servers that aggregate no others have no such groups.
func (w *cluster) breakGroup(group string) (repair func()) {
	w.t.Helper()
	registry := w.server.dynamic.Resource(apiServices)
	if _, err := registry.List(w.t.Context(), listOne); isGone(err) {
		w.t.Skip("the server does not aggregate others")
	}
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiServices.GroupVersion().String(), "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + group},
		"spec": map[string]any{
			"group": group, "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": metav1.NamespaceDefault, "name": "nowhere"},
		},
	}}
	if _, err := registry.Create(w.t.Context(), service, metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = registry.Delete(ctx, service.GetName(), metav1.DeleteOptions{}) // if the test has not
	})
	eventually.Agrees(w.t, func() string {
		var answer string
		_, lists, err := w.server.kube.Discovery().ServerGroupsAndResources()
		if err != nil {
			answer = err.Error()
		}
		if strings.Contains(answer, group) {
			return ""
		}
		return fmt.Sprintf("discovery does not fail for %s: %q, %d lists", group, answer, len(lists))
	})
	return func() {
		if err := registry.Delete(w.t.Context(), service.GetName(), metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
}
