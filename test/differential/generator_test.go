package differential

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	orphan     = metav1.FinalizerOrphanDependents
	foreground = metav1.FinalizerDeleteDependents
)

// kind is a kind of objects in the requests.
type kind struct {
	path       string // of the group version
	apiVersion string
	kind       string
	resource   string
	namespaced bool
	content    map[string]any
}

func podTemplate() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "a"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "a", "image": "a"}}},
	}
}

// kindsUnderTest differ in how they are deleted: at once, gracefully, orphaning by
// default, held by a list of their own, by a registry of apiextensions-apiserver.
func kindsUnderTest() []kind {
	bound := map[string]any{"spec": map[string]any{"nodeName": "node-1", "containers": []any{map[string]any{"name": "a", "image": "a"}}}}
	unbound := map[string]any{"spec": map[string]any{"terminationGracePeriodSeconds": 5, "containers": []any{map[string]any{"name": "a", "image": "a"}}}}
	once := podTemplate()
	once["spec"].(map[string]any)["restartPolicy"] = "Never"
	workload := map[string]any{"spec": map[string]any{"replicas": 0, "selector": map[string]any{"matchLabels": map[string]any{"app": "a"}}, "template": podTemplate()}}
	return []kind{
		{"/api/v1", "v1", "ConfigMap", "configmaps", true, map[string]any{"data": map[string]any{"a": "b"}}},
		{"/api/v1", "v1", "Pod", "pods", true, bound},
		{"/api/v1", "v1", "Pod", "pods", true, unbound},
		{"/api/v1", "v1", "ReplicationController", "replicationcontrollers", true, map[string]any{"spec": map[string]any{"replicas": 0, "selector": map[string]any{"app": "a"}, "template": podTemplate()}}},
		{"/apis/batch/v1", "batch/v1", "Job", "jobs", true, map[string]any{"spec": map[string]any{"template": once}}},
		{"/apis/apps/v1", "apps/v1", "ReplicaSet", "replicasets", true, workload},
		{"/apis/apps/v1", "apps/v1", "Deployment", "deployments", true, workload},
		{"/apis/" + widgetGroup + "/v1", widgetGroup + "/v1", "Widget", "widgets", true, map[string]any{"spec": map[string]any{"size": 1}}},
		{"/api/v1", "v1", "Namespace", "namespaces", false, nil},
	}
}

// request is one request in terms that mean the same on every server: versions and uids are
// "current" (the stored object's), "former", or "wrong".
type request struct {
	verb  string
	kind  kind
	place string // the namespace; of a namespace, what its name begins with
	name  string

	object    map[string]any        // to create, or to patch with
	patchType string                // of a patch
	options   *metav1.DeleteOptions // nil: none are sent
	query     bool                  // the options are in the query
	uid       string                // the precondition, in words
	version   string                // the precondition, or that of the object to put, in words
	selector  string                // of a collection
}

// String returns the request in words.
func (r request) String() string {
	text := fmt.Sprintf("%s %s %s", r.verb, r.kind.resource, r.name)
	if r.object != nil {
		data, _ := json.Marshal(r.object)
		text += " " + string(data)
	}
	if r.options != nil {
		data, _ := json.Marshal(r.options)
		text += fmt.Sprintf(" options %s in the query: %t", data, r.query)
	}
	for word, value := range map[string]string{"uid": r.uid, "version": r.version, "selector": r.selector} {
		if value != "" {
			text += " " + word + " " + value
		}
	}
	return text
}

// collection returns the path of all objects of the kind.
func (r request) collection() string {
	if !r.kind.namespaced {
		return r.kind.path + "/" + r.kind.resource
	}
	return r.kind.path + "/namespaces/" + r.place + "/" + r.kind.resource
}

// generator generates the requests of one sequence, which concern few objects.
type generator struct {
	random *rand.Rand
	place  string
	kind   kind
}

func newGenerator(random *rand.Rand, place string) *generator {
	kinds := kindsUnderTest()
	return &generator{random: random, place: place, kind: kinds[random.IntN(len(kinds))]}
}

