package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dustin/go-humanize/english"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// The API server's answers to requests about namespaces.
var namespaceRequests = []Check{
	{"NS-13 a namespace has its name as a label, whatever clients send", "", 0, func(w *probe.Space) {
		self := w.Itself()
		for _, value := range []any{w.Name, nil, "other"} {
			_ = w.TryPatch(self, map[string]any{"labels": map[string]any{corev1.LabelMetadataName: value}}) // refused or corrected
			if got := w.Must(self).Labels[corev1.LabelMetadataName]; got != w.Name {
				w.T.Errorf("after a request for %v, the label is %q", value, got)
			}
		}
	}},
	{"NS-18 a namespace is patched", "", 0, func(w *probe.Space) {
		w.Patch(w.Itself(), map[string]any{"labels": map[string]string{"a": "b"}})
		if got := w.Namespace(); got.Labels["a"] != "b" || got.Status.Phase != corev1.NamespaceActive {
			w.T.Errorf("after a patch: %v", got)
		}
	}},
	{"NS-19 NS-20 NS-21 the status, the rest and spec.finalizers are each written in their own way", "", 0, func(w *probe.Space) {
		api := w.Server.Kube.CoreV1().Namespaces()
		write := func(name string, do func(context.Context, *corev1.Namespace, metav1.UpdateOptions) (*corev1.Namespace, error), label string) *corev1.Namespace {
			w.T.Helper()
			ns := w.Namespace()
			metav1.SetMetaDataLabel(&ns.ObjectMeta, "a", label)
			ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerName("conformance.example.com/"+label))
			ns.Status.Conditions = append(ns.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceConditionType(label), Status: corev1.ConditionTrue})
			if _, err := do(w.T.Context(), ns, metav1.UpdateOptions{}); err != nil {
				w.T.Fatalf("%s: %v", name, err)
			}
			return w.Namespace()
		}
		if got := write("status", api.UpdateStatus, "status"); len(got.Status.Conditions) != 1 || len(got.Spec.Finalizers) != 1 {
			w.T.Errorf("after a write of the status: %v", got)
		}
		if got := write("update", api.Update, "updated"); got.Labels["a"] != "updated" || len(got.Status.Conditions) != 1 || len(got.Spec.Finalizers) != 1 {
			w.T.Errorf("after an update: %v", got)
		}
		if got := write("finalize", api.Finalize, "finalized"); len(got.Spec.Finalizers) != 2 || len(got.Status.Conditions) != 1 {
			w.T.Errorf("after a write of spec.finalizers: %v", got)
		}
		w.SetSpecFinalizers(corev1.FinalizerKubernetes)
	}},
	{"NS-23 one write marks a namespace and says that it terminates", "R18 R21", 0, func(w *probe.Space) {
		w.AddSpecFinalizer()
		ns := w.Namespace()
		err := w.Objects(w.Itself()).Delete(w.T.Context(), w.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(uuid.NewUUID())}})
		if !apierrors.IsConflict(err) {
			w.T.Errorf("delete another namespace of this name: %v, want 409", err)
		}
		ctx, cancel := context.WithTimeout(w.T.Context(), probe.DefaultPatience)
		defer cancel()
		events, err := w.Server.Kube.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{
			ResourceVersion: ns.ResourceVersion, FieldSelector: fields.OneTermEqualSelector("metadata.name", w.Name).String(),
		})
		if err != nil {
			w.T.Fatal(err)
		}
		defer events.Stop()
		answer := endWith(w, metav1.DeleteOptions{})
		if !probe.IsMarked(answer) {
			w.T.Errorf("want the answer to be a namespace that is marked and terminating; it is %v", answer)
		}
		w.Differs(graceIsZero(), func(w *probe.Space) {
			if seconds := answer.DeletionGracePeriodSeconds; seconds == nil || *seconds != 0 {
				w.T.Errorf("want deletionGracePeriodSeconds to be 0; it is %v", seconds)
			}
		})
		event, open := <-events.ResultChan()
		if marked, ok := event.Object.(*corev1.Namespace); !open || !ok || event.Type != watch.Modified || !probe.IsMarked(marked) {
			w.T.Errorf("the first event is %s of %v", event.Type, event.Object)
		}
	}},
	{"NS-23 a namespace that nothing holds goes with its DELETE", "R18 R21", 0, func(w *probe.Space) {
		self := w.Itself()
		w.SetSpecFinalizers()
		w.Remove(self, probe.Background)
		w.Differs(firstDeleteRemoves(), func(w *probe.Space) {
			if now, ok := w.Look(self); ok {
				w.T.Errorf("want the namespace to be gone with the answer; it is there: %s", probe.Describe(now))
			}
		})
	}},
}

