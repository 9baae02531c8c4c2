package preview

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// lookAtAll puts all objects that are being deleted on the agendas, and queues all objects that protection has kept.
func (p *play) lookAtAll() {
	for _, o := range p.ending {
		p.assign(o)
	}
	for uid, o := range p.objects {
		if o.protection != nil && !o.removed {
			p.queue[uid] = true
		}
	}
}

// playLookingAtAll simulates requests with workers that look at all objects in each turn.
func (w *Cluster) playLookingAtAll(requests []Request, o Options, s schedule) *play {
	p := newPlay(w, o, s)
	settle := func() {
		p.lookAtAll()
		for p.turn() {
			p.lookAtAll()
		}
	}
	for _, r := range requests {
		p.request(r)
		if s.patient {
			settle()
		}
	}
	settle()
	return p
}

// The agendas leave out no object that a look would change: when a play has settled, a look at all objects changes
// nothing. Without protected objects, which this would queue more often, it ends in the same steps as a play whose
// workers look at all objects in each turn.
func TestAgendasLeaveOutNothing(t *testing.T) {
	gone := map[string]int{}
	histories.Check(t, 600, 1, func(t *rapid.T) {
		c := newRandomCluster(t)
		isProtected := c.one(2)
		for _, o := range c.Objects {
			o.Protected = isProtected && len(o.Name) == 2 && c.one(4)
			if c.one(3) {
				delete(c.Pods, o.UID)
			}
		}
		requests := c.requestsWith("", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
		w, options := New(c.Inventory), randomOptions()
		options.Protection = c.outlivesNext
		for _, s := range slices.Concat(schedules(len(requests)), randomSchedules(100)[:12]) {
			p, all := w.play(requests, options, s), (*play)(nil)
			if !isProtected {
				all = w.playLookingAtAll(requests, options, s)
			}
			for uid, o := range p.objects {
				if !o.removed {
					continue
				}
				gone[o.Kind.Kind]++
				if o.protection != nil {
					gone["Protected"]++
				}
				if all == nil {
					continue
				}
				if other := all.objects[uid]; other == nil || !other.removed || other.step != o.step {
					t.Fatalf("%s is gone in step %d, and not so if all are looked at, in %+v, after %v in\n%s", uid, o.step, s, requests, c)
				}
			}
			version := p.version
			p.lookAtAll()
			p.settle()
			if p.version != version {
				t.Fatalf("an agenda has left out something in %+v, after %v in\n%s", s, requests, c)
			}
		}
	})
	for _, kind := range []string{"ConfigMap", "Pod", "PersistentVolumeClaim", "Garden", "Namespace", "CustomResourceDefinition", "Protected"} {
		if gone[kind] < 100 {
			t.Errorf("%d objects of kind %s were gone", gone[kind], kind)
		}
	}
}

// outlivesNext is a protection of objects that outlive the next one, if it has one of the random names.
func (c *randomCluster) outlivesNext(o *inventory.Object) inventory.Fact[inventory.Protection] {
	next := c.Objects[(slices.Index(c.Objects, o)+1)%len(c.Objects)]
	if len(next.Name) != 2 {
		return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(string(protection.Cascading), ""), Enforced: true}}
	}
	other := protection.Outlived{APIVersion: next.Resource.GroupVersion().String(), Kind: next.Kind.Kind, Namespace: next.Namespace, Name: next.Name}
	list, err := protection.FormatOutlives([]protection.Outlived{other})
	if err != nil {
		c.Fatal(err)
	}
	return inventory.Fact[inventory.Protection]{Value: inventory.Protection{
		Protection: protection.New(string(protection.Outlives), list), Enforced: true, Remaining: []protection.Remaining{{Outlived: other}},
	}}
}

// configMaps returns an inventory of ConfigMaps with the given owners, all of them blocking.
func configMaps(n int, owners func(i int) []int, finalizers ...string) *inventory.Inventory {
	r := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true, Deletable: true}
	namespaces := &inventory.Resource{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", Deletable: true}
	inv := &inventory.Inventory{Resources: []*inventory.Resource{r, namespaces}}
	add := func(r *inventory.Resource, namespace, name string) *inventory.Object {
		o := &inventory.Object{Resource: r}
		o.UID, o.Kind, o.Namespace, o.Name, o.ResourceVersion = ownership.UID(name), r.OwnerKind(), namespace, name, "1"
		inv.Objects = append(inv.Objects, o)
		return o
	}
	name := func(i int) string { return fmt.Sprint("c", i) }
	add(namespaces, "", "shop")
	for i := range n {
		o := add(r, "shop", name(i))
		o.Finalizers = finalizers
		for _, owner := range owners(i) {
			o.Owners = append(o.Owners, ownership.Reference{APIVersion: "v1", Kind: "ConfigMap", Name: name(owner), UID: ownership.UID(name(owner)), BlockOwnerDeletion: ownership.True})
		}
	}
	inv.Index()
	return inv
}

