package builtin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// put creates an object through the registry.
func put(t *testing.T, r *registry.REST, obj runtime.Object) runtime.Object {
	t.Helper()
	out, err := r.Create(requestContext(r.Resource), obj, nil, &metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func configMap(name string, finalizers ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, Finalizers: finalizers}}
}

func TestDeleteAnswersWithStatus(t *testing.T) {
	m, r, _ := registries(t, "configmaps", fakeDeleter{})
	uid := metaOf(put(t, r, configMap("a"))).GetUID()
	hooks := 0
	r.AfterDelete = func(runtime.Object, *metav1.DeleteOptions) { hooks++ }

	answer, removed, err := r.Delete(requestContext(r.Resource), "a", nil, nil)
	if err != nil || !removed {
		t.Fatalf("removed %t, %v", removed, err)
	}
	status, ok := answer.(*metav1.Status)
	if !ok {
		t.Fatalf("the answer is a %T", answer)
	}
	if status.Status != metav1.StatusSuccess || status.Details.Name != "a" || status.Details.Kind != "configmaps" || status.Details.UID != uid {
		t.Errorf("%+v", status)
	}
	if status.ResourceVersion != "2" {
		t.Errorf("resourceVersion %q, want the one of the removal", status.ResourceVersion)
	}
	if hooks != 1 {
		t.Errorf("AfterDelete ran %d times", hooks)
	}
	if m.Has("/configmaps/default/a") {
		t.Error("it is still there")
	}

	if _, _, err := r.Delete(requestContext(r.Resource), "a", nil, nil); !apierrors.IsNotFound(err) {
		t.Errorf("a second deletion: %v", err)
	}
	if hooks != 1 {
		t.Errorf("AfterDelete ran %d times", hooks)
	}
}

func TestDeletePendingAnswersWithObject(t *testing.T) {
	_, r, _ := registries(t, "configmaps", fakeDeleter{})
	put(t, r, configMap("a", "example.com/a"))
	hooks := 0
	r.AfterDelete = func(runtime.Object, *metav1.DeleteOptions) { hooks++ }
	answer, removed, err := r.Delete(requestContext(r.Resource), "a", nil, &metav1.DeleteOptions{})
	if err != nil || removed {
		t.Fatalf("removed %t, %v", removed, err)
	}
	if cm, ok := answer.(*corev1.ConfigMap); !ok || cm.DeletionTimestamp == nil {
		t.Errorf("the answer is %+v", answer)
	}
	if hooks != 0 {
		t.Error("AfterDelete ran")
	}
}

func TestDeleteOfSomeKindsAnswersWithObject(t *testing.T) {
	_, r, _ := registries(t, "pods", fakeDeleter{})
	put(t, r, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSDefault,
		Containers: []corev1.Container{{
			Name: "a", Image: "a", ImagePullPolicy: corev1.PullAlways,
			TerminationMessagePath: "/t", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		}},
	}})
	answer, removed, err := r.Delete(requestContext(r.Resource), "a", nil, &metav1.DeleteOptions{})
	if err != nil || !removed {
		t.Fatalf("removed %t, %v", removed, err)
	}
	if _, ok := answer.(*corev1.Pod); !ok {
		t.Errorf("the answer is a %T", answer)
	}
}

// TestDeletionIsComplete checks the Deletion that a Deleter receives.
func TestDeletionIsComplete(t *testing.T) {
	var got registry.Deletion
	_, r, _ := registries(t, "jobs", deleterFunc(func(_ context.Context, d registry.Deletion) (runtime.Object, bool, error) {
		got = d
		return nil, false, errors.New("refused")
	}))
	validate := func(context.Context, runtime.Object) error { return nil }
	if _, _, err := r.Delete(requestContext(r.Resource), "a", validate, nil); err == nil || err.Error() != "refused" {
		t.Fatal(err)
	}
	if got.Name != "a" || got.Key != "/jobs/default/a" || got.Resource != r.Resource.GroupResource() || got.Validate == nil || got.Storage.Storage == nil {
		t.Errorf("%+v", got)
	}
	if got.Options == nil || got.Options.GracePeriodSeconds == nil || *got.Options.GracePeriodSeconds != 0 {
		t.Errorf("without options: %+v, want immediate deletion", got.Options)
	}
	if got.Strategy.DefaultPropagation != metav1.DeletePropagationOrphan {
		t.Errorf("%+v", got.Strategy)
	}
	if _, ok := got.New().(metav1.Object); !ok {
		t.Errorf("New() is a %T", got.New())
	}
}

