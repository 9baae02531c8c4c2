package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// unknownKind is a kind that is never served.
var unknownKind = kind{GroupVersionResource: schema.GroupVersionResource{Group: "unknown.example.com", Version: "v1", Resource: "nothings"}, name: "Nothing"}

// versions is a custom resource with a preferred version, another served version, and one that is
// not served.
var versions = definition{versions: []any{version("v1", true, true), version("v1beta1", true, false), version("v1alpha1", false, false)}}

// in returns a reference with another version.
func in(version string, r metav1.OwnerReference) metav1.OwnerReference {
	group, _, _ := strings.Cut(r.APIVersion, "/")
	r.APIVersion = group + "/" + version
	return r
}

// What dependents state about their owners, correctly or not.
func TestClaims(t *testing.T) {
	t.Parallel()
	t.Run("VN-03 an owner in another namespace is none", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		elsewhere := w.another()
		owner := elsewhere.create(configMaps, "owner")
		elsewhere.settle(configMaps)
		child := w.create(secrets, "child", ownedBy(ref(owner)))
		w.eventuallyGone(child)
		w.eventuallyReported(child, invalidNamespace)
		elsewhere.stay(owner)
	})
	t.Run("VN-05 a cluster-scoped object is never deleted for a namespaced owner", func(t *testing.T) {
		t.Parallel()
		w := sharedWith(t, unchecked)
		owner := w.create(configMaps, "owner")
		w.settle(configMaps)
		child := w.create(clusterRoles, "child", ownedBy(ref(owner)))
		w.eventuallyReported(child, invalidNamespace)
		w.stay(child, owner)
		w.remove(owner, background)
		w.eventuallyGone(owner)
		w.stay(child)
	})
	t.Run("VN-06 a reference in a served version that is not the preferred one", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		gizmos := w.defineAs("gizmos", versions)
		owner := w.create(gizmos, "owner")
		child := w.create(secrets, "child", ownedBy(in("v1beta1", ref(owner))))
		w.settle(gizmos)
		w.stay(child)
		w.remove(owner, background)
		w.eventuallyGone(owner, child)
	})
	t.Run("VN-07 a reference in a version that is not served holds while the owner lives", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		gizmos := w.defineAs("gizmos", versions)
		owner := w.create(gizmos, "owner")
		child := w.create(secrets, "child", ownedBy(in("v1alpha1", ref(owner))))
		w.settle(gizmos)
		w.stay(child, owner)
	})
	t.Run("VN-08 a reference in a version that is not served, when the owner goes", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		w.ours("R1: the version is no part of an owner's identity; upstream keeps such a child for ever")
		gizmos := w.defineAs("gizmos", versions)
		owner := w.create(gizmos, "owner")
		w.settle(gizmos)
		child := w.create(secrets, "child", ownedBy(in("v1alpha1", ref(owner))))
		w.stay(child)
		w.remove(owner, background)
		w.eventuallyGone(owner, child)
	})
	for id, order := range map[string][]string{"VN-09": {"v1alpha1", "v1beta1"}, "VN-10": {"v1beta1", "v1alpha1"}} {
		t.Run(id+" an absent owner in two versions, first "+order[0], func(t *testing.T) {
			t.Parallel()
			w := shared(t)
			w.ours("R1: the version is no part of an owner's identity; upstream keeps the child with the unserved one")
			gizmos := w.defineAs("gizmos", versions)
			owner := nobody(gizmos)
			for _, version := range order {
				w.eventuallyGone(w.create(secrets, "child-"+version, ownedBy(in(version, owner))))
			}
		})
	}
	t.Run("VN-07 VN-08 an owner of a kind that is not served keeps its dependents", func(t *testing.T) {
		t.Parallel()
		w := sharedWith(t, unchecked)
		child := w.create(secrets, "child", ownedBy(nobody(unknownKind)))
		w.stay(child)
		both := w.create(secrets, "both", ownedBy(nobody(unknownKind), nobody(configMaps)))
		w.stay(child, both)
	})
}

