package system

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

var (
	resetCases = flag.Int("reset.cases", 5, "the number of scripts that end as on a new control plane after a reset")
	resetSeed  = flag.Uint64("reset.seed", 0, "the seed of the first script; 0: a random one")
)

// TestScriptsAfterAResetEndAsOnANewPlane plays a random script, resets the control plane in the middle of it, plays
// another one, and compares its end with that on a new control plane. Both scripts use the same names.
func TestScriptsAfterAResetEndAsOnANewPlane(t *testing.T) {
	t.Parallel()
	seed := seedOf(resetSeed)
	o := ephemeral(t)
	o.Workloads, o.Scheduler = InProcess, true
	o.Nodes.Nodes = 1
	runWithPlane(t, o, func(ctx context.Context, used Plane) error {
		u, err := newResetClients(t, used)
		if err != nil {
			return err
		}
		for i := range *resetCases {
			seed := seed + uint64(i)
			t.Logf("script %d: -reset.seed=%d", i, seed)
			before := newScript(u, seed, 1)
			before.play(ctx)
			u.reset(ctx)
			after := newScript(u, seed, 2)
			after.play(ctx)
			runWithPlane(t, o, func(ctx context.Context, fresh Plane) error {
				f, err := newResetClients(t, fresh)
				if err != nil {
					return err
				}
				same := newScript(f, seed, 2)
				same.play(ctx)
				eventually.Agrees(t, func() string {
					got, want := after.state(ctx), same.state(ctx)
					if maps.Equal(got, want) {
						return ""
					}
					return fmt.Sprintf("-reset.seed=%d: after a reset there are\n%s\nand on a new control plane\n%s", seed, lines(got), lines(want))
				})
				return nil
			})
			if t.Failed() {
				return errors.New("the scripts end differently")
			}
		}
		return nil
	})
}

// seedOf returns the seed that a flag gives; for 0, a random one.
func seedOf(given *uint64) uint64 {
	if *given == 0 {
		return rand.Uint64()
	}
	return *given
}

func lines(state map[string]int) string {
	var all []string
	for line, n := range state {
		all = append(all, fmt.Sprintf("  %d of %s", n, line))
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// script plays random requests of one client. Their end does not depend on how fast the controllers are: a name is used
// once, an object has one owner, which has not been deleted before, and Deployments are not deleted with Orphan.
type script struct {
	resetClients

	random        *rand.Rand
	names         int                // used so far
	deleted       map[types.UID]bool // by the script
	owned         map[types.UID]bool // by another object, perhaps no longer
	hasOrphans    bool               // an object in the namespace shop was deleted with Orphan
	isShopDeleted bool
}

func newScript(c resetClients, seed, stream uint64) *script {
	return &script{resetClients: c, random: rand.New(rand.NewPCG(seed, stream)), deleted: map[types.UID]bool{}, owned: map[types.UID]bool{}}
}

var (
	namespacesResource  = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMapsResource  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")
	replicaSetsResource = appsv1.SchemeGroupVersion.WithResource("replicasets")
	podsResource        = corev1.SchemeGroupVersion.WithResource("pods")
	definitionsResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// play plays 30 requests. Requests that are refused belong to the script.
func (h *script) play(ctx context.Context) {
	if h.random.IntN(3) == 0 {
		h.define(ctx)
	}
	h.create(ctx, namespacesResource, "", object("v1", "Namespace", "shop"))
	for range 40 {
		switch space := []string{"default", "shop"}[h.random.IntN(2)]; h.random.IntN(8) {
		case 0, 1, 2:
			h.create(ctx, configMapsResource, space, h.tie(ctx, space, object("v1", "ConfigMap", h.name())))
		case 3:
			h.create(ctx, gizmos, space, h.tie(ctx, space, object("example.com/v1", "Gizmo", h.name())))
		case 4:
			h.create(ctx, deploymentsResource, space, h.deployment())
		case 5:
			h.remove(ctx, configMapsResource, space, h.former(), "Background", "Foreground", "Orphan")
		case 6:
			h.remove(ctx, deploymentsResource, space, h.former(), "Background", "Foreground")
		case 7:
			if h.random.IntN(8) == 0 {
				h.removeShop(ctx)
			} else {
				h.remove(ctx, gizmos, space, h.former(), "Background", "Foreground", "Orphan")
			}
		}
	}
}

// name returns a new name, and former one of those before.
func (h *script) name() string {
	h.names++
	return fmt.Sprintf("o-%d", h.names)
}

func (h *script) former() string { return fmt.Sprintf("o-%d", 1+h.random.IntN(max(1, h.names))) }

func object(version, kind, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}}}
}