type deleterFunc func(context.Context, registry.Deletion) (runtime.Object, bool, error)

func (f deleterFunc) Delete(ctx context.Context, d registry.Deletion) (runtime.Object, bool, error) {
	return f(ctx, d)
}

// TestNamespaceLifecycle: a namespace stays until both lists of finalizers are empty (NS-23).
func TestNamespaceLifecycle(t *testing.T) {
	for _, metaFirst := range []bool{true, false} {
		t.Run(fmt.Sprintf("metadata first %t", metaFirst), func(t *testing.T) {
			m, r, storages := registries(t, "namespaces", fakeDeleter{})
			ctx := requestContext(r.Resource)
			put(t, r, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Finalizers: []string{"example.com/a"}}})

			answer, removed, err := r.Delete(ctx, "team", nil, &metav1.DeleteOptions{})
			if err != nil || removed {
				t.Fatalf("removed %t, %v", removed, err)
			}
			ns := answer.(*corev1.Namespace)
			if ns.DeletionTimestamp == nil || ns.Status.Phase != corev1.NamespaceTerminating {
				t.Errorf("marked as %+v %+v", ns.ObjectMeta, ns.Status)
			}
			metadata := func() {
				ns := ns.DeepCopy()
				ns.Finalizers, ns.ResourceVersion = nil, ""
				mustUpdate(t, r, ctx, ns)
			}
			spec := func() {
				ns := ns.DeepCopy()
				ns.Spec.Finalizers, ns.ResourceVersion = nil, ""
				mustUpdate(t, storages["namespaces/finalize"].(rest.Updater), ctx, ns)
			}
			steps := []func(){spec, metadata}
			if metaFirst {
				steps = []func(){metadata, spec}
			}
			steps[0]()
			if !m.Has("/namespaces/team") {
				t.Fatal("gone too early")
			}
			steps[1]()
			if m.Has("/namespaces/team") {
				t.Error("still there")
			}
		})
	}
}

// TestNamespaceOrphanDependentsFalse checks that it means foreground for namespaces (NS-24).
func TestNamespaceOrphanDependentsFalse(t *testing.T) {
	_, r, _ := registries(t, "namespaces", fakeDeleter{})
	put(t, r, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}})
	orphan := false
	answer, _, err := r.Delete(requestContext(r.Resource), "team", nil, &metav1.DeleteOptions{OrphanDependents: &orphan})
	if err != nil {
		t.Fatal(err)
	}
	if got := metaOf(answer).GetFinalizers(); len(got) != 1 || got[0] != metav1.FinalizerDeleteDependents {
		t.Errorf("finalizers %v", got)
	}
}