func pick[T any](g *generator, from ...T) T { return from[g.random.IntN(len(from))] }

func (g *generator) chance(percent int) bool { return g.random.IntN(100) < percent }

func (g *generator) name() string {
	name := pick(g, "a", "b")
	if !g.kind.namespaced {
		return g.place + "-" + name
	}
	return name
}

// finalizers returns some finalizers, in some order, seldom both of the collector's.
func (g *generator) finalizers() []any {
	all := []any{"example.com/one", "example.com/two", pick(g, orphan, foreground)}
	if g.chance(5) {
		all = append(all, orphan, foreground)
	}
	g.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:g.random.IntN(len(all)+1)]
}

// next returns the next request.
func (g *generator) next() request {
	r := request{kind: g.kind, place: g.place, name: g.name()}
	switch n := g.random.IntN(100); {
	case n < 30:
		r.verb = "create"
		r.object = maps.Clone(g.kind.content)
		if r.object == nil {
			r.object = map[string]any{}
		}
		m := map[string]any{"name": r.name, "labels": map[string]any{"set": pick(g, "x", "y")}}
		if finalizers := g.finalizers(); g.chance(50) {
			m["finalizers"] = finalizers
		}
		r.object["apiVersion"], r.object["kind"], r.object["metadata"] = g.kind.apiVersion, g.kind.kind, m
	case n < 60:
		r.verb = "delete"
		g.deleteOptions(&r)
		r.uid, r.version = pick(g, "", "", "", "current", "former", "wrong"), pick(g, "", "", "", "", "current", "wrong")
	case n < 78:
		r.verb, r.patchType = "patch", "application/merge-patch+json"
		r.object = map[string]any{"metadata": map[string]any{"finalizers": g.finalizers()}}
		if g.chance(35) {
			r.object = map[string]any{"metadata": map[string]any{"finalizers": []any{}}}
		}
		r.version = pick(g, "", "", "current", "wrong")
	case n < 86:
		r.verb, r.patchType = "patch", "application/merge-patch+json"
		r.object = map[string]any{"metadata": map[string]any{"labels": map[string]any{"set": pick[any](g, "x", "y", nil)}}}
		r.uid = pick(g, "", "", "current", "former")
	case n < 92:
		r.verb, r.version = "put", pick(g, "current", "current", "wrong", "none")
		r.object = map[string]any{"finalizers": g.finalizers()}
	case n < 97 && g.kind.namespaced:
		r.verb, r.name, r.selector = "deletecollection", "", pick(g, "", "set=x", "set in (x,y)", "set=none")
		g.deleteOptions(&r)
	case n < 97:
		r.verb = "finalize"
		r.object = map[string]any{"finalizers": pick(g, []any{}, []any{"kubernetes"}, []any{"example.com/token"})}
	default:
		r.verb = "get"
	}
	return r
}

// deleteOptions adds options to a DELETE, or none.
func (g *generator) deleteOptions(r *request) {
	if g.chance(15) {
		return
	}
	o := &metav1.DeleteOptions{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}}
	switch n := g.random.IntN(100); {
	case n < 45:
		policy := pick(g, metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan)
		o.PropagationPolicy = &policy
	case n < 65:
		o.OrphanDependents = new(g.chance(50))
	case n < 70:
		policy := pick(g, metav1.DeletePropagationBackground, metav1.DeletionPropagation("Sideways"))
		o.PropagationPolicy, o.OrphanDependents = &policy, new(true)
	}
	if g.chance(40) {
		o.GracePeriodSeconds = new(pick(g, int64(0), 0, 1, 30, 3600, -1))
	}
	if g.chance(8) {
		o.DryRun = []string{pick(g, metav1.DryRunAll, metav1.DryRunAll, metav1.DryRunAll, "Sometimes")}
	}
	r.options = o
	// Preconditions cannot be given in a query.
	r.query = g.chance(25)
}