// The work of a play grows with its objects: chains, wide trees, cycles, and objects with many owners. The policies of
// the first request are those that make most turns.
func TestPlaysAreLinear(t *testing.T) {
	chain := func(i int) []int { return slices.Repeat([]int{i - 1}, min(i, 1)) }
	for name, test := range map[string]struct {
		owners     func(n, i int) []int
		policy     metav1.DeletionPropagation
		requested  ownership.UID
		finalizers []string
	}{
		"chain":                  {func(_, i int) []int { return chain(i) }, metav1.DeletePropagationForeground, "c0", nil},
		"chain, background":      {func(_, i int) []int { return chain(i) }, metav1.DeletePropagationBackground, "c0", nil},
		"chain with finalizers":  {func(_, i int) []int { return chain(i) }, metav1.DeletePropagationForeground, "c0", []string{letsGo}},
		"chain in a namespace":   {func(_, i int) []int { return chain(i) }, metav1.DeletePropagationBackground, "shop", []string{ownership.FinalizerForeground}},
		"wide tree":              {func(_, i int) []int { return make([]int, min(i, 1)) }, metav1.DeletePropagationForeground, "c0", nil},
		"wide tree, waiting":     {func(_, i int) []int { return make([]int, min(i, 1)) }, metav1.DeletePropagationForeground, "c0", []string{heldBy}},
		"cycle":                  {func(n, i int) []int { return []int{(i + n - 1) % n} }, metav1.DeletePropagationForeground, "c0", nil},
		"cycle, background":      {func(n, i int) []int { return []int{(i + n - 1) % n} }, metav1.DeletePropagationBackground, "c0", nil},
		"one with all as owners": {ownedByAll, metav1.DeletePropagationForeground, "c0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			steps := map[int]int{}
			for _, n := range []int{250, 1000} {
				w := New(configMaps(n, func(i int) []int { return test.owners(n, i) }, test.finalizers...))
				for _, s := range schedules(1) {
					p := w.play([]Request{{UID: test.requested, Propagation: test.policy}}, randomOptions(), s)
					steps[n] += p.steps
					if len(p.objects) < n {
						t.Errorf("%d of %d objects were played in %+v", len(p.objects), n, s)
					}
				}
			}
			if steps[1000] > 5*steps[250] {
				t.Errorf("%d steps for 250 objects, and %d for 1000", steps[250], steps[1000])
			}
			t.Logf("%d steps for 250 objects, and %d for 1000", steps[250], steps[1000])
		})
	}
}

// The work grows with the number of requests, too: all owners of one object are deleted, one after the other.
func TestPlaysOfManyRequestsAreLinear(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan, metav1.DeletePropagationBackground} {
		steps := map[int]int{}
		for _, n := range []int{125, 500} {
			w := New(configMaps(n, func(i int) []int { return ownedByAll(n, i) }))
			var uids []ownership.UID
			for i := range n - 2 {
				uids = append(uids, ownership.UID(fmt.Sprint("c", i+1)))
			}
			all := schedules(len(uids))
			for _, s := range slices.Concat(all, randomSchedules(10_000)) {
				p := w.play(RequestsOf(uids, policy), randomOptions(), s)
				steps[n] += p.steps
				if last := p.objects[ownership.UID(fmt.Sprint("c", n-1))]; last == nil || !last.changed() {
					t.Errorf("%s: the object with %d owners is unchanged in %+v", policy, n-2, s)
				}
			}
		}
		if steps[500] > 6*steps[125] {
			t.Errorf("%s: %d steps for 125 objects, and %d for 500", policy, steps[125], steps[500])
		}
		t.Logf("%s: %d steps for 125 objects, and %d for 500", policy, steps[125], steps[500])
	}
}

// ownedByAll makes a tree of two levels below c0, and all of the second one owners of the last object.
func ownedByAll(n, i int) []int {
	switch i {
	case 0:
		return nil
	case n - 1:
		owners := make([]int, n-2)
		for owner := range owners {
			owners[owner] = owner + 1
		}
		return owners
	}
	return []int{0}
}
