package conformance

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// Namespaces are deleted together with their content. These tests do not run beside the others: a
// kind that appears or disappears there would hold every namespace for a moment.
func TestTerminatingNamespaces(t *testing.T) {
	t.Run("NS-01 a namespace without our entry in spec.finalizers is left alone", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		content := w.create(configMaps, "content")
		w.setSpecFinalizers()
		self := w.endHeld()
		w.settleNamespaces()
		w.areKept(content)
		if lines := w.conditionLines(); len(lines) > 0 {
			t.Errorf("conditions of a namespace that no controller empties: %v", lines)
		}
		w.remove(content, background)
		w.letGo(self)
		w.eventuallyGone(self)
	})
	t.Run("NS-02 only our entry of spec.finalizers goes, and the namespace stays for the others", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		content := w.create(configMaps, "content")
		w.addSpecFinalizer()
		self := w.end()
		w.eventuallyGone(content)
		w.eventuallySpecFinalizers(foreignFinalizer)
		w.eventuallySays(discovered, parsed, deleted, removed, finished)
		w.settleNamespaces()
		w.eventuallySpecFinalizers(foreignFinalizer)
		w.setSpecFinalizers()
		w.eventuallyGone(self)
	})
	t.Run("NS-03 NS-15 all contents go, the pods first and the namespace last", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		first := w.createMany(3, pods, "pod")
		var rest []object
		for _, k := range []kind{services, configMaps, secrets, deployments, jobs, roles, roleBindings, networkPolicies} {
			rest = append(rest, w.createMany(2, k, "object")...)
		}
		order := w.watch(pods, services, configMaps, secrets, deployments, jobs, roles, roleBindings, networkPolicies, namespaces)
		self := w.end()
		w.eventuallyGone(self)
		w.eventuallyGone(slices.Concat(first, rest)...)
		order.goneBefore(self, rest...)
		for _, o := range rest {
			order.goneBefore(o, first...)
		}
	})
	t.Run("NS-03 what gives access and what fences in go after all other contents", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		w.ours("R22: RBAC and network policies go last; upstream deletes all kinds but pods in any order")
		var contents, access []object
		for _, k := range []kind{services, configMaps, secrets, deployments} {
			contents = append(contents, w.createMany(2, k, "object")...)
		}
		for _, k := range []kind{roles, roleBindings, networkPolicies} {
			access = append(access, w.createMany(2, k, "object")...)
		}
		order := w.watch(services, configMaps, secrets, deployments, roles, roleBindings, networkPolicies)
		w.eventuallyGone(w.end())
		for _, o := range access {
			order.goneBefore(o, contents...)
		}
	})
	t.Run("NS-03 contents that hang hold what goes after them, and nothing else", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		w.ours("R22: what goes last waits for what hangs; upstream deletes all kinds but pods in any order")
		hanging := w.create(configMaps, "hanging", held)
		others := []object{w.create(configMaps, "other"), w.create(pods, "pod"), w.create(deployments, "deployment"), w.create(services, "service")}
		access := []object{w.create(roles, "role"), w.create(roleBindings, "binding"), w.create(networkPolicies, "policy")}
		elsewhere := w.another()
		elsewhere.create(configMaps, "content")
		self := w.end()
		elsewhere.eventuallyGone(elsewhere.end())
		w.eventuallyGone(others...)
		w.eventuallySays(discovered, parsed, deleted, remain("configmaps. has 1 resource instances"), preserved(hold+" in 1 resource instances"))
		w.settleNamespaces()
		w.areKept(access...)
		w.letGo(hanging)
		w.eventuallyGone(self)
		w.eventuallyGone(access...)
	})
	t.Run("NS-14 NS-15 the name can be used again, for a namespace that is another one and empty", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		kinds := []kind{pods, services, secrets, deployments}
		var contents []object
		for _, k := range kinds {
			contents = append(contents, w.create(k, "object"))
		}
		for range 3 {
			old := w.end()
			w.eventuallyGone(old)
			w.eventuallyGone(contents...)
			ns := w.comeAgain()
			if ns.UID == old.uid || ns.Status.Phase != corev1.NamespaceActive || len(ns.Status.Conditions) > 0 {
				t.Errorf("the new namespace, after one with uid %s: %v", old.uid, ns)
			}
			for _, k := range kinds {
				list, err := w.objects(object{kind: k, space: w.space}).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if len(list.Items) > 0 {
					t.Errorf("in the new namespace there are %d %s", len(list.Items), k.Resource)
				}
			}
			contents = []object{w.createSoon(pods, "object"), w.createSoon(secrets, "object")}
		}
		w.settleNamespaces()
		w.areKept(contents...)
	})
	t.Run("NS-16 NS-17 ninety of a hundred namespaces go, and then all", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		const all = 100
		w.crowd(all)
		for _, most := range []int{all / 10, 0} {
			eventually.Agrees(t, func() string {
				if left := w.crowdLeft(); left > most {
					return fmt.Sprintf("%d of %d namespaces are left, want at most %d", left, all, most)
				}
				return ""
			})
		}
	})
	t.Run("NS-22 a pod that hangs on a finalizer holds all else", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		hanging, other := w.create(pods, "hanging", held), w.create(pods, "other")
		rest := []object{w.create(configMaps, "object"), w.create(deployments, "object"), w.create(roles, "object")}
		self := w.end()
		w.eventuallyGone(other)
		w.eventuallyLeaving(hanging)
		if !w.server.foreign { // upstream may say nothing while pods hold a namespace
			w.eventuallySays(discovered, parsed, deleted, remain("pods. has 1 resource instances"), preserved(hold+" in 1 resource instances"))
		}
		w.settleNamespaces()
		w.areKept(rest...)
		w.letGo(hanging)
		w.eventuallyGone(self)
		w.eventuallyGone(rest...)
	})
	t.Run("NS-22 a pod that does not end holds all else", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		// There is no such node, so no kubelet ends it.
		hanging := w.create(pods, "hanging", onNode("nowhere"))
		rest := []object{w.create(configMaps, "object"), w.create(roles, "object")}
		self := w.end()
		w.eventuallyLeaving(hanging)
		if !w.server.foreign {
			w.eventuallySays(discovered, parsed, deleted, remain("pods. has 1 resource instances"), finished)
		}
		w.settleNamespaces()
		w.areKept(rest...)
		w.removeWith(hanging, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
		w.eventuallyGone(self)
		w.eventuallyGone(rest...)
	})
}

