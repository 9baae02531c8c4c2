package conformance

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// The owner references of dependents, with correct and incorrect coordinates.
var claims = []Check{
	{"VN-03 an owner in another namespace does not count as an owner", "R5 S6", Collector, func(w *probe.Space) {
		elsewhere := w.Another()
		owner := elsewhere.Create(probe.ConfigMaps, "owner")
		elsewhere.Settle(probe.ConfigMaps)
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.Ref(owner)))
		w.EventuallyGone(child)
		w.EventuallyReported(child, probe.InvalidNamespace)
		elsewhere.Stay(owner)
	}},
	{"VN-05 a cluster-scoped object is never deleted for a namespaced owner", "R5", Collector | AnyOwners, func(w *probe.Space) {
		owner := w.Create(probe.ConfigMaps, "owner")
		w.Settle(probe.ConfigMaps)
		child := w.Create(probe.ClusterRoles, "child", probe.OwnedBy(probe.Ref(owner)))
		w.EventuallyReported(child, probe.InvalidNamespace)
		w.Stay(child, owner)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner)
		w.Stay(child)
	}},
	{"VN-06 a reference in a served version that is not the preferred one", "R1", Collector | CustomResources, func(w *probe.Space) {
		gizmos := w.DefineAs("gizmos", probe.Versions())
		owner := w.Create(gizmos, "owner")
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.InVersion("v1beta1", probe.Ref(owner))))
		w.Settle(gizmos)
		w.Stay(child)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner, child)
	}},
	{"VN-07 a reference in a version that is not served holds while the owner lives", "R1 R3", Collector | CustomResources, func(w *probe.Space) {
		gizmos := w.DefineAs("gizmos", probe.Versions())
		owner := w.Create(gizmos, "owner")
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.InVersion("v1alpha1", probe.Ref(owner))))
		w.Settle(gizmos)
		w.Stay(child, owner)
	}},
	{"VN-08 a reference in a version that is not served, when the owner goes", "R1 L1", Collector | CustomResources, func(w *probe.Space) {
		gizmos := w.DefineAs("gizmos", probe.Versions())
		owner := w.Create(gizmos, "owner")
		w.Settle(gizmos)
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.InVersion("v1alpha1", probe.Ref(owner))))
		w.Stay(child)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(owner)
		w.Differs(anyVersionIsTheOwner(), func(w *probe.Space) { w.EventuallyGone(child) })
	}},
	{"VN-07 VN-08 an owner of a kind that is not served keeps its dependents", "R3 R7", Collector | AnyOwners, func(w *probe.Space) {
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.Nobody(probe.UnknownKind)))
		w.Stay(child)
		both := w.Create(probe.Secrets, "both", probe.OwnedBy(probe.Nobody(probe.UnknownKind), probe.Nobody(probe.ConfigMaps)))
		w.Stay(child, both)
	}},
}

// inTwoVersions returns checks of an absent owner that dependents claim in an unserved and in a
// served version.
func inTwoVersions() []Check {
	var all []Check
	for _, one := range []struct {
		id    string
		order []string
	}{{"VN-09", []string{"v1alpha1", "v1beta1"}}, {"VN-10", []string{"v1beta1", "v1alpha1"}}} {
		all = append(all, Check{one.id + " an absent owner in two versions, first " + one.order[0], "R1 R3", Collector | CustomResources, func(w *probe.Space) {
			gizmos := w.DefineAs("gizmos", probe.Versions())
			owner := probe.Nobody(gizmos)
			w.Differs(anyVersionIsTheOwner(), func(w *probe.Space) {
				for _, version := range one.order {
					w.EventuallyGone(w.Create(probe.Secrets, "child-"+version, probe.OwnedBy(probe.InVersion(version, owner))))
				}
			})
		}})
	}
	return all
}

// coordinates are the coordinates of an owner reference, right or wrong.
type coordinates struct {
	name    string
	claim   func(r metav1.OwnerReference) metav1.OwnerReference
	away    bool // the child lives in another namespace
	isRight bool
}

// alternates returns checks of one owner that dependents claim with right and with wrong coordinates:
// the collector keeps only the dependents with right ones.
func alternates() []Check {
	otherVersion := func(r metav1.OwnerReference) metav1.OwnerReference { return probe.InVersion("v1beta1", r) }
	otherName := func(r metav1.OwnerReference) metav1.OwnerReference { r.Name = "other"; return r }
	otherKind := func(r metav1.OwnerReference) metav1.OwnerReference {
		r.APIVersion, r.Kind = "apps/v1", "ReplicaSet"
		return r
	}
	same := func(r metav1.OwnerReference) metav1.OwnerReference { return r }
	var all []Check
	for _, scope := range []struct {
		id, name string
		cluster  bool
	}{{"VN-17", "a namespaced owner", false}, {"VN-18", "a cluster-scoped owner", true}} {
		all = append(all, Check{scope.id + " " + scope.name + " and its other coordinates", "R1 R5 R6 S6", Collector | CustomResources, func(w *probe.Space) {
			d := probe.Versions()
			d.Cluster = scope.cluster
			gizmos := w.DefineAs("gizmos", d)
			owner := w.Create(gizmos, "owner")
			w.Settle(gizmos)
			elsewhere := w.Another()
			for _, c := range []coordinates{
				{name: "version", claim: otherVersion, isRight: true},
				{name: "kind", claim: otherKind},
				{name: "namespace", claim: same, away: true, isRight: scope.cluster},
				{name: "name", claim: otherName},
			} {
				claimBoth(w, elsewhere, owner, c)
			}
		}})
	}
	return all
}

// claimBoth creates dependents that claim an owner rightly and with other coordinates, in both orders.
func claimBoth(w, elsewhere *probe.Space, owner probe.Object, c coordinates) {
	w.T.Helper()
	space := w
	if c.away {
		space = elsewhere
	}
	for _, goodFirst := range []bool{true, false} {
		name := fmt.Sprintf("%s-%t", c.name, goodFirst)
		var good probe.Object
		if goodFirst {
			good = w.Create(probe.Secrets, "good-"+name, probe.OwnedBy(probe.Ref(owner)))
		}
		other := space.Create(probe.Secrets, "other-"+name, probe.OwnedBy(c.claim(probe.Ref(owner))))
		if !goodFirst {
			good = w.Create(probe.Secrets, "good-"+name, probe.OwnedBy(probe.Ref(owner)))
		}
		if c.isRight {
			space.Stay(other)
		} else {
			space.EventuallyGone(other)
		}
		w.Stay(good, owner)
	}
}