// Requests in a missing or terminating namespace, and namespaces that cannot be deleted.
var namespaceAdmission = []Check{
	{"NS-25 in a missing namespace no object is created, changed, or found", "R21", NamespaceController, func(w *probe.Space) {
		missing := probe.At(w.T, w.Server, w.Name+"-missing")
		_, err := missing.TryCreate(probe.ConfigMaps, "object")
		var status apierrors.APIStatus
		if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details.Kind != probe.Namespaces.Resource {
			w.T.Errorf("create: %v, want that the namespace is not found", err)
		}
		object := probe.Object{Kind: probe.ConfigMaps, Namespace: missing.Name, Name: "object"}
		if err := missing.TryPatch(object, map[string]any{"labels": map[string]string{"a": "b"}}); !apierrors.IsNotFound(err) {
			w.T.Errorf("patch: %v, want 404", err)
		}
		if err := missing.Objects(object).Delete(w.T.Context(), object.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			w.T.Errorf("delete: %v, want 404", err)
		}
		asksForAccess(missing)
	}},
	{"NS-25 in a terminating namespace no object is created, and all other requests succeed", "R21", NamespaceController, func(w *probe.Space) {
		hanging := w.Create(probe.Pods, "hanging", probe.Held) // so that the other contents stay
		changed, removed := w.Create(probe.ConfigMaps, "changed"), w.Create(probe.ConfigMaps, "gone")
		self := w.End()
		for _, k := range []probe.Kind{probe.ConfigMaps, probe.Deployments, probe.Roles} {
			_, err := w.TryCreate(k, "late")
			isTerminatingCause(w, err)
		}
		w.Patch(changed, map[string]any{"labels": map[string]string{"a": "b"}})
		if w.Must(changed).Labels["a"] != "b" {
			w.T.Error("the change is not there")
		}
		w.Remove(removed, probe.Background)
		w.EventuallyGone(removed)
		asksForAccess(w)
		w.LetGo(hanging)
		w.EventuallyGone(self, changed)
	}},
	{"NS-25 some namespaces cannot be deleted", "R21", NamespaceController, func(w *probe.Space) {
		for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
			// A dry run: a server that allows the deletion must not lose the namespace.
			err := w.Server.Metadata.Resource(probe.Namespaces.GroupVersionResource).Delete(w.T.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) {
				w.T.Errorf("delete %s: %v, want 403", name, err)
			}
		}
		if err := w.Server.Metadata.Resource(probe.Namespaces.GroupVersionResource).Delete(w.T.Context(), w.Name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			w.T.Errorf("delete any other: %v", err)
		}
	}},
	{"NS-25 a deleted namespace accepts no objects, and accepts them when it is created again", "R21", NamespaceController, func(w *probe.Space) {
		for range 5 {
			w.EventuallyGone(w.End())
			// Admission may still see the namespace as terminating.
			if _, err := w.TryCreate(probe.ConfigMaps, "object"); !probe.IsAway(err) {
				w.T.Errorf("create in a namespace that is gone: %v", err)
			}
			w.ComeAgain()
			w.CreateSoon(probe.ConfigMaps, "object")
		}
	}},
	{"NS-25 creates that race with the deletion leave nothing behind", "R21", NamespaceController, func(w *probe.Space) {
		w.Differs(createsAreNeverLate(), func(w *probe.Space) {
			for range 5 {
				race(w)
			}
		})
	}},
}

// eitherList returns checks of the two lists of finalizers of a namespace.
func eitherList() []Check {
	var all []Check
	for _, order := range [][]string{{"spec", "metadata"}, {"metadata", "spec"}} {
		all = append(all, Check{"NS-23 either list of finalizers holds a namespace, first empty is " + order[0], "R18 R21", 0, func(w *probe.Space) {
			self := w.Itself()
			w.SetSpecFinalizers(probe.ForeignFinalizer)
			w.Patch(self, map[string]any{"finalizers": []string{probe.Hold}})
			w.Remove(self, probe.Background)
			empty := map[string]func(){"spec": func() { w.SetSpecFinalizers() }, "metadata": func() { w.LetGo(self) }}
			empty[order[0]]()
			if ns := w.Namespace(); ns.UID != self.UID || !probe.IsMarked(ns) {
				w.T.Errorf("held by one list, it is %v", ns)
			}
			empty[order[1]]()
			if now, ok := w.Look(self); ok {
				w.T.Errorf("held by nothing, it is there: %s", probe.Describe(now))
			}
		}})
	}
	return all
}

