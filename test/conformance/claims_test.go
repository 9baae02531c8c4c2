package conformance

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// Objects are observed in an order that the test determines, by a collector that temporarily does
// not see one of the kinds.
func TestClaimsInAnyOrder(t *testing.T) {
	t.Run("VN-01 a namespaced child is observed before its cluster-scoped owner", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		resume := tap.stall(probe.ClusterRoles)
		owner := w.Create(probe.ClusterRoles, "owner")
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.Ref(owner)))
		w.Stay(child)
		if tap.count(about(owner, "get")) == 0 {
			t.Error("nobody asked for an owner that was not observed")
		}
		resume()
		w.Settle(probe.ClusterRoles)
		asked := tap.count(about(owner, "get"))
		w.Stay(child, owner)
		if got := tap.count(about(owner, "get")); got != asked {
			t.Errorf("the owner was asked for %d times more after it was observed", got-asked)
		}
		w.Remove(owner, probe.Background)
		w.EventuallyGone(child)
	})
	t.Run("VN-02 a child is observed before the owner in another namespace", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		elsewhere := w.Another()
		w.collect(tap)
		resume := tap.stall(probe.ConfigMaps)
		owner := elsewhere.Create(probe.ConfigMaps, "owner")
		// The owner is looked up in the child's namespace, and observed in its own before that is
		// answered.
		answer := tap.refuse(about(owner, "get"), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.Ref(owner)))
		tap.awaits(t, about(owner, "get"))
		resume()
		elsewhere.Settle(probe.ConfigMaps)
		answer()
		w.EventuallyGone(child)
		w.EventuallyReported(child, probe.InvalidNamespace)
		elsewhere.Stay(owner)
	})
	t.Run("VN-04 a cluster-scoped child is observed before its namespaced owner", func(t *testing.T) {
		w, tap := quietWith(t, unchecked), &tap{}
		w.collect(tap)
		resume := tap.stall(probe.ConfigMaps)
		owner := w.Create(probe.ConfigMaps, "owner")
		child := w.Create(probe.ClusterRoles, "child", probe.OwnedBy(probe.Ref(owner)))
		w.Stay(child)
		resume()
		w.EventuallyReported(child, probe.InvalidNamespace)
		w.Stay(child, owner)
		calls := tap.count(about(child, "")) + tap.count(about(owner, ""))
		w.Settle(probe.ConfigMaps, probe.ClusterRoles)
		if got := tap.count(about(child, "")) + tap.count(about(owner, "")); got != calls {
			t.Errorf("%d more requests about a child that is settled, and its owner", got-calls)
		}
	})
	t.Run("VN-06 no owner is asked for that is observed, in whatever version", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos := w.DefineAs("gizmos", probe.Versions())
		w.collect(tap)
		owner := w.Create(gizmos, "owner")
		w.Settle(gizmos)
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.InVersion("v1beta1", probe.Ref(owner))))
		w.Stay(child)
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
			resume := map[string]func(){"owner": tap.stall(probe.ConfigMaps), "good": tap.stall(probe.Secrets), "bad": tap.stall(probe.Pods)}
			owner := w.Create(probe.ConfigMaps, "owner")
			good := w.Create(probe.Secrets, "good", probe.OwnedBy(probe.Ref(owner)))
			claim := probe.Ref(owner)
			claim.APIVersion, claim.Kind = "apps/v1", "ReplicaSet"
			bad := w.Create(probe.Pods, "bad", probe.OwnedBy(claim))
			kinds := map[string]probe.Kind{"owner": probe.ConfigMaps, "good": probe.Secrets, "bad": probe.Pods}
			for _, next := range order {
				resume[next]()
				w.Settle(kinds[next])
			}
			w.EventuallyGone(bad)
			w.Stay(good, owner)
			// The absence of the bad claim must not have removed the owner.
			w.Remove(owner, probe.Background)
			w.EventuallyGone(good)
		})
	}
	for id, childFirst := range map[string]bool{"VN-14": true, "VN-16": false} {
		t.Run(fmt.Sprintf("%s a cluster-scoped and a namespaced child of an absent owner, the cluster-scoped first: %t", id, childFirst), func(t *testing.T) {
			w, tap := quietWith(t, unchecked), &tap{}
			w.collect(tap)
			gone := probe.Nobody(probe.ConfigMaps)
			var bad, good probe.Object
			if childFirst {
				bad = w.Create(probe.ClusterRoles, "bad", probe.OwnedBy(gone))
				w.Settle(probe.ClusterRoles)
			}
			good = w.Create(probe.Secrets, "good", probe.OwnedBy(gone))
			w.EventuallyGone(good)
			if !childFirst {
				bad = w.Create(probe.ClusterRoles, "bad", probe.OwnedBy(gone))
			}
			w.Stay(bad)
			asked := tap.count(match{verbs: "get"})
			w.Settle(probe.ClusterRoles)
			// One read for each of the two absent owners that settle creates.
			if got := tap.count(match{verbs: "get"}) - asked; got > 2 {
				t.Errorf("%d reads while nothing was to be found out", got)
			}
		})
	}
	t.Run("VN-15 a cluster-scoped and a namespaced child, and an owner that is observed late", func(t *testing.T) {
		w, tap := quietWith(t, unchecked), &tap{}
		w.collect(tap)
		resume := tap.stall(probe.ConfigMaps)
		owner := w.Create(probe.ConfigMaps, "owner")
		bad := w.Create(probe.ClusterRoles, "bad", probe.OwnedBy(probe.Ref(owner)))
		good := w.Create(probe.Secrets, "good", probe.OwnedBy(probe.Ref(owner)))
		w.Stay(bad, good)
		resume()
		w.EventuallyReported(bad, probe.InvalidNamespace)
		w.Stay(bad, good, owner)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(good)
		w.Stay(bad)
	})
	for turn := range 3 {
		t.Run(fmt.Sprintf("VN-19 many claims on one UID, in order %d: only the right one holds", turn), func(t *testing.T) {
			w := quiet(t)
			elsewhere := w.Another()
			owner := w.Create(probe.ConfigMaps, "owner")
			type claimant struct {
				space *probe.Space
				claim metav1.OwnerReference
			}
			claims := []claimant{{w.Space, probe.Ref(owner)}, {elsewhere, probe.Ref(owner)}}
			for _, apiVersion := range []string{"v1", "apps/v1", "batch/v1"} {
				for _, kind := range []string{"ConfigMap", "Secret", "ReplicaSet", "Job"} {
					for _, name := range []string{"a", "owner", "z"} {
						if served := map[string]string{"ConfigMap": "v1", "Secret": "v1", "ReplicaSet": "apps/v1", "Job": "batch/v1"}; served[kind] != apiVersion || kind == "ConfigMap" && name == "owner" {
							continue
						}
						claims = append(claims, claimant{w.Space, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: owner.UID}})
					}
				}
			}
			children := make([]probe.Object, len(claims))
			for i := range claims {
				at := (i*5 + turn*3) % len(claims)
				children[at] = claims[at].space.Create(probe.Secrets, fmt.Sprint("child-", at), probe.OwnedBy(claims[at].claim))
			}
			w.collect(nil)
			w.EventuallyGone(children[1:]...)
			w.Stay(children[0], owner)
		})
	}
	t.Run("VN-20 equal claims are looked up once, other UIDs are other owners", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		owner := w.Create(probe.ConfigMaps, "owner")
		wrong := probe.Ref(owner)
		wrong.Name = "wrong"
		children := w.CreateMany(20, probe.Secrets, "child", probe.OwnedBy(wrong))
		unrelated := probe.Ref(owner)
		unrelated.UID = types.UID("00000000-0000-0000-0000-000000000000")
		children = append(children, w.Create(probe.Secrets, "unrelated", probe.OwnedBy(unrelated)))
		good := w.Create(probe.Secrets, "good", probe.OwnedBy(probe.Ref(owner)))
		w.collect(tap)
		w.EventuallyGone(children...)
		w.Stay(good, owner)
		if got := tap.count(match{verbs: "get", kind: probe.ConfigMaps, name: "wrong"}); got != 1 {
			t.Errorf("one claim of many was looked up %d times", got)
		}
	})
}

