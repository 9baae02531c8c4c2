package probe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
)

// ForeignFinalizer is a foreign entry of spec.finalizers.
const ForeignFinalizer corev1.FinalizerName = "conformance.example.com/hold"

// Namespace reads the check's namespace, which must exist.
func (w *Space) Namespace() *corev1.Namespace {
	w.T.Helper()
	ns, err := w.Server.Kube.CoreV1().Namespaces().Get(w.T.Context(), w.Name, metav1.GetOptions{})
	if err != nil {
		w.T.Fatalf("read namespace %s: %v", w.Name, err)
	}
	return ns
}

// Itself returns the check's namespace as an object.
func (w *Space) Itself() Object {
	w.T.Helper()
	return Object{Kind: Namespaces, Name: w.Name, UID: w.Namespace().UID}
}

// End deletes the check's namespace and returns it.
func (w *Space) End() Object {
	w.T.Helper()
	self := w.Itself()
	w.Remove(self, Background)
	return self
}

// EndHeld adds a foreign finalizer to the check's namespace and deletes it, so that it exists
// as long as the check needs it.
func (w *Space) EndHeld() Object {
	w.T.Helper()
	self := w.Itself()
	w.Patch(self, map[string]any{"finalizers": []string{Hold}})
	w.T.Cleanup(func() { _ = w.TryPatch(self, map[string]any{"finalizers": nil}) })
	w.Remove(self, Background)
	return self
}

// ComeAgain creates the check's namespace again after it is gone.
func (w *Space) ComeAgain() *corev1.Namespace {
	w.T.Helper()
	return w.createItself()
}

// CreateSoon creates an object in a recreated namespace: for a moment admission may confuse it
// with the deleted one.
func (w *Space) CreateSoon(k Kind, name string) Object {
	w.T.Helper()
	return w.createOnceReady(func(err error) bool { return needsAccount(err) || IsAway(err) }, k, name)
}

// SetSpecFinalizers replaces spec.finalizers of the check's namespace.
func (w *Space) SetSpecFinalizers(finalizers ...corev1.FinalizerName) {
	w.T.Helper()
	w.Until(fmt.Sprintf("to set spec.finalizers to %v", finalizers), func() string {
		ns := w.Namespace()
		ns.Spec.Finalizers = finalizers
		_, err := w.Server.Kube.CoreV1().Namespaces().Finalize(w.T.Context(), ns, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) {
			w.T.Fatalf("set spec.finalizers of %s: %v", w.Name, err)
		}
		if err != nil {
			return err.Error() // the controller has written conditions meanwhile
		}
		return ""
	})
}

// AddSpecFinalizer adds a foreign entry to spec.finalizers of the check's namespace, which delays
// its removal.
func (w *Space) AddSpecFinalizer() {
	w.T.Helper()
	w.SetSpecFinalizers(corev1.FinalizerKubernetes, ForeignFinalizer)
	w.T.Cleanup(func() {
		ctx, cancel := w.cleaning()
		defer cancel()
		api := w.Server.Kube.CoreV1().Namespaces()
		// The namespace controller may write conditions, or remove its own entry, at the same time.
		err := retry.OnError(wait.Backoff{Duration: 20 * time.Millisecond, Factor: 2, Steps: 8}, apierrors.IsConflict, func() error {
			ns, err := api.Get(ctx, w.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			ns.Spec.Finalizers = slices.DeleteFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f == ForeignFinalizer })
			_, err = api.Finalize(ctx, ns, metav1.UpdateOptions{})
			return err
		})
		if err != nil && !apierrors.IsNotFound(err) {
			w.T.Errorf("remove %s from spec.finalizers of %s: %v", ForeignFinalizer, w.Name, err)
		}
	})
}

// EventuallySpecFinalizers waits until spec.finalizers of the check's namespace has exactly these entries.
func (w *Space) EventuallySpecFinalizers(want ...corev1.FinalizerName) {
	w.T.Helper()
	w.Until(fmt.Sprintf("spec.finalizers of the namespace to be %v", want), func() string {
		if got := w.Namespace().Spec.Finalizers; !slices.Equal(got, want) {
			return fmt.Sprintf("they are %v", got)
		}
		return ""
	})
}