// One owner, claimed with correct and with wrong coordinates: only the dependents with the
// correct ones are kept.
func TestAlternateCoordinates(t *testing.T) {
	t.Parallel()
	type variant struct {
		name    string
		child   *cluster // where the child lives; nil for where the owner does
		claim   func(r metav1.OwnerReference) metav1.OwnerReference
		isRight bool
	}
	check := func(t *testing.T, w *cluster, owner object, v variant) {
		t.Helper()
		space := w
		if v.child != nil {
			space = v.child
		}
		for _, goodFirst := range []bool{true, false} {
			name := fmt.Sprintf("%s-%t", v.name, goodFirst)
			var good object
			if goodFirst {
				good = w.create(secrets, "good-"+name, ownedBy(ref(owner)))
			}
			other := space.create(secrets, "other-"+name, ownedBy(v.claim(ref(owner))))
			if !goodFirst {
				good = w.create(secrets, "good-"+name, ownedBy(ref(owner)))
			}
			if v.isRight {
				space.stay(other)
			} else {
				space.eventuallyGone(other)
			}
			w.stay(good, owner)
		}
	}
	otherName := func(r metav1.OwnerReference) metav1.OwnerReference { r.Name = "other"; return r }
	otherKind := func(r metav1.OwnerReference) metav1.OwnerReference {
		r.APIVersion, r.Kind = "apps/v1", "ReplicaSet"
		return r
	}
	same := func(r metav1.OwnerReference) metav1.OwnerReference { return r }

	t.Run("VN-17 a namespaced owner", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		gizmos := w.defineAs("gizmos", versions)
		owner := w.create(gizmos, "owner")
		w.settle(gizmos)
		elsewhere := w.another()
		for _, v := range []variant{
			{name: "version", claim: func(r metav1.OwnerReference) metav1.OwnerReference { return in("v1beta1", r) }, isRight: true},
			{name: "kind", claim: otherKind},
			{name: "namespace", child: elsewhere, claim: same},
			{name: "name", claim: otherName},
		} {
			t.Run("VN-17 "+v.name, func(t *testing.T) { check(t, w, owner, v) })
		}
	})
	t.Run("VN-18 a cluster-scoped owner", func(t *testing.T) {
		t.Parallel()
		w := shared(t)
		d := versions
		d.cluster = true
		gizmos := w.defineAs("gizmos", d)
		owner := w.create(gizmos, "owner")
		w.settle(gizmos)
		elsewhere := w.another()
		for _, v := range []variant{
			{name: "version", claim: func(r metav1.OwnerReference) metav1.OwnerReference { return in("v1beta1", r) }, isRight: true},
			{name: "kind", claim: otherKind},
			{name: "namespace", child: elsewhere, claim: same, isRight: true},
			{name: "name", claim: otherName},
		} {
			t.Run("VN-18 "+v.name, func(t *testing.T) { check(t, w, owner, v) })
		}
	})
}

