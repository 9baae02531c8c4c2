// Package census makes inventories with the shape of a large cluster, for benchmarks of the tools.
package census

import (
	"fmt"
	"math/rand/v2"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// The numbers of objects come from a published census of a cluster with 134 000 objects: many
// revisions of each Deployment, and more Jobs than CronJobs would keep. Objects that the census does
// not break down are ConfigMaps, Secrets and Services here.
const (
	Objects     = 134_000
	namespaces  = 300
	deployments = 19_924
	replicaSets = 43_033
	pods        = 29_455
	jobs        = 19_861
)

// generator makes the objects of an inventory.
type generator struct {
	*inventory.Inventory

	random *rand.Rand
}

// New returns the inventory of such a cluster, indexed. It is the same for the same seed. Namespaces
// differ in size: the first has about a tenth of all objects. Its name is "ns-0".
func New(seed uint64) *inventory.Inventory {
	g := &generator{
		Inventory: &inventory.Inventory{Namespaces: map[ownership.UID]*corev1.Namespace{}, Pods: map[ownership.UID]*inventory.Pod{}},
		random:    rand.New(rand.NewPCG(seed, seed)),
	}
	resource := func(gv schema.GroupVersion, plural, kind string) *inventory.Resource {
		r := &inventory.Resource{GroupVersionResource: gv.WithResource(plural), Kind: kind, Namespaced: kind != "Namespace", Deletable: true}
		g.Resources = append(g.Resources, r)
		return r
	}
	others := []*inventory.Resource{
		resource(corev1.SchemeGroupVersion, "configmaps", "ConfigMap"),
		resource(corev1.SchemeGroupVersion, "secrets", "Secret"),
		resource(corev1.SchemeGroupVersion, "services", "Service"),
	}
	ns := resource(corev1.SchemeGroupVersion, "namespaces", "Namespace")
	for n := range namespaces {
		o := g.add(ns, "", fmt.Sprintf("ns-%d", n), nil)
		g.Namespaces[o.UID] = &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}}
	}
	deploymentResource := resource(appsv1.SchemeGroupVersion, "deployments", "Deployment")
	var owners []*inventory.Object
	for n := range deployments {
		owners = append(owners, g.add(deploymentResource, g.namespace(), fmt.Sprintf("d-%d", n), nil))
	}
	replicaSetResource := resource(appsv1.SchemeGroupVersion, "replicasets", "ReplicaSet")
	var running []*inventory.Object
	for n := range replicaSets {
		owner := owners[n%deployments]
		rs := g.add(replicaSetResource, owner.Namespace, fmt.Sprintf("rs-%d", n), owner)
		if n < deployments {
			running = append(running, rs)
		}
	}
	jobResource := resource(batchv1.SchemeGroupVersion, "jobs", "Job")
	for n := range jobs {
		running = append(running, g.add(jobResource, g.namespace(), fmt.Sprintf("j-%d", n), nil))
	}
	podResource := resource(corev1.SchemeGroupVersion, "pods", "Pod")
	for n := range pods {
		owner := running[g.random.IntN(len(running))]
		o := g.add(podResource, owner.Namespace, fmt.Sprintf("p-%d", n), owner)
		g.Pods[o.UID] = &inventory.Pod{Node: fmt.Sprintf("node-%d", n%500)}
	}
	for n := len(g.Objects); n < Objects; n++ {
		g.add(others[n%len(others)], g.namespace(), fmt.Sprintf("o-%d", n), nil)
	}
	g.Index()
	return g.Inventory
}

// namespace returns the namespace of an object.
func (g *generator) namespace() string {
	if g.random.IntN(10) == 0 {
		return "ns-0"
	}
	return fmt.Sprintf("ns-%d", g.random.IntN(namespaces))
}

// add adds an object. If owner is not nil, the object has a blocking controller reference to it.
func (g *generator) add(r *inventory.Resource, namespace, name string, owner *inventory.Object) *inventory.Object {
	o := &inventory.Object{Resource: r}
	o.UID = ownership.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", len(g.Objects)))
	o.Kind, o.Namespace, o.Name, o.ResourceVersion = r.OwnerKind(), namespace, name, fmt.Sprint(len(g.Objects)+1)
	if owner != nil {
		o.Owners = []ownership.Reference{{
			APIVersion: owner.Resource.GroupVersion().String(), Kind: owner.Kind.Kind, Name: owner.Name, UID: owner.UID,
			Controller: ownership.True, BlockOwnerDeletion: ownership.True,
		}}
	}
	g.Objects = append(g.Objects, o)
	return o
}