// SettleNamespaces waits until the namespace controller has processed all earlier events: it deletes
// another namespace and waits until that is gone. It does so twice, as Settle does.
func (w *Space) SettleNamespaces() {
	w.T.Helper()
	for range 2 {
		sentinel := w.Another()
		w.EventuallyGone(sentinel.End())
	}
}

// ConditionLines returns the conditions of the check's namespace, in their order, as lines.
func (w *Space) ConditionLines() []string {
	w.T.Helper()
	var lines []string
	for _, c := range w.Namespace().Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return lines
}

// EventuallySays waits until the conditions of the check's namespace are these lines.
func (w *Space) EventuallySays(want ...string) {
	w.T.Helper()
	w.Until("the namespace to have its conditions", func() string {
		if diff := cmp.Diff(want, w.ConditionLines()); diff != "" {
			return "conditions (-want +got):\n" + diff
		}
		return ""
	})
}

// EventuallyMentions waits until a condition of the check's namespace has this beginning
// and contains all these words.
func (w *Space) EventuallyMentions(begin string, words ...string) {
	w.T.Helper()
	w.Until(fmt.Sprintf("a condition of the namespace that begins %q and mentions %q", begin, words), func() string {
		lines := w.ConditionLines()
		for _, line := range lines {
			lacks := slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) })
			if strings.HasPrefix(line, begin) && !lacks {
				return ""
			}
		}
		return "there are:\n" + strings.Join(lines, "\n")
	})
}

// The conditions of a namespace whose contents are being deleted without errors.
const (
	Discovered = "NamespaceDeletionDiscoveryFailure False ResourcesDiscovered: All resources successfully discovered"
	Parsed     = "NamespaceDeletionGroupVersionParsingFailure False ParsedGroupVersions: All legacy kube types successfully parsed"
	Deleted    = "NamespaceDeletionContentFailure False ContentDeleted: All content successfully deleted, may be waiting on finalization"
	Removed    = "NamespaceContentRemaining False ContentRemoved: All content successfully removed"
	Finished   = "NamespaceFinalizersRemaining False ContentHasNoFinalizers: All content-preserving finalizers finished"
)

// Remain returns the condition that reports the remaining contents.
func Remain(what string) string {
	return "NamespaceContentRemaining True SomeResourcesRemain: Some resources are remaining: " + what
}

// Preserved returns the condition that reports the finalizers of the remaining contents.
func Preserved(by string) string {
	return "NamespaceFinalizersRemaining True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: " + by
}

// IsAway reports whether a creation was refused because its namespace is gone or terminating.
func IsAway(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsMarked reports whether a namespace has a deletionTimestamp and the phase Terminating.
func IsMarked(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil && ns.Status.Phase == corev1.NamespaceTerminating
}

// apiServices is the resource that registers the API groups of other servers.
func apiServices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
}

// BreakGroup registers an API group whose server does not exist, and waits until discovery fails
// for it. It skips the check on a server without aggregation.
func (w *Space) BreakGroup(group string) (repair func()) {
	w.T.Helper()
	registry := w.Server.Dynamic.Resource(apiServices())
	if _, err := registry.List(w.T.Context(), listOne()); IsGone(err) {
		w.T.Skip("the server does not aggregate others")
	}
	service := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiServices().GroupVersion().String(), "kind": "APIService",
		"metadata": map[string]any{"name": "v1." + group},
		"spec": map[string]any{
			"group": group, "version": "v1", "groupPriorityMinimum": int64(1000), "versionPriority": int64(10),
			"insecureSkipTLSVerify": true, "service": map[string]any{"namespace": metav1.NamespaceDefault, "name": "nowhere"},
		},
	}}
	if _, err := registry.Create(w.T.Context(), service, metav1.CreateOptions{}); err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() {
		ctx, cancel := w.cleaning()
		defer cancel()
		_ = registry.Delete(ctx, service.GetName(), metav1.DeleteOptions{}) // if the check has not deleted it
	})
	w.Until("discovery to fail for "+group, func() string {
		var answer string
		_, lists, err := w.Server.Kube.Discovery().ServerGroupsAndResources()
		if err != nil {
			answer = err.Error()
		}
		if strings.Contains(answer, group) {
			return ""
		}
		return fmt.Sprintf("it answers %q, with %d lists", answer, len(lists))
	})
	return func() {
		if err := registry.Delete(w.T.Context(), service.GetName(), metav1.DeleteOptions{}); err != nil {
			w.T.Fatal(err)
		}
	}
}
