package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	heldBy  = "example.com/hold"
	letsGo  = "example.com/lets-go"
	objects = 9
)

// randomCluster makes an inventory of two namespaces, with owner references of all kinds between their objects. Most
// references are right, and few objects are being deleted.
type randomCluster struct {
	*rapid.T
	*inventory.Inventory
}

func (c *randomCluster) n(below int) int { return histories.IntN(c.T, below) }

// one returns true in one of n cases.
func (c *randomCluster) one(of int) bool { return c.n(of) == of-1 }

func newRandomCluster(t *rapid.T) *randomCluster {
	c := &randomCluster{t, &inventory.Inventory{Pods: map[ownership.UID]*inventory.Pod{}, Namespaces: map[ownership.UID]*corev1.Namespace{}}}
	for _, r := range []*inventory.Resource{
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("pods"), Kind: "Pod", Namespaced: true},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), Kind: "PersistentVolumeClaim", Namespaced: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"}, Kind: "Role", Namespaced: true},
		{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gardens"}, Kind: "Garden"},
		{GroupVersionResource: schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, Kind: "CustomResourceDefinition"},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace"},
		{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("nodes"), Kind: "Node"},
	} {
		r.Deletable = true
		c.Resources = append(c.Resources, r)
	}
	c.add(c.Resources[7], "", "n1")
	c.add(c.Resources[6], "", "shop")
	c.add(c.Resources[6], "", "depot")
	c.add(c.Resources[5], "", "gardens.example.com")
	for n := range objects {
		r := c.Resources[c.n(5)]
		namespace := ""
		if r.Namespaced {
			namespace = []string{"shop", "shop", "depot"}[c.n(3)]
		}
		c.describe(c.add(r, namespace, fmt.Sprint("o", n)))
	}
	slices.SortFunc(c.Resources, (*inventory.Resource).Compare)
	c.Index()
	return c
}

func (c *randomCluster) add(r *inventory.Resource, namespace, name string) *inventory.Object {
	o := &inventory.Object{Resource: r}
	o.UID, o.Kind, o.Namespace, o.Name, o.ResourceVersion = ownership.UID(name), r.OwnerKind(), namespace, name, "1"
	c.Objects = append(c.Objects, o)
	return o
}

// describe gives an object the properties that matter to its deletion.
func (c *randomCluster) describe(o *inventory.Object) {
	for range c.n(3) {
		owner := c.Objects[c.n(len(c.Objects))]
		if c.one(12) || owner != o && (owner.Namespace == "" || owner.Namespace == o.Namespace) {
			c.own(owner, o)
		}
	}
	for _, f := range []string{heldBy, letsGo} {
		if c.one(4) {
			o.Finalizers = append(o.Finalizers, f)
		}
	}
	if c.one(40) {
		o.Finalizers = append(o.Finalizers, []string{ownership.FinalizerOrphan, ownership.FinalizerForeground}[c.n(2)])
	}
	switch o.Kind.Kind {
	case "Pod":
		pod := &inventory.Pod{Node: []string{"n1", "", "gone"}[c.n(3)], Grace: 30 * time.Second}
		for n := range objects {
			if c.one(3) {
				pod.Claims = append(pod.Claims, inventory.Claim{Name: fmt.Sprint("o", n)})
			}
		}
		c.Pods[o.UID] = pod
	case "PersistentVolumeClaim":
		o.Finalizers = append(o.Finalizers, inuse.PVCProtection)
	}
	o.Protected = c.one(40)
	o.Phase = ownership.PhaseOf(c.one(10), o.Finalizers)
}

// own adds an owner reference, rarely a wrong one, and rarely one in each direction.
func (c *randomCluster) own(owner, dependent *inventory.Object) {
	r := ownership.Reference{APIVersion: owner.Resource.GroupVersion().String(), Kind: owner.Kind.Kind, Name: owner.Name, UID: owner.UID}
	if c.one(2) {
		r.BlockOwnerDeletion = ownership.True
	}
	switch {
	case c.one(40):
		r.UID = "absent"
	case c.one(40):
		r.Name = "wrong"
	case c.one(20) && owner.Namespace == dependent.Namespace:
		back := ownership.Reference{APIVersion: dependent.Resource.GroupVersion().String(), Kind: dependent.Kind.Kind, Name: dependent.Name, UID: dependent.UID}
		owner.Owners = append(owner.Owners, back)
	}
	dependent.Owners = append(dependent.Owners, r)
}