// deletionOptions returns checks of the collector's finalizers that deletion options set on a namespace.
func deletionOptions() []Check {
	var all []Check
	for _, one := range []struct {
		name    string
		options metav1.DeleteOptions
		want    []string // if the namespace had neither finalizer before, orphan, or foregroundDeletion
	}{
		{"nothing", metav1.DeleteOptions{}, []string{"", probe.OrphanFinalizer, probe.ForegroundFinalizer}},
		{"orphanDependents", metav1.DeleteOptions{OrphanDependents: new(true)}, []string{probe.OrphanFinalizer, probe.OrphanFinalizer, probe.OrphanFinalizer}},
		{"orphanDependents false", metav1.DeleteOptions{OrphanDependents: new(false)}, []string{probe.ForegroundFinalizer, probe.ForegroundFinalizer, probe.ForegroundFinalizer}},
		{"orphan", probe.Policy(probe.Orphan), []string{probe.OrphanFinalizer, probe.OrphanFinalizer, probe.OrphanFinalizer}},
		{"foreground", probe.Policy(probe.Foreground), []string{probe.ForegroundFinalizer, probe.ForegroundFinalizer, probe.ForegroundFinalizer}},
		{"background", probe.Policy(probe.Background), []string{"", "", ""}},
	} {
		for i, had := range []string{"", probe.OrphanFinalizer, probe.ForegroundFinalizer} {
			name := fmt.Sprintf("NS-24 delete with %s a namespace with %q", one.name, had)
			all = append(all, Check{name, "R17 R18", Collector | NamespaceController, func(w *probe.Space) {
				self := w.Itself()
				w.Patch(self, map[string]any{"finalizers": slices.DeleteFunc([]string{had}, isNothing)})
				if got := strings.Join(endWith(w, one.options).Finalizers, " "); got != one.want[i] {
					w.T.Errorf("want it to be left with finalizers %q; it has %q", one.want[i], got)
				}
				w.EventuallyGone(self)
			}})
		}
	}
	return all
}

func isNothing(s string) bool { return s == "" }

// endWith deletes the check's namespace, and returns the server's answer.
func endWith(w *probe.Space, options metav1.DeleteOptions) *corev1.Namespace {
	w.T.Helper()
	answer := &corev1.Namespace{}
	err := w.Server.Kube.CoreV1().RESTClient().Delete().Resource(probe.Namespaces.Resource).Name(w.Name).Body(&options).Do(w.T.Context()).Into(answer)
	if err != nil {
		w.T.Fatalf("delete namespace %s: %v", w.Name, err)
	}
	return answer
}

// isTerminatingCause checks the answer that refuses a creation in a terminating namespace.
func isTerminatingCause(w *probe.Space, err error) {
	w.T.Helper()
	if !apierrors.IsForbidden(err) || !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		w.T.Errorf("want a creation in a terminating namespace to be refused with 403 and the cause %s; the answer is %v", corev1.NamespaceTerminatingCause, err)
	}
}

// asksForAccess creates an access review in the check's namespace. The server must answer it in every
// state of the namespace.
func asksForAccess(w *probe.Space) {
	w.T.Helper()
	review := &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Name},
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: w.Name, Verb: "get", Resource: probe.Pods.Resource,
		}},
	}
	answer, err := w.Server.Kube.AuthorizationV1().LocalSubjectAccessReviews(w.Name).Create(w.T.Context(), review, metav1.CreateOptions{})
	if err != nil || answer.Status.Allowed {
		w.T.Errorf("may ann get pods in %s: %v %v", w.Name, answer, err)
	}
}

// race deletes a namespace while clients create objects in it, and looks for created objects that
// still exist when the namespace is gone.
func race(w *probe.Space) {
	w.T.Helper()
	space := w.Another()
	began := make(chan struct{})
	isFull := sync.OnceFunc(func() { close(began) })
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			defer isFull()
			for n := 0; ; n++ {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d-%d", i, n)}}
				if _, err := w.Server.Kube.CoreV1().ConfigMaps(space.Name).Create(w.T.Context(), o, metav1.CreateOptions{}); err != nil {
					if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && w.T.Context().Err() == nil {
						w.T.Errorf("create: %v", err)
					}
					return
				}
				if n == 10 {
					isFull()
				}
			}
		})
	}
	<-began
	w.EventuallyGone(space.End())
	writers.Wait()
	remaining, err := w.Server.Kube.CoreV1().ConfigMaps(space.Name).List(w.T.Context(), metav1.ListOptions{})
	if err != nil || len(remaining.Items) > 0 {
		w.T.Errorf("%s left in a namespace that is gone: %v", english.Plural(len(remaining.Items), "object is", "objects are"), err)
	}
}
