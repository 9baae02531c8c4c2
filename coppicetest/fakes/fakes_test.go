package fakes_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgo "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/coppice-dev/coppice/coppicetest/fakes"
)

// faked is a fake with the rules, of either library.
type faked interface {
	create(t *testing.T, o client.Object)
	delete(t *testing.T, o client.Object, policy metav1.DeletionPropagation)
	get(t *testing.T, o client.Object) bool
	update(t *testing.T, o *corev1.ConfigMap)
	collector() fakes.Collector
}

// viaClient is controller-runtime's fake client.
type viaClient struct{ client.WithWatch }

func newClient() faked {
	return viaClient{fake.NewClientBuilder().WithInterceptorFuncs(fakes.Interceptor()).Build()}
}

func (c viaClient) collector() fakes.Collector { return fakes.ForClient(c.WithWatch) }

func (c viaClient) create(t *testing.T, o client.Object) {
	t.Helper()
	check(t, c.Create(t.Context(), o))
}

func (c viaClient) delete(t *testing.T, o client.Object, policy metav1.DeletionPropagation) {
	t.Helper()
	check(t, c.Delete(t.Context(), o, client.PropagationPolicy(policy)))
}

func (c viaClient) update(t *testing.T, o *corev1.ConfigMap) {
	t.Helper()
	check(t, c.Update(t.Context(), o))
}