// onNode binds a pod to a node.
func onNode(name string) option {
	return func(u *unstructured.Unstructured) { u.Object["spec"].(map[string]any)["nodeName"] = name }
}

// crowdLabel is on the namespaces of one crowd.
const crowdLabel = "conformance.example.com/crowd"

// crowd makes n namespaces with a pod and a config map each, and deletes them.
func (w *cluster) crowd(n int) {
	w.t.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	api := w.server.kube.CoreV1()
	for i := range n {
		group.Go(func() error {
			ctx, name := w.t.Context(), fmt.Sprintf("%s-%d", w.space, i)
			_, err := api.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{crowdLabel: w.space}}}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			content := metav1.ObjectMeta{Name: "content"}
			if _, err := api.ConfigMaps(name).Create(ctx, &corev1.ConfigMap{ObjectMeta: content}, metav1.CreateOptions{}); err != nil {
				return err
			}
			pod := &corev1.Pod{ObjectMeta: content, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}}}
			if _, err := api.Pods(name).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
				return err
			}
			return api.Namespaces().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	if err := group.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// crowdLeft returns the number of the crowd's namespaces that are left.
func (w *cluster) crowdLeft() int {
	w.t.Helper()
	list, err := w.server.kube.CoreV1().Namespaces().List(w.t.Context(), metav1.ListOptions{LabelSelector: crowdLabel + "=" + w.space})
	if err != nil {
		w.t.Fatal(err)
	}
	return len(list.Items)
}