// Objects are observed in an order that the test determines, by a collector that temporarily does
// not see one of the kinds.
func TestClaimsInAnyOrder(t *testing.T) {
	t.Run("VN-01 a namespaced child is observed before its cluster-scoped owner", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		resume := tap.stall(clusterRoles)
		owner := w.create(clusterRoles, "owner")
		child := w.create(secrets, "child", ownedBy(ref(owner)))
		w.stay(child)
		if tap.count(about(owner, "get")) == 0 {
			t.Error("nobody asked for an owner that was not observed")
		}
		resume()
		w.settle(clusterRoles)
		asked := tap.count(about(owner, "get"))
		w.stay(child, owner)
		if got := tap.count(about(owner, "get")); got != asked {
			t.Errorf("the owner was asked for %d times more after it was observed", got-asked)
		}
		w.remove(owner, background)
		w.eventuallyGone(child)
	})
	t.Run("VN-02 a child is observed before the owner in another namespace", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		elsewhere := w.another()
		w.collect(tap)
		resume := tap.stall(configMaps)
		owner := elsewhere.create(configMaps, "owner")
		// The owner is looked up in the child's namespace, and observed in its own before that is
		// answered.
		answer := tap.refuse(about(owner, "get"), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		child := w.create(secrets, "child", ownedBy(ref(owner)))
		tap.awaits(t, about(owner, "get"))
		resume()
		elsewhere.settle(configMaps)
		answer()
		w.eventuallyGone(child)
		w.eventuallyReported(child, invalidNamespace)
		elsewhere.stay(owner)
	})
	t.Run("VN-04 a cluster-scoped child is observed before its namespaced owner", func(t *testing.T) {
		w, tap := quietWith(t, unchecked), &tap{}
		w.collect(tap)
		resume := tap.stall(configMaps)
		owner := w.create(configMaps, "owner")
		child := w.create(clusterRoles, "child", ownedBy(ref(owner)))
		w.stay(child)
		resume()
		w.eventuallyReported(child, invalidNamespace)
		w.stay(child, owner)
		calls := tap.count(about(child, "")) + tap.count(about(owner, ""))
		w.settle(configMaps, clusterRoles)
		if got := tap.count(about(child, "")) + tap.count(about(owner, "")); got != calls {
			t.Errorf("%d more requests about a child that is settled, and its owner", got-calls)
		}
	})
	t.Run("VN-06 no owner is asked for that is observed, in whatever version", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos := w.defineAs("gizmos", versions)
		w.collect(tap)
		owner := w.create(gizmos, "owner")
		w.settle(gizmos)
		child := w.create(secrets, "child", ownedBy(in("v1beta1", ref(owner))))
		w.stay(child)
		if got := tap.count(about(owner, "get")); got != 0 {
			t.Errorf("the owner was asked for %d times", got)
		}
	})
	for id, order := range map[string][]string{
		"VN-11": {"owner", "good", "bad"},
		"VN-12": {"good", "bad", "owner"},
		"VN-13": {"bad", "good", "owner"},
	} {
		t.Run(fmt.Sprintf("%s a child claims the owner's UID under another kind: %s", id, strings.Join(order, ", ")), func(t *testing.T) {
			w, tap := quiet(t), &tap{}
			w.collect(tap)
			resume := map[string]func(){"owner": tap.stall(configMaps), "good": tap.stall(secrets), "bad": tap.stall(pods)}
			owner := w.create(configMaps, "owner")
			good := w.create(secrets, "good", ownedBy(ref(owner)))
			claim := ref(owner)
			claim.APIVersion, claim.Kind = "apps/v1", "ReplicaSet"
			bad := w.create(pods, "bad", ownedBy(claim))
			kinds := map[string]kind{"owner": configMaps, "good": secrets, "bad": pods}
			for _, next := range order {
				resume[next]()
				w.settle(kinds[next])
			}
			w.eventuallyGone(bad)
			w.stay(good, owner)
			// The absence of the bad claim must not have removed the owner.
			w.remove(owner, background)
			w.eventuallyGone(good)
		})
	}
	for id, childFirst := range map[string]bool{"VN-14": true, "VN-16": false} {
		t.Run(fmt.Sprintf("%s a cluster-scoped and a namespaced child of an absent owner, the cluster-scoped first: %t", id, childFirst), func(t *testing.T) {
			w, tap := quietWith(t, unchecked), &tap{}
			w.collect(tap)
			gone := nobody(configMaps)
			var bad, good object
			if childFirst {
				bad = w.create(clusterRoles, "bad", ownedBy(gone))
				w.settle(clusterRoles)
			}
			good = w.create(secrets, "good", ownedBy(gone))
			w.eventuallyGone(good)
			if !childFirst {
				bad = w.create(clusterRoles, "bad", ownedBy(gone))
			}
			w.stay(bad)
			asked := tap.count(match{verbs: "get"})
			w.settle(clusterRoles)
			// One read for each of the two absent owners that settle creates.
			if got := tap.count(match{verbs: "get"}) - asked; got > 2 {
				t.Errorf("%d reads while nothing was to be found out", got)
			}
		})
	}
	t.Run("VN-15 a cluster-scoped and a namespaced child, and an owner that is observed late", func(t *testing.T) {
		w, tap := quietWith(t, unchecked), &tap{}
		w.collect(tap)
		resume := tap.stall(configMaps)
		owner := w.create(configMaps, "owner")
		bad := w.create(clusterRoles, "bad", ownedBy(ref(owner)))
		good := w.create(secrets, "good", ownedBy(ref(owner)))
		w.stay(bad, good)
		resume()
		w.eventuallyReported(bad, invalidNamespace)
		w.stay(bad, good, owner)
		w.remove(owner, background)
		w.eventuallyGone(good)
		w.stay(bad)
	})
	for turn := range 3 {
		t.Run(fmt.Sprintf("VN-19 many claims on one UID, in order %d: only the right one holds", turn), func(t *testing.T) {
			w := quiet(t)
			elsewhere := w.another()
			owner := w.create(configMaps, "owner")
			type claimant struct {
				space *cluster
				claim metav1.OwnerReference
			}
			claims := []claimant{{w, ref(owner)}, {elsewhere, ref(owner)}}
			for _, apiVersion := range []string{"v1", "apps/v1", "batch/v1"} {
				for _, kind := range []string{"ConfigMap", "Secret", "ReplicaSet", "Job"} {
					for _, name := range []string{"a", "owner", "z"} {
						if served := map[string]string{"ConfigMap": "v1", "Secret": "v1", "ReplicaSet": "apps/v1", "Job": "batch/v1"}; served[kind] != apiVersion || kind == "ConfigMap" && name == "owner" {
							continue
						}
						claims = append(claims, claimant{w, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: owner.uid}})
					}
				}
			}
			children := make([]object, len(claims))
			for i := range claims {
				at := (i*5 + turn*3) % len(claims)
				children[at] = claims[at].space.create(secrets, fmt.Sprint("child-", at), ownedBy(claims[at].claim))
			}
			w.collect(nil)
			w.eventuallyGone(children[1:]...)
			w.stay(children[0], owner)
		})
	}
	t.Run("VN-20 equal claims are looked up once, other UIDs are other owners", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		owner := w.create(configMaps, "owner")
		wrong := ref(owner)
		wrong.Name = "wrong"
		children := w.createMany(20, secrets, "child", ownedBy(wrong))
		unrelated := ref(owner)
		unrelated.UID = types.UID("00000000-0000-0000-0000-000000000000")
		children = append(children, w.create(secrets, "unrelated", ownedBy(unrelated)))
		good := w.create(secrets, "good", ownedBy(ref(owner)))
		w.collect(tap)
		w.eventuallyGone(children...)
		w.stay(good, owner)
		if got := tap.count(match{verbs: "get", kind: configMaps, name: "wrong"}); got != 1 {
			t.Errorf("one claim of many was looked up %d times", got)
		}
	})
}