// VN-21: a crowd of objects with references across namespaces exists before the collector starts,
// as after its restart.
func TestReferencesAcrossNamespaces(t *testing.T) {
	t.Run("VN-21 valid children survive a restart among bogus ones", func(t *testing.T) {
		w := quiet(t)
		elsewhere := w.Another()
		parent := elsewhere.Create(probe.ConfigMaps, "parent")
		valid := elsewhere.CreateMany(10, probe.Secrets, "valid", probe.OwnedBy(probe.Ref(parent)))
		var bogus []probe.Object
		for i := range 26 {
			claim := probe.Ref(parent)
			switch i % 4 {
			case 1:
				claim.Kind = "Secret"
			case 2:
				claim.APIVersion, claim.Kind = "apps/v1", "Deployment"
			case 3:
				claim.Name = fmt.Sprint("other-", i)
			}
			k := []probe.Kind{probe.Secrets, probe.ConfigMaps, probe.Pods}[i%3]
			bogus = append(bogus, w.Create(k, fmt.Sprint("bogus-", i), probe.OwnedBy(claim)))
		}
		for restart := range 2 {
			stop := w.collect(nil)
			w.EventuallyGone(bogus...)
			elsewhere.Stay(append(valid, parent)...)
			late := w.Create(probe.Pods, fmt.Sprint("late-", restart), probe.OwnedBy(probe.Ref(parent)))
			w.EventuallyGone(late)
			elsewhere.Stay(append(valid, parent)...)
			stop()
			bogus = []probe.Object{w.Create(probe.Secrets, "again", probe.OwnedBy(probe.Ref(parent)))}
		}
		w.collect(nil)
		w.EventuallyGone(bogus...)
		elsewhere.Remove(parent, probe.Background)
		elsewhere.EventuallyGone(valid...)
	})
	t.Run("CS-01 the watch of the owners' kind lags", func(t *testing.T) {
		w, tap := quietWith(t, unchecked), &tap{}
		w.collect(tap)
		resume := tap.stall(probe.ClusterRoles)
		owner := w.Create(probe.ClusterRoles, "owner")
		kept := w.Create(probe.Secrets, "of-live-owner", probe.OwnedBy(probe.Ref(owner)))
		gone := w.Create(probe.Secrets, "of-missing-owner", probe.OwnedBy(probe.Nobody(probe.ClusterRoles)))
		unknown := w.Create(probe.Secrets, "of-unknown-kind", probe.OwnedBy(probe.Nobody(probe.UnknownKind)))
		w.EventuallyGone(gone)
		w.Stay(kept, unknown)
		resume()
		w.Stay(kept, unknown, owner)
	})
	t.Run("CS-01 an object that waits for an unknown kind is reconsidered when it is served", func(t *testing.T) {
		w := quietWith(t, unchecked)
		w.collect(nil)
		later := probe.Kind{GroupVersionResource: schema.GroupVersionResource{Group: w.Name + ".example.com", Version: "v1", Resource: "gizmos"}, Name: "Gizmo"}
		child := w.Create(probe.Secrets, "child", probe.OwnedBy(probe.Nobody(later)))
		w.Stay(child)
		w.Define("gizmos")
		w.EventuallyGone(child)
	})
}
