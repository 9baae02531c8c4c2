package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
)

// How the API server answers requests about namespaces.
func TestNamespaceRequests(t *testing.T) {
	t.Run("NS-13 a namespace has its name as a label, whatever clients send", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		self := w.itself()
		for _, value := range []any{w.space, nil, "other"} {
			_ = w.tryPatch(self, map[string]any{"labels": map[string]any{corev1.LabelMetadataName: value}}) // refused or put right
			if got := w.must(self).Labels[corev1.LabelMetadataName]; got != w.space {
				t.Errorf("when %v was asked for, the label is %q", value, got)
			}
		}
	})
	t.Run("NS-18 a namespace is patched", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		w.patch(w.itself(), map[string]any{"labels": map[string]string{"a": "b"}})
		if got := w.namespace(); got.Labels["a"] != "b" || got.Status.Phase != corev1.NamespaceActive {
			t.Errorf("after a patch: %v", got)
		}
	})
	t.Run("NS-19 NS-20 NS-21 the status, the rest and spec.finalizers are each written in their own way", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		api := w.server.kube.CoreV1().Namespaces()
		write := func(name string, do func(context.Context, *corev1.Namespace, metav1.UpdateOptions) (*corev1.Namespace, error), label string) *corev1.Namespace {
			t.Helper()
			ns := w.namespace()
			metav1.SetMetaDataLabel(&ns.ObjectMeta, "a", label)
			ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerName("conformance.example.com/"+label))
			ns.Status.Conditions = append(ns.Status.Conditions, corev1.NamespaceCondition{Type: corev1.NamespaceConditionType(label), Status: corev1.ConditionTrue})
			if _, err := do(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return w.namespace()
		}
		if got := write("status", api.UpdateStatus, "status"); len(got.Status.Conditions) != 1 || len(got.Spec.Finalizers) != 1 {
			t.Errorf("after a write of the status: %v", got)
		}
		if got := write("update", api.Update, "updated"); got.Labels["a"] != "updated" || len(got.Status.Conditions) != 1 || len(got.Spec.Finalizers) != 1 {
			t.Errorf("after an update: %v", got)
		}
		if got := write("finalize", api.Finalize, "finalized"); len(got.Spec.Finalizers) != 2 || len(got.Status.Conditions) != 1 {
			t.Errorf("after a write of spec.finalizers: %v", got)
		}
		w.setSpecFinalizers(corev1.FinalizerKubernetes)
	})
	t.Run("NS-23 one write marks a namespace and says that it terminates", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		w.addSpecFinalizer()
		ns := w.namespace()
		err := w.objects(w.itself()).Delete(t.Context(), w.space, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: new(uuid.NewUUID())}})
		if !apierrors.IsConflict(err) {
			t.Errorf("delete another namespace of this name: %v, want 409", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		events, err := w.server.kube.CoreV1().Namespaces().Watch(ctx, metav1.ListOptions{
			ResourceVersion: ns.ResourceVersion, FieldSelector: fields.OneTermEqualSelector("metadata.name", w.space).String(),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		if answer := w.endWith(metav1.DeleteOptions{}); !isMarked(answer) {
			t.Errorf("the answer is %v", answer)
		}
		event, open := <-events.ResultChan()
		if marked, ok := event.Object.(*corev1.Namespace); !open || !ok || event.Type != watch.Modified || !isMarked(marked) {
			t.Errorf("the first event is %s of %v", event.Type, event.Object)
		}
	})
	for _, order := range [][]string{{"spec", "metadata"}, {"metadata", "spec"}} {
		t.Run("NS-23 either list of finalizers holds a namespace, first empty is "+order[0], func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			self := w.itself()
			w.setSpecFinalizers(foreignFinalizer)
			w.patch(self, map[string]any{"finalizers": []string{hold}})
			w.remove(self, background)
			empty := map[string]func(){"spec": func() { w.setSpecFinalizers() }, "metadata": func() { w.letGo(self) }}
			empty[order[0]]()
			if ns := w.namespace(); ns.UID != self.uid || !isMarked(ns) {
				t.Errorf("held by one list, it is %v", ns)
			}
			empty[order[1]]()
			if now, ok := w.look(self); ok {
				t.Errorf("held by nothing, it is there: %s", describe(now))
			}
		})
	}
	t.Run("NS-23 a namespace that nothing holds goes with its DELETE", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		if !w.server.ours() {
			t.Skip("R18: this is how our server differs: upstream's removes it with the second DELETE")
		}
		self := w.itself()
		w.setSpecFinalizers()
		w.remove(self, background)
		if now, ok := w.look(self); ok {
			t.Errorf("it is there: %s", describe(now))
		}
	})
}

