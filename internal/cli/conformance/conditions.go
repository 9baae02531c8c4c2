package conformance

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// The conditions of a namespace during the deletion of its contents.
var conditions = []Check{
	{"NS-10 conditions of others stay, and each of ours has its place", "R22", NamespaceController, func(w *probe.Space) {
		hanging := w.Create(probe.ConfigMaps, "hanging", probe.Held)
		w.AddSpecFinalizer()
		ns := w.Namespace()
		ns.Status.Conditions = []corev1.NamespaceCondition{{Type: "Unrelated", Status: corev1.ConditionTrue, Reason: "Test", Message: "by a test"}}
		if _, err := w.Server.Kube.CoreV1().Namespaces().UpdateStatus(w.T.Context(), ns, metav1.UpdateOptions{}); err != nil {
			w.T.Fatal(err)
		}
		const unrelated = "Unrelated True Test: by a test"
		self := w.End()
		w.EventuallySays(unrelated, probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("configmaps. has 1 resource instances"), probe.Preserved(probe.Hold+" in 1 resource instances"))
		w.LetGo(hanging)
		w.EventuallySays(unrelated, probe.Discovered, probe.Parsed, probe.Deleted, probe.Removed, probe.Finished)
		w.SetSpecFinalizers()
		w.EventuallyGone(self)
	}},
	{"NS-10 the time of a condition is that of its status", "R22", NamespaceController, func(w *probe.Space) {
		hanging := w.CreateMany(2, probe.ConfigMaps, "hanging", probe.Held)
		w.AddSpecFinalizer()
		w.End()
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("configmaps. has 2 resource instances"), probe.Preserved(probe.Hold+" in 2 resource instances"))
		before := w.Namespace().Status.Conditions
		w.Until("the conditions to be 2 s old: their times have seconds", func() string {
			if since := time.Since(before[len(before)-1].LastTransitionTime.Time); since < 2*time.Second {
				return fmt.Sprintf("the conditions are %s old", since)
			}
			return ""
		})
		w.LetGo(hanging[0])
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("configmaps. has 1 resource instances"), probe.Preserved(probe.Hold+" in 1 resource instances"))
		w.Differs(timesAreOfStatus(), func(w *probe.Space) {
			for i, c := range w.Namespace().Status.Conditions {
				if !c.LastTransitionTime.Equal(&before[i].LastTransitionTime) {
					w.T.Errorf("want %s to be as old as before its message changed, %s; it is of %s", c.Type, before[i].LastTransitionTime, c.LastTransitionTime)
				}
			}
		})
		w.LetGo(hanging[1])
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Removed, probe.Finished)
		w.Differs(timesAreOfStatus(), func(w *probe.Space) {
			for i, c := range w.Namespace().Status.Conditions {
				if changed := i >= 3; c.LastTransitionTime.Equal(&before[i].LastTransitionTime) == changed {
					w.T.Errorf("%s is of %s, and was of %s; changed: %t", c.Type, c.LastTransitionTime, before[i].LastTransitionTime, changed)
				}
			}
		})
	}},
	{"NS-11 conditions count the remaining objects by kind and by finalizer", "R22", NamespaceController, func(w *probe.Space) {
		const other = "conformance.example.com/other"
		two := w.CreateMany(2, probe.ConfigMaps, "one-finalizer", probe.Held)
		one := w.Create(probe.Secrets, "two-finalizers", probe.WithFinalizers(probe.Hold, other))
		w.AddSpecFinalizer()
		self := w.End()
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("configmaps. has 2 resource instances, secrets. has 1 resource instances"),
			probe.Preserved(probe.Hold+" in 3 resource instances, "+other+" in 1 resource instances"))
		w.LetGo(two[0])
		w.LetGo(one, other)
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("configmaps. has 1 resource instances, secrets. has 1 resource instances"),
			probe.Preserved(probe.Hold+" in 1 resource instances, "+other+" in 1 resource instances"))
		w.LetGo(two[1])
		w.LetGo(one)
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Removed, probe.Finished)
		w.SetSpecFinalizers()
		w.EventuallyGone(self)
	}},
	{"NS-12 a deployment that hangs holds its namespace, and a condition names it", "R22", NamespaceController, func(w *probe.Space) {
		hanging := w.Create(probe.Deployments, "hanging", probe.Held)
		self := w.End()
		w.EventuallySays(probe.Discovered, probe.Parsed, probe.Deleted, probe.Remain("deployments.apps has 1 resource instances"), probe.Preserved(probe.Hold+" in 1 resource instances"))
		ns := w.Namespace()
		if ns.Status.Phase != corev1.NamespaceTerminating || ns.UID != self.UID || len(ns.Spec.Finalizers) != 1 {
			w.T.Errorf("the namespace is %v", ns)
		}
		w.LetGo(hanging)
		w.EventuallyGone(self, hanging)
	}},
}

// An unreadable kind, or a group that fails discovery, holds all namespaces of the server: these checks run alone.
var brokenKinds = []Check{
	{"NS-06 a kind whose conversion fails holds the namespace, and a condition names it", "R22 S8", NamespaceController | CustomResources, func(w *probe.Space) {
		gizmos := w.Define("gizmos")
		stored, repair := w.BreakReading(gizmos)
		other, role := w.Create(probe.ConfigMaps, "other"), w.Create(probe.Roles, "role")
		self := w.End()
		w.EventuallyGone(other)
		words := []string{"Failed to delete all resource types, 1 remaining: "}
		if w.Server.Upstream&probe.Controllers == 0 { // upstream names only the error
			words = append(words, gizmos.Definition())
		}
		w.EventuallyMentions("NamespaceDeletionContentFailure True ContentDeletionFailed", words...)
		w.Differs(accessGoesLast(), func(w *probe.Space) { w.AreKept(role) })
		repair()
		w.EventuallyGone(self)
		w.EventuallyGone(stored...)
	}},
	{"NS-06 a group whose server is away holds the namespace, and a condition names it", "R22 S8", NamespaceController, func(w *probe.Space) {
		group := w.Name + ".example.com"
		repair := w.BreakGroup(group)
		contents := []probe.Object{w.Create(probe.ConfigMaps, "other"), w.Create(probe.Roles, "role")}
		self := w.End()
		w.EventuallyGone(contents...)
		w.EventuallyMentions("NamespaceDeletionDiscoveryFailure True DiscoveryFailed", "Discovery failed for some groups, ", group+"/v1")
		w.Must(self)
		repair()
		w.EventuallyGone(self)
	}},
}