func (h *script) deployment() *unstructured.Unstructured {
	d := object("apps/v1", "Deployment", h.name())
	labels := map[string]any{"app": d.GetName()}
	d.Object["spec"] = map[string]any{
		"replicas": int64(h.random.IntN(3)), "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
		},
	}
	return d
}

// tie gives an object a finalizer, an owner, both or neither.
func (h *script) tie(ctx context.Context, space string, o *unstructured.Unstructured) *unstructured.Unstructured {
	if h.random.IntN(4) == 0 {
		o.SetFinalizers([]string{"example.com/hold"})
	}
	if name := h.former(); h.random.IntN(2) == 0 {
		owner, err := h.dynamic.Resource(configMapsResource).Namespace(space).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !h.deleted[owner.GetUID()] && !h.owned[owner.GetUID()] {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: owner.GetUID(), BlockOwnerDeletion: new(true)}})
		}
	}
	return o
}

func (h *script) create(ctx context.Context, resource schema.GroupVersionResource, space string, o *unstructured.Unstructured) {
	created, err := h.dynamic.Resource(resource).Namespace(space).Create(ctx, o, metav1.CreateOptions{})
	if err == nil && len(o.GetOwnerReferences()) > 0 {
		h.owned[created.GetUID()] = true
	}
}

// remove deletes an object with one of some policies, unless its owner may delete it at any time.
func (h *script) remove(ctx context.Context, resource schema.GroupVersionResource, space, name string, policies ...metav1.DeletionPropagation) {
	policy := policies[h.random.IntN(len(policies))]
	of := h.dynamic.Resource(resource).Namespace(space)
	o, err := of.Get(ctx, name, metav1.GetOptions{})
	if err != nil || h.owned[o.GetUID()] || h.deleted[o.GetUID()] {
		return
	}
	if space == "shop" && policy == metav1.DeletePropagationOrphan {
		if h.isShopDeleted {
			return
		}
		h.hasOrphans = true
	}
	h.deleted[o.GetUID()] = true
	_ = of.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// removeShop deletes the namespace shop, unless an object in it was deleted with Orphan: its content is deleted with
// Background, and whether the collector has removed the references by then depends on who is faster.
func (h *script) removeShop(ctx context.Context) {
	if h.hasOrphans {
		return
	}
	h.isShopDeleted = true
	h.remove(ctx, namespacesResource, "", "shop", "Background")
}

// state describes the objects, and counts those that differ only in generated names.
func (h *script) state(ctx context.Context) map[string]int {
	state := map[string]int{}
	for _, resource := range []schema.GroupVersionResource{namespacesResource, configMapsResource, gizmos, deploymentsResource, replicaSetsResource, podsResource, definitionsResource} {
		list, err := h.dynamic.Resource(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			state[resource.Resource+": "+string(metav1.StatusReasonNotFound)]++
			continue
		}
		for i := range list.Items {
			o := &list.Items[i]
			name := o.GetName()
			if prefix := o.GetGenerateName(); prefix != "" {
				name = prefix
			}
			phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
			var owners []string
			for _, r := range o.GetOwnerReferences() {
				owners = append(owners, r.Kind+" "+r.Name)
			}
			state[fmt.Sprintf("%s %s/%s %s deleted=%t %v of %v", resource.Resource, o.GetNamespace(), name, phase, o.GetDeletionTimestamp() != nil, o.GetFinalizers(), owners)]++
		}
	}
	return state
}

// A Deployment that is written while a reset deletes it is missed at first, and its namespace is not: the reset does not
// wait until its controller has come to rest beside that.
func TestResetWhileADeploymentIsWritten(t *testing.T) {
	o := ephemeral(t)
	o.Workloads, o.Scheduler = InProcess, true
	o.Nodes.Nodes = 1
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		c, err := newResetClients(t, p)
		if err != nil {
			return err
		}
		for range 2 {
			s := newScript(c, 1, 1)
			s.create(ctx, namespacesResource, "", object("v1", "Namespace", "shop"))
			d := s.deployment()
			if err := unstructured.SetNestedField(d.Object, int64(2), "spec", "replicas"); err != nil {
				return err
			}
			s.create(ctx, deploymentsResource, "shop", d)
			var writing sync.WaitGroup
			writing.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, n)
					_, err := c.dynamic.Resource(deploymentsResource).Namespace("shop").Patch(ctx, d.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
					if apierrors.IsNotFound(err) {
						return
					}
				}
			})
			c.reset(ctx)
			writing.Wait()
		}
		return nil
	})
}