// endWith deletes the test's namespace, and returns the server's answer.
func (w *cluster) endWith(options metav1.DeleteOptions) *corev1.Namespace {
	w.t.Helper()
	answer := &corev1.Namespace{}
	err := w.server.kube.CoreV1().RESTClient().Delete().Resource(namespaces.Resource).Name(w.space).Body(&options).Do(w.t.Context()).Into(answer)
	if err != nil {
		w.t.Fatalf("delete namespace %s: %v", w.space, err)
	}
	return answer
}

func isMarked(ns *corev1.Namespace) bool {
	return ns.DeletionTimestamp != nil && ns.Status.Phase == corev1.NamespaceTerminating
}

// NS-24: the effect of the options on the collector's finalizers.
func TestNamespaceDeletionOptions(t *testing.T) {
	policy := func(p metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &p}
	}
	for name, test := range map[string]struct {
		options metav1.DeleteOptions
		want    []string // of a namespace with neither finalizer, with orphan, with foregroundDeletion
	}{
		"nothing":                {metav1.DeleteOptions{}, []string{"", orphanFinalizer, foregroundFinalizer}},
		"orphanDependents":       {metav1.DeleteOptions{OrphanDependents: new(true)}, []string{orphanFinalizer, orphanFinalizer, orphanFinalizer}},
		"orphanDependents false": {metav1.DeleteOptions{OrphanDependents: new(false)}, []string{foregroundFinalizer, foregroundFinalizer, foregroundFinalizer}},
		"orphan":                 {policy(orphan), []string{orphanFinalizer, orphanFinalizer, orphanFinalizer}},
		"foreground":             {policy(foreground), []string{foregroundFinalizer, foregroundFinalizer, foregroundFinalizer}},
		"background":             {policy(background), []string{"", "", ""}},
	} {
		for i, had := range []string{"", orphanFinalizer, foregroundFinalizer} {
			t.Run(fmt.Sprintf("NS-24 delete with %s a namespace with %q", name, had), func(t *testing.T) {
				t.Parallel()
				w := shared(t)
				self := w.itself()
				w.patch(self, map[string]any{"finalizers": slices.DeleteFunc([]string{had}, isNothing)})
				if got := strings.Join(w.endWith(test.options).Finalizers, " "); got != test.want[i] {
					t.Errorf("it is left with finalizers %q, want %q", got, test.want[i])
				}
				w.eventuallyGone(self)
			})
		}
	}
}

func isNothing(s string) bool { return s == "" }