// VN-21: a crowd of objects with references across namespaces exists before the collector starts,
// as after its restart.
func TestReferencesAcrossNamespaces(t *testing.T) {
	t.Run("VN-21 valid children survive a restart among bogus ones", func(t *testing.T) {
		w := quiet(t)
		elsewhere := w.another()
		parent := elsewhere.create(configMaps, "parent")
		valid := elsewhere.createMany(10, secrets, "valid", ownedBy(ref(parent)))
		var bogus []object
		for i := range 26 {
			claim := ref(parent)
			switch i % 4 {
			case 1:
				claim.Kind = "Secret"
			case 2:
				claim.APIVersion, claim.Kind = "apps/v1", "Deployment"
			case 3:
				claim.Name = fmt.Sprint("other-", i)
			}
			k := []kind{secrets, configMaps, pods}[i%3]
			bogus = append(bogus, w.create(k, fmt.Sprint("bogus-", i), ownedBy(claim)))
		}
		for restart := range 2 {
			stop := w.collect(nil)
			w.eventuallyGone(bogus...)
			elsewhere.stay(append(valid, parent)...)
			late := w.create(pods, fmt.Sprint("late-", restart), ownedBy(ref(parent)))
			w.eventuallyGone(late)
			elsewhere.stay(append(valid, parent)...)
			stop()
			bogus = []object{w.create(secrets, "again", ownedBy(ref(parent)))}
		}
		w.collect(nil)
		w.eventuallyGone(bogus...)
		elsewhere.remove(parent, background)
		elsewhere.eventuallyGone(valid...)
	})
	t.Run("CS-01 the watch of the owners' kind lags", func(t *testing.T) {
		w, tap := quietWith(t, unchecked), &tap{}
		w.collect(tap)
		resume := tap.stall(clusterRoles)
		owner := w.create(clusterRoles, "owner")
		kept := w.create(secrets, "of-live-owner", ownedBy(ref(owner)))
		gone := w.create(secrets, "of-missing-owner", ownedBy(nobody(clusterRoles)))
		unknown := w.create(secrets, "of-unknown-kind", ownedBy(nobody(unknownKind)))
		w.eventuallyGone(gone)
		w.stay(kept, unknown)
		resume()
		w.stay(kept, unknown, owner)
	})
	t.Run("CS-01 an object that waits for an unknown kind is reconsidered when it is served", func(t *testing.T) {
		w := quietWith(t, unchecked)
		w.collect(nil)
		later := kind{GroupVersionResource: schema.GroupVersionResource{Group: w.space + ".example.com", Version: "v1", Resource: "gizmos"}, name: "Gizmo"}
		child := w.create(secrets, "child", ownedBy(nobody(later)))
		w.stay(child)
		w.define("gizmos")
		w.eventuallyGone(child)
	})
}