func mustUpdate(t *testing.T, r rest.Updater, ctx context.Context, obj runtime.Object) runtime.Object {
	t.Helper()
	out, _, err := r.Update(ctx, metaOf(obj).GetName(), rest.DefaultUpdatedObjectInfo(obj), nil, nil, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// AS-13.
func TestDeleteCollection(t *testing.T) {
	m, r, _ := registries(t, "configmaps", fakeDeleter{})
	const all = 1200 // in pages of 500
	for i := range all {
		put(t, r, configMap(fmt.Sprintf("cm-%d", i)))
	}
	put(t, r, configMap("held", "example.com/a"))
	options := &metav1.DeleteOptions{}

	list, err := r.DeleteCollection(requestContext(r.Resource), nil, options, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := meta.LenList(list); got != all+1 {
		t.Errorf("the answer holds %d objects", got)
	}
	if got := m.Pages(); got != 3 {
		t.Errorf("%d pages were read", got)
	}
	for i := range all {
		if m.Has(fmt.Sprintf("/configmaps/default/cm-%d", i)) {
			t.Errorf("cm-%d is still there", i)
		}
	}
	if !m.Has("/configmaps/default/held") {
		t.Error("the one with a finalizer is gone")
	}
	if options.GracePeriodSeconds != nil || options.Preconditions != nil {
		t.Errorf("the options were changed: %+v", options)
	}
}

func TestDeleteCollectionLimit(t *testing.T) {
	m, r, _ := registries(t, "configmaps", fakeDeleter{})
	for i := range 5 {
		put(t, r, configMap(fmt.Sprintf("cm-%d", i)))
	}
	list, err := r.DeleteCollection(requestContext(r.Resource), nil, &metav1.DeleteOptions{}, &internalversion.ListOptions{Limit: 2})
	if err != nil || meta.LenList(list) != 2 {
		t.Errorf("%d objects, %v", meta.LenList(list), err)
	}
	if m.Has("/configmaps/default/cm-1") || !m.Has("/configmaps/default/cm-2") {
		t.Error("want exactly the first two gone")
	}
}

// TestDeleteCollectionGoesOn checks that an object that cannot be deleted does not stop the others, and that an object
// that is already gone is no failure (AS-13).
func TestDeleteCollectionGoesOn(t *testing.T) {
	var mu sync.Mutex
	var asked []string
	inner := fakeDeleter{}
	m, r, _ := registries(t, "configmaps", deleterFunc(func(ctx context.Context, d registry.Deletion) (runtime.Object, bool, error) {
		mu.Lock()
		asked = append(asked, d.Name)
		mu.Unlock()
		switch {
		case d.Name == "cm-0":
			return nil, false, apierrors.NewNotFound(d.Resource, d.Name)
		case strings.HasPrefix(d.Name, "bad-"):
			return nil, false, apierrors.NewForbidden(d.Resource, d.Name, errors.New("protected"))
		}
		return inner.Delete(ctx, d)
	}))
	for _, name := range []string{"bad-0", "bad-1", "cm-0", "cm-1", "cm-2"} {
		put(t, r, configMap(name))
	}
	_, err := r.DeleteCollection(requestContext(r.Resource), nil, &metav1.DeleteOptions{}, nil)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "2 of 5") {
		t.Errorf("%v", err)
	}
	if len(asked) != 5 || m.Has("/configmaps/default/cm-1") || m.Has("/configmaps/default/cm-2") {
		t.Errorf("asked for %v", asked)
	}
}

// AS-13.
func TestDeleteCollectionStops(t *testing.T) {
	ctx, cancel := context.WithCancel(requestContext(rowFor(t, "configmaps")))
	deleted := 0
	var mu sync.Mutex
	_, r, _ := registries(t, "configmaps", deleterFunc(func(context.Context, registry.Deletion) (runtime.Object, bool, error) {
		mu.Lock()
		defer mu.Unlock()
		deleted++
		cancel()
		return &corev1.ConfigMap{}, true, nil
	}))
	const all = 100
	for i := range all {
		put(t, r, configMap(fmt.Sprintf("cm-%d", i)))
	}
	if _, err := r.DeleteCollection(ctx, nil, &metav1.DeleteOptions{}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if deleted > 8 { // the number of concurrent deletions
		t.Errorf("%d of %d were deleted after the end of the request", deleted, all)
	}
}

// TestUpdateWithoutFinalizersRemoves: the update that removes the last finalizer removes
// the object (R18).
func TestUpdateWithoutFinalizersRemoves(t *testing.T) {
	m, r, _ := registries(t, "configmaps", fakeDeleter{})
	ctx := requestContext(r.Resource)
	put(t, r, configMap("a", "example.com/a", "example.com/b"))
	answer, _, err := r.Delete(ctx, "a", nil, &metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	one := answer.(*corev1.ConfigMap).DeepCopy()
	one.Finalizers, one.ResourceVersion = []string{"example.com/b"}, ""
	mustUpdate(t, r, ctx, one)
	if !m.Has("/configmaps/default/a") {
		t.Fatal("gone too early")
	}
	none := one.DeepCopy()
	none.Finalizers = nil
	mustUpdate(t, r, ctx, none)
	if m.Has("/configmaps/default/a") {
		t.Error("still there")
	}
}

func TestStatusCannotRemoveFinalizers(t *testing.T) {
	m, r, storages := registries(t, "services", fakeDeleter{})
	ctx := requestContext(r.Resource)
	put(t, r, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"example.com/a"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, SessionAffinity: corev1.ServiceAffinityNone},
	})
	answer, _, err := r.Delete(ctx, "a", nil, &metav1.DeleteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	status := answer.(*corev1.Service).DeepCopy()
	status.Finalizers = nil
	mustUpdate(t, storages["services/status"].(rest.Updater), ctx, status)
	if !m.Has("/services/default/a") {
		t.Error("a status update has removed the object")
	}
}