// NS-25: what may be done in a namespace that is missing or terminating, and which namespaces
// cannot be deleted.
func TestNamespaceAdmission(t *testing.T) {
	t.Run("NS-25 in a namespace that is missing nothing is created, changed, or found", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		missing := &cluster{t: t, server: w.server, space: w.space + "-missing"}
		_, err := missing.tryCreate(configMaps, "object")
		var status apierrors.APIStatus
		if !apierrors.IsNotFound(err) || !errors.As(err, &status) || status.Status().Details.Kind != namespaces.Resource {
			t.Errorf("create: %v, want that the namespace is not found", err)
		}
		object := object{kind: configMaps, space: missing.space, name: "object"}
		if err := missing.tryPatch(object, map[string]any{"labels": map[string]string{"a": "b"}}); !apierrors.IsNotFound(err) {
			t.Errorf("patch: %v, want 404", err)
		}
		if err := missing.objects(object).Delete(t.Context(), object.name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("delete: %v, want 404", err)
		}
		missing.asksForAccess()
	})
	t.Run("NS-25 in a namespace that terminates nothing is created, and all else is done", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		hanging := w.create(pods, "hanging", held) // so that the rest is there
		changed, gone := w.create(configMaps, "changed"), w.create(configMaps, "gone")
		self := w.end()
		for _, k := range []kind{configMaps, deployments, roles} {
			_, err := w.tryCreate(k, "late")
			isTerminatingCause(t, err)
		}
		w.patch(changed, map[string]any{"labels": map[string]string{"a": "b"}})
		if w.must(changed).Labels["a"] != "b" {
			t.Error("the change is not there")
		}
		w.remove(gone, background)
		w.eventuallyGone(gone)
		w.asksForAccess()
		w.letGo(hanging)
		w.eventuallyGone(self, changed)
	})
	t.Run("NS-25 some namespaces cannot be deleted", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		for _, name := range []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic} {
			// A dry run, since a server that would do it must not lose them.
			err := w.server.metadata.Resource(namespaces.GroupVersionResource).Delete(t.Context(), name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
			if !apierrors.IsForbidden(err) {
				t.Errorf("delete %s: %v, want 403", name, err)
			}
		}
		if err := w.server.metadata.Resource(namespaces.GroupVersionResource).Delete(t.Context(), w.space, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Errorf("delete any other: %v", err)
		}
	})
	t.Run("NS-25 a namespace that is gone takes nothing, and one that comes again does", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		for range 5 {
			w.eventuallyGone(w.end())
			// Admission may still see it as terminating.
			if _, err := w.tryCreate(configMaps, "object"); !isAway(err) {
				t.Errorf("create in a namespace that is gone: %v", err)
			}
			w.comeAgain()
			w.createSoon(configMaps, "object")
		}
	})
	t.Run("NS-25 creates that race with the deletion leave nothing behind", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		if !w.server.ours() {
			t.Skip("R21: this is how our server differs: on others a create that has passed admission may be late")
		}
		for range 5 {
			w.race()
		}
	})
}

// asksForAccess reviews access in the test's namespace, which must be answered whatever the state
// of the namespace.
func (w *cluster) asksForAccess() {
	w.t.Helper()
	review := &authorizationv1.LocalSubjectAccessReview{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.space},
		Spec: authorizationv1.SubjectAccessReviewSpec{User: "ann", ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: w.space, Verb: "get", Resource: pods.Resource,
		}},
	}
	answer, err := w.server.kube.AuthorizationV1().LocalSubjectAccessReviews(w.space).Create(w.t.Context(), review, metav1.CreateOptions{})
	if err != nil || answer.Status.Allowed {
		w.t.Errorf("may ann get pods in %s: %v %v", w.space, answer, err)
	}
}

// race deletes a namespace while objects are created in it, and looks for objects whose creation
// succeeded and that are left when the namespace is gone.
func (w *cluster) race() {
	w.t.Helper()
	space := w.another()
	began := make(chan struct{})
	isFull := sync.OnceFunc(func() { close(began) })
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			defer isFull()
			for n := 0; ; n++ {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d-%d", i, n)}}
				if _, err := w.server.kube.CoreV1().ConfigMaps(space.space).Create(w.t.Context(), o, metav1.CreateOptions{}); err != nil {
					if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && w.t.Context().Err() == nil {
						w.t.Errorf("create: %v", err)
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
	w.eventuallyGone(space.end())
	writers.Wait()
	left, err := w.server.kube.CoreV1().ConfigMaps(space.space).List(w.t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		w.t.Errorf("%d objects are left in a namespace that is gone: %v", len(left.Items), err)
	}
}