func (c viaClient) get(t *testing.T, o client.Object) bool {
	t.Helper()
	return found(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
}

// viaTracker is the clientset of client-go.
type viaTracker struct{ *clientgo.Clientset }

func newTracker() faked {
	c := clientgo.NewClientset()
	fakes.Install(&c.Fake, c.Tracker(), scheme.Scheme)
	return viaTracker{c}
}

func (c viaTracker) collector() fakes.Collector {
	return fakes.ForTracker(c.Tracker(), scheme.Scheme)
}

func (c viaTracker) create(t *testing.T, o client.Object) {
	t.Helper()
	var err error
	switch o := o.(type) {
	case *corev1.ConfigMap:
		var created *corev1.ConfigMap
		if created, err = c.CoreV1().ConfigMaps(o.Namespace).Create(t.Context(), o, metav1.CreateOptions{}); err == nil {
			*o = *created
		}
	case *corev1.Namespace:
		_, err = c.CoreV1().Namespaces().Create(t.Context(), o, metav1.CreateOptions{})
	}
	check(t, err)
}

func (c viaTracker) delete(t *testing.T, o client.Object, policy metav1.DeletionPropagation) {
	t.Helper()
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	switch o := o.(type) {
	case *corev1.ConfigMap:
		check(t, c.CoreV1().ConfigMaps(o.Namespace).Delete(t.Context(), o.Name, options))
	case *corev1.Namespace:
		check(t, c.CoreV1().Namespaces().Delete(t.Context(), o.Name, options))
	}
}

func (c viaTracker) update(t *testing.T, o *corev1.ConfigMap) {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps(o.Namespace).Update(t.Context(), o, metav1.UpdateOptions{})
	check(t, err)
}

func (c viaTracker) get(t *testing.T, o client.Object) bool {
	t.Helper()
	var err error
	switch o := o.(type) {
	case *corev1.ConfigMap:
		var stored *corev1.ConfigMap
		if stored, err = c.CoreV1().ConfigMaps(o.Namespace).Get(t.Context(), o.Name, metav1.GetOptions{}); err == nil {
			*o = *stored
		}
	case *corev1.Namespace:
		_, err = c.CoreV1().Namespaces().Get(t.Context(), o.Name, metav1.GetOptions{})
	}
	return found(t, err)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func found(t *testing.T, err error) bool {
	t.Helper()
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

// configMap returns one that is owned by others; their references block.
func configMap(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	for _, owner := range owners {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: new(true),
		})
	}
	return o
}

// run collects, and compares the object and the first word of each step with the wanted ones.
func run(t *testing.T, c fakes.Collector, want ...string) {
	t.Helper()
	steps, err := c.Run(t.Context())
	check(t, err)
	var got []string
	for _, step := range steps {
		action, _, _ := strings.Cut(strings.ReplaceAll(step.Action, ":", ""), " ")
		_, name, _ := strings.Cut(step.Object, " ")
		got = append(got, action+" "+name)
	}
	if !slices.Equal(got, want) {
		t.Errorf("steps:\n%s\nwant:\n%s", fmt.Sprint(steps), strings.Join(want, "\n"))
	}
}

// each runs a test with each fake.
func each(t *testing.T, test func(t *testing.T, f faked)) {
	for name, make := range map[string]func() faked{"client": newClient, "tracker": newTracker} {
		t.Run(name, func(t *testing.T) { test(t, make()) })
	}
}

// tree creates a root with two children, one of which has a child.
func tree(t *testing.T, f faked) (root, left, right, leaf *corev1.ConfigMap) {
	t.Helper()
	root = configMap("root")
	f.create(t, root)
	left, right = configMap("left", root), configMap("right", root)
	f.create(t, left)
	f.create(t, right)
	leaf = configMap("leaf", left)
	f.create(t, leaf)
	return root, left, right, leaf
}

func TestBackgroundDeletionRemovesTheOwnerFirst(t *testing.T) {
	each(t, func(t *testing.T, f faked) {
		root, _, _, leaf := tree(t, f)
		run(t, f.collector())
		f.delete(t, root, metav1.DeletePropagationBackground)
		if f.get(t, root) {
			t.Error("the root is not gone at once")
		}
		run(t, f.collector(), "delete shop/left", "delete shop/leaf", "delete shop/right")
		if f.get(t, leaf) {
			t.Error("the leaf is not gone")
		}
	})
}

func TestForegroundDeletionRemovesDependentsFirst(t *testing.T) {
	each(t, func(t *testing.T, f faked) {
		root, _, right, _ := tree(t, f)
		right.Finalizers = []string{"example.com/cleanup"}
		f.update(t, right)
		f.delete(t, root, metav1.DeletePropagationForeground)
		run(t, f.collector(), "delete shop/left", "delete shop/leaf", "remove-finalizer shop/left", "delete shop/right")
		if !f.get(t, root) || !f.get(t, right) {
			t.Fatal("the root does not wait for its dependent, or that for its finalizer")
		}
		right.Finalizers = nil
		f.update(t, right)
		if _, err := f.collector().Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.get(t, right) || f.get(t, root) {
			t.Error("not all is gone")
		}
	})
}

func TestOrphanDeletionKeepsDependents(t *testing.T) {
	each(t, func(t *testing.T, f faked) {
		root, left, right, leaf := tree(t, f)
		f.delete(t, root, metav1.DeletePropagationOrphan)
		run(t, f.collector(), "orphan shop/root", "orphan shop/root", "remove-finalizer shop/root")
		if f.get(t, root) || !f.get(t, left) || !f.get(t, right) || !f.get(t, leaf) || len(left.OwnerReferences)+len(right.OwnerReferences) != 0 {
			t.Error("not just the root is gone")
		}
	})
}

func TestTwoOwners(t *testing.T) {
	each(t, func(t *testing.T, f faked) {
		a, b := configMap("a"), configMap("b")
		f.create(t, a)
		f.create(t, b)
		both := configMap("both", a, b)
		f.create(t, both)
		f.delete(t, a, metav1.DeletePropagationBackground)
		run(t, f.collector(), "detach shop/both")
		if !f.get(t, both) || len(both.OwnerReferences) != 1 {
			t.Errorf("owners: %v", both.OwnerReferences)
		}
		f.delete(t, b, metav1.DeletePropagationBackground)
		run(t, f.collector(), "delete shop/both")
	})
}

func TestNamespace(t *testing.T) {
	each(t, func(t *testing.T, f faked) {
		shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
		f.create(t, shop)
		a := configMap("a")
		a.Finalizers = []string{"example.com/cleanup"}
		f.create(t, a)
		f.create(t, configMap("b"))
		f.delete(t, shop, metav1.DeletePropagationBackground)
		run(t, f.collector(), "delete shop", "delete shop")
		if !f.get(t, shop) || !f.get(t, a) {
			t.Fatal("the namespace does not wait for what is in it")
		}
		a.Finalizers = nil
		f.update(t, a)
		if _, err := f.collector().Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.get(t, shop) {
			t.Error("the namespace is not gone")
		}
	})
}

// TestWithoutUID: an object without a UID is an error.
func TestWithoutUID(t *testing.T) {
	c := fake.NewClientBuilder().WithObjects(configMap("a")).Build()
	if _, err := fakes.ForClient(c).Run(t.Context()); err == nil || !strings.Contains(err.Error(), "has no UID") {
		t.Errorf("%v", err)
	}
}

// Example runs a unit test's fake to its fixed point.
func Example() {
	ctx := context.Background()
	c := fake.NewClientBuilder().WithInterceptorFuncs(fakes.Interceptor()).Build()
	owner := configMap("owner")
	_ = c.Create(ctx, owner)
	_ = c.Create(ctx, configMap("owned", owner))
	_ = c.Delete(ctx, owner)
	steps, err := fakes.ForClient(c).Run(ctx)
	fmt.Println(steps, err)
	// Output: [ConfigMap shop/owned: delete Background: owners absent: ConfigMap owner] <nil>
}
