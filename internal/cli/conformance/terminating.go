package conformance

import (
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// The deletion of namespaces with their contents.
var terminating = []Check{
	{"NS-01 a namespace without our entry in spec.finalizers is left alone", "R22", NamespaceController, func(w *probe.Space) {
		content := w.Create(probe.ConfigMaps, "content")
		w.SetSpecFinalizers()
		self := w.EndHeld()
		w.SettleNamespaces()
		w.AreKept(content)
		if lines := w.ConditionLines(); len(lines) > 0 {
			w.T.Errorf("conditions of a namespace that no controller empties: %v", lines)
		}
		w.Remove(content, probe.Background)
		w.LetGo(self)
		w.EventuallyGone(self)
	}},
	{"NS-02 only our entry of spec.finalizers goes, and the namespace stays for the others", "R22 S7", NamespaceController, func(w *probe.Space) {
		content := w.Create(probe.ConfigMaps, "content")
		w.AddSpecFinalizer()
		self := w.End()
		w.EventuallyGone(content)
		w.EventuallySpecFinalizers(probe.ForeignFinalizer)
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Removed, probe.Finished)
		w.SettleNamespaces()
		w.EventuallySpecFinalizers(probe.ForeignFinalizer)
		w.SetSpecFinalizers()
		w.EventuallyGone(self)
	}},
	{"NS-03 NS-15 all contents go, the pods first and the namespace last", "R22 S8 L3", NamespaceController, func(w *probe.Space) {
		first := w.CreateMany(3, probe.Pods, "pod")
		var rest []probe.Object
		for _, k := range []probe.Kind{probe.Services, probe.ConfigMaps, probe.Secrets, probe.Deployments, probe.Jobs, probe.Roles, probe.RoleBindings, probe.NetworkPolicies} {
			rest = append(rest, w.CreateMany(2, k, "object")...)
		}
		order := w.Watch(probe.Pods, probe.Services, probe.ConfigMaps, probe.Secrets, probe.Deployments, probe.Jobs, probe.Roles, probe.RoleBindings, probe.NetworkPolicies, probe.Namespaces)
		self := w.End()
		w.EventuallyGone(self)
		w.EventuallyGone(slices.Concat(first, rest)...)
		order.GoneBefore(self, rest...)
		for _, o := range rest {
			order.GoneBefore(o, first...)
		}
	}},
	{"NS-03 objects that grant access and network policies are deleted after all other contents", "R22", NamespaceController, func(w *probe.Space) {
		var contents, access []probe.Object
		for _, k := range []probe.Kind{probe.Services, probe.ConfigMaps, probe.Secrets, probe.Deployments} {
			contents = append(contents, w.CreateMany(2, k, "object")...)
		}
		for _, k := range []probe.Kind{probe.Roles, probe.RoleBindings, probe.NetworkPolicies} {
			access = append(access, w.CreateMany(2, k, "object")...)
		}
		order := w.Watch(probe.Services, probe.ConfigMaps, probe.Secrets, probe.Deployments, probe.Roles, probe.RoleBindings, probe.NetworkPolicies)
		w.EventuallyGone(w.End())
		w.Differs(accessGoesLast(), func(w *probe.Space) {
			for _, o := range access {
				order.In(w).GoneBefore(o, contents...)
			}
		})
	}},
	{"NS-03 contents that hang delay later stages only", "R22", NamespaceController, func(w *probe.Space) {
		hanging := w.Create(probe.ConfigMaps, "hanging", probe.Held)
		removable := []probe.Object{w.Create(probe.ConfigMaps, "other"), w.Create(probe.Pods, "pod"), w.Create(probe.Deployments, "deployment"), w.Create(probe.Services, "service")}
		access := []probe.Object{w.Create(probe.Roles, "role"), w.Create(probe.RoleBindings, "binding"), w.Create(probe.NetworkPolicies, "policy")}
		elsewhere := w.Another()
		elsewhere.Create(probe.ConfigMaps, "content")
		self := w.End()
		elsewhere.EventuallyGone(elsewhere.End())
		w.EventuallyGone(removable...)
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("configmaps. has 1 resource instances"), probe.Preserved(probe.Hold+" in 1 resource instances"))
		w.SettleNamespaces()
		w.Differs(accessGoesLast(), func(w *probe.Space) { w.AreKept(access...) })
		w.LetGo(hanging)
		w.EventuallyGone(self)
		w.EventuallyGone(access...)
	}},
	{"NS-14 NS-15 the name can be used again, for a namespace that is another one and empty", "R1 R21 L3", NamespaceController, func(w *probe.Space) {
		kinds := []probe.Kind{probe.Pods, probe.Services, probe.Secrets, probe.Deployments}
		var contents []probe.Object
		for _, k := range kinds {
			contents = append(contents, w.Create(k, "object"))
		}
		for range 3 {
			old := w.End()
			w.EventuallyGone(old)
			w.EventuallyGone(contents...)
			ns := w.ComeAgain()
			if ns.UID == old.UID || ns.Status.Phase != corev1.NamespaceActive || len(ns.Status.Conditions) > 0 {
				w.T.Errorf("the new namespace, after one with uid %s: %v", old.UID, ns)
			}
			for _, k := range kinds {
				list, err := w.Objects(probe.Object{Kind: k, Namespace: w.Name}).List(w.T.Context(), metav1.ListOptions{})
				if err != nil {
					w.T.Fatal(err)
				}
				if len(list.Items) > 0 {
					w.T.Errorf("in the new namespace there are %d %s", len(list.Items), k.Resource)
				}
			}
			contents = []probe.Object{w.CreateSoon(probe.Pods, "object"), w.CreateSoon(probe.Secrets, "object")}
		}
		w.SettleNamespaces()
		w.AreKept(contents...)
	}},
	{"NS-16 NS-17 ninety of a hundred namespaces go, and then all", "R22 L3", NamespaceController, func(w *probe.Space) {
		const all = 100
		crowd(w, all)
		for _, most := range []int{all / 10, 0} {
			w.Until(fmt.Sprintf("at most %d of %d namespaces to be left", most, all), func() string {
				if count := crowdLeft(w); count > most {
					return fmt.Sprintf("there are %d", count)
				}
				return ""
			})
		}
	}},
	{"NS-22 a pod that hangs on a finalizer holds all other contents", "R22", NamespaceController, func(w *probe.Space) {
		hanging, other := w.Create(probe.Pods, "hanging", probe.Held), w.Create(probe.Pods, "other")
		rest := []probe.Object{w.Create(probe.ConfigMaps, "object"), w.Create(probe.Deployments, "object"), w.Create(probe.Roles, "object")}
		self := w.End()
		w.EventuallyGone(other)
		w.EventuallyLeaving(hanging)
		w.Differs(conditionsAreWritten(), func(w *probe.Space) {
			w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("pods. has 1 resource instances"), probe.Preserved(probe.Hold+" in 1 resource instances"))
		})
		w.SettleNamespaces()
		w.AreKept(rest...)
		w.LetGo(hanging)
		w.EventuallyGone(self)
		w.EventuallyGone(rest...)
	}},
	{"NS-22 a pod that does not end holds all other contents", "R22", NamespaceController, func(w *probe.Space) {
		// The node does not exist, so no kubelet ends the pod.
		hanging := w.Create(probe.Pods, "hanging", probe.OnNode("nowhere"))
		rest := []probe.Object{w.Create(probe.ConfigMaps, "object"), w.Create(probe.Roles, "object")}
		self := w.End()
		w.EventuallyLeaving(hanging)
		w.SettleNamespaces()
		w.AreKeptWhile(hanging, rest...)
		w.Differs(conditionsAreWritten(), func(w *probe.Space) {
			w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("pods. has 1 resource instances"), probe.Finished)
		})
		if err := w.TryRemove(hanging, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil && !probe.IsGone(err) {
			w.T.Fatalf("delete %s: %v", hanging, err)
		}
		w.EventuallyGone(self)
		w.EventuallyGone(rest...)
	}},
}

// crowdLabel is the label of the namespaces of one crowd.
const crowdLabel = "conformance.example.com/crowd"

// crowd creates n namespaces with a pod and a config map each, and deletes them.
func crowd(w *probe.Space, n int) {
	w.T.Helper()
	var group errgroup.Group
	group.SetLimit(8)
	api := w.Server.Kube.CoreV1()
	for i := range n {
		group.Go(func() error {
			ctx, name := w.T.Context(), fmt.Sprintf("%s-%d", w.Name, i)
			_, err := api.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{crowdLabel: w.Name, probe.RunLabel: probe.Run()}}}, metav1.CreateOptions{})
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
		w.T.Fatal(err)
	}
}

// crowdLeft returns the number of the crowd's namespaces that still exist.
func crowdLeft(w *probe.Space) int {
	w.T.Helper()
	list, err := w.Server.Kube.CoreV1().Namespaces().List(w.T.Context(), metav1.ListOptions{LabelSelector: crowdLabel + "=" + w.Name})
	if err != nil {
		w.T.Fatal(err)
	}
	return len(list.Items)
}
