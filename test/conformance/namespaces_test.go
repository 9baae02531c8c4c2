package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// namespaces is the kind of the tests' namespaces.
var namespaces = kind{corev1.SchemeGroupVersion.WithResource("namespaces"), "Namespace", true, nil}

// Kinds that are known to be removed early or late from a namespace.
var (
	services        = core("services", "Service", map[string]any{"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}})
	roles           = kind{clusterRoles.GroupVersion().WithResource("roles"), "Role", false, nil}
	roleBindings    = kind{clusterRoles.GroupVersion().WithResource("rolebindings"), "RoleBinding", false, map[string]any{"roleRef": map[string]any{"apiGroup": clusterRoles.Group, "kind": "Role", "name": "nobody"}}}
	networkPolicies = kind{networkingv1.SchemeGroupVersion.WithResource("networkpolicies"), "NetworkPolicy", false, map[string]any{"spec": map[string]any{"podSelector": map[string]any{}}}}
)

// foreignFinalizer is a foreign entry of spec.finalizers.
const foreignFinalizer corev1.FinalizerName = "conformance.example.com/hold"

// namespace reads the test's namespace, which has to exist.
func (w *cluster) namespace() *corev1.Namespace {
	w.t.Helper()
	ns, err := w.server.kube.CoreV1().Namespaces().Get(w.t.Context(), w.space, metav1.GetOptions{})
	if err != nil {
		w.t.Fatalf("read namespace %s: %v", w.space, err)
	}
	return ns
}

// itself returns the test's namespace as an object.
func (w *cluster) itself() object {
	w.t.Helper()
	return object{kind: namespaces, name: w.space, uid: w.namespace().UID}
}

// end deletes the test's namespace and returns it.
func (w *cluster) end() object {
	w.t.Helper()
	self := w.itself()
	w.remove(self, background)
	return self
}

// endHeld deletes the test's namespace after adding a foreign finalizer to it, so that it exists
// for as long as the test needs it.
func (w *cluster) endHeld() object {
	w.t.Helper()
	self := w.itself()
	w.patch(self, map[string]any{"finalizers": []string{hold}})
	w.t.Cleanup(func() {
		if w.t.Failed() {
			_ = w.tryPatch(self, map[string]any{"finalizers": nil})
		}
	})
	w.remove(self, background)
	return self
}

// comeAgain creates the test's namespace again after it is gone.
func (w *cluster) comeAgain() *corev1.Namespace {
	w.t.Helper()
	ns, err := w.server.kube.CoreV1().Namespaces().Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.space}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatalf("create namespace %s again: %v", w.space, err)
	}
	return ns
}

// createSoon creates an object in a namespace that was recreated: for a moment admission may take
// it for the one that is gone.
func (w *cluster) createSoon(k kind, name string) object {
	w.t.Helper()
	var o object
	eventually.Agrees(w.t, func() string {
		var err error
		if o, err = w.tryCreate(k, name); err != nil && !isAway(err) {
			w.t.Fatalf("create %s %s: %v", k.name, name, err)
		}
		if err != nil {
			return err.Error()
		}
		return ""
	})
	return o
}

// setSpecFinalizers replaces spec.finalizers of the test's namespace.
func (w *cluster) setSpecFinalizers(finalizers ...corev1.FinalizerName) {
	w.t.Helper()
	eventually.Agrees(w.t, func() string {
		ns := w.namespace()
		ns.Spec.Finalizers = finalizers
		_, err := w.server.kube.CoreV1().Namespaces().Finalize(w.t.Context(), ns, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			w.t.Fatalf("set spec.finalizers of %s: %v", w.space, err)
		}
		if err != nil {
			return err.Error() // its conditions were written meanwhile
		}
		return ""
	})
}

// addSpecFinalizer adds a foreign entry to spec.finalizers of the test's namespace, which holds
// its deletion.
func (w *cluster) addSpecFinalizer() {
	w.t.Helper()
	w.setSpecFinalizers(corev1.FinalizerKubernetes, foreignFinalizer)
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if ns, err := w.server.kube.CoreV1().Namespaces().Get(ctx, w.space, metav1.GetOptions{}); err == nil {
			ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == foreignFinalizer })
			_, _ = w.server.kube.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{})
		}
	})
}

// eventuallySpecFinalizers waits until spec.finalizers of the test's namespace is this.
func (w *cluster) eventuallySpecFinalizers(want ...corev1.FinalizerName) {
	w.t.Helper()
	eventually.Agrees(w.t, func() string {
		if got := w.namespace().Spec.Finalizers; !slices.Equal(got, want) {
			return fmt.Sprintf("spec.finalizers of %s: %v, want %v", w.space, got, want)
		}
		return ""
	})
}

// settleNamespaces waits until the namespace controller has processed everything from before: a
// namespace that is deleted now is gone after it. It does so twice, as settle does.
func (w *cluster) settleNamespaces() {
	w.t.Helper()
	for range 2 {
		sentinel := w.another()
		w.eventuallyGone(sentinel.end())
	}
}

// conditionLines returns the conditions of the test's namespace, in their order.
func (w *cluster) conditionLines() []string {
	w.t.Helper()
	var lines []string
	for _, c := range w.namespace().Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return lines
}

// eventuallySays waits until the conditions of the test's namespace are these lines.
func (w *cluster) eventuallySays(want ...string) {
	w.t.Helper()
	eventually.Agrees(w.t, func() string {
		if diff := cmp.Diff(want, w.conditionLines()); diff != "" {
			return fmt.Sprintf("conditions of %s (-want +got):\n%s", w.space, diff)
		}
		return ""
	})
}

// eventuallyMentions waits until a condition of the test's namespace begins like this,
// and has all these words in it.
func (w *cluster) eventuallyMentions(begin string, words ...string) {
	w.t.Helper()
	eventually.Agrees(w.t, func() string {
		lines := w.conditionLines()
		for _, line := range lines {
			lacks := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
			if strings.HasPrefix(line, begin) && !lacks {
				return ""
			}
		}
		return fmt.Sprintf("no condition of %s begins %q and mentions %q:\n%s", w.space, begin, words, strings.Join(lines, "\n"))
	})
}

// The conditions of a namespace that is being emptied without trouble.
const (
	discovered = "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources successfully discovered"
	parsed     = "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy kube types successfully parsed"
	deleted    = "NamespaceDeletionContentFailure False ContentDeleted: All content successfully deleted, may be waiting on finalization"
	removed    = "NamespaceContentRemaining False ContentRemoved: All content successfully removed"
	finished   = "NamespaceFinalizersRemaining False ContentHasNoFinalizers: All content-preserving finalizers finished"
)

// remain and preserved are the conditions that report what remains.
func remain(what string) string {
	return "NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: " + what
}

func preserved(by string) string {
	return "NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: " + by
}

// isAway reports whether a creation was refused because its namespace is gone or terminating.
func isAway(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isTerminatingCause checks how a creation in a terminating namespace is refused.
func isTerminatingCause(t *testing.T, err error) {
	t.Helper()
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		t.Errorf("create in a terminating namespace: %v, want 403 with the cause %s", err, corev1.NamespaceTerminatingCause)
	}
}