// String returns a line for each object.
func (c *randomCluster) String() string {
	var text strings.Builder
	for _, o := range c.Objects {
		fmt.Fprintf(&text, "%s %s/%s, %s, finalizers %q, owners %v", o.Kind, o.Namespace, o.Name, o.Phase, o.Finalizers, o.Owners)
		if pod := c.Pods[o.UID]; pod != nil {
			fmt.Fprintf(&text, ", on %q, uses %v", pod.Node, pod.Claims)
		}
		text.WriteString("\n")
	}
	return text.String()
}

// requests are mostly background deletions.
func (c *randomCluster) requests() []Request {
	if c.one(8) {
		return c.requestsWith("", metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
	}
	return c.requestsWith("", metav1.DeletePropagationBackground)
}

func (c *randomCluster) requestsWith(policies ...metav1.DeletionPropagation) []Request {
	var all []Request
	for range 1 + c.n(2) {
		all = append(all, Request{UID: c.Objects[1+c.n(len(c.Objects)-1)].UID, Propagation: policies[c.n(len(policies))]})
	}
	return all
}

func randomOptions() Options {
	return Options{
		Now:      time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		Released: func(_ *inventory.Object, finalizer string) bool { return finalizer == letsGo },
		Protection: func(*inventory.Object) inventory.Fact[inventory.Protection] {
			return inventory.Fact[inventory.Protection]{Value: inventory.Protection{Protection: protection.New(string(protection.Cascading), ""), Enforced: true}}
		},
	}
}

// TestCertainIsCertain: schedules that the prediction skips would have ended like the first one.
func TestCertainIsCertain(t *testing.T) {
	certain, racing, several := 0, 0, 0
	histories.Check(t, 2000, 1, func(t *rapid.T) {
		c := newRandomCluster(t)
		requests := c.requests()
		options := randomOptions()
		w := New(c.Inventory)
		all := schedules(len(requests))
		first := w.play(requests, options, all[0])
		races := map[ownership.UID]bool{}
		for _, s := range slices.Concat(all[1:], randomSchedules(len(first.objects))[:12]) {
			first.compare(w.play(requests, options, s), races)
		}
		isCertain := first.isCertain(requests)
		if isCertain && len(races) > 0 {
			t.Fatalf("called certain, but %v depend on the schedule of %v in\n%s", races, requests, c)
		}
		if len(races) > 0 {
			racing++
		}
		if isCertain {
			certain++
			if len(first.objects) > 2 {
				several++
			}
		}
	})
	if certain == 0 || several == 0 || racing == 0 {
		t.Errorf("%d cases are certain, %d of them about several objects, and %d have races: nothing is tested", certain, several, racing)
	}
	t.Logf("%d cases are certain, %d of them about several objects; %d have races", certain, several, racing)
}

// A DELETE without a policy is as certain as one in the background, unless the kind orphans by default.
func TestDefaultPolicyMayBeCertain(t *testing.T) {
	for kind, want := range map[string]bool{"ConfigMap": true, "Job": false} {
		c := &randomCluster{Inventory: &inventory.Inventory{Resources: []*inventory.Resource{
			{GroupVersionResource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap", Namespaced: true},
			{GroupVersionResource: schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, Kind: "Job", Namespaced: true},
		}}}
		for _, r := range c.Resources {
			c.add(r, "shop", r.Kind)
		}
		c.Index()
		requests := []Request{{UID: ownership.UID(kind)}}
		if got := New(c.Inventory).play(requests, randomOptions(), schedule{}).isCertain(requests); got != want {
			t.Errorf("a DELETE of a %s is certain: %t, want %t", kind, got, want)
		}
	}
}
