package leaks_test

import (
	"slices"
	"testing"

	"github.com/coppice-dev/coppice/coppicetest/leaks"
)

// The kinds of these tests.
var (
	widget    = leaks.Kind{Group: "example.com", Kind: "Widget"}
	cluster   = leaks.Kind{Group: "example.com", Kind: "ClusterWidget"}
	configMap = leaks.Kind{Kind: "ConfigMap"}
	secret    = leaks.Kind{Kind: "Secret"}
	pod       = leaks.Kind{Kind: "Pod"}
	namespace = leaks.Kind{Kind: "Namespace"}
	role      = leaks.Kind{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}
	lease     = leaks.Kind{Group: "coordination.k8s.io", Kind: "Lease"}
)

func kinds() map[leaks.Kind]bool {
	return map[leaks.Kind]bool{widget: true, cluster: false, configMap: true, secret: true, pod: true, namespace: false, role: false, lease: true}
}

// change changes an object.
type change func(*leaks.Object)

// object returns an object in namespace shop, which is the operator's; its UID is its name.
func object(kind leaks.Kind, name string, changes ...change) leaks.Object {
	o := leaks.Object{Kind: kind, Name: name, UID: name, Creators: []string{"operator"}}
	if kinds()[kind] {
		o.Namespace = "shop"
	}
	for _, c := range changes {
		c(&o)
	}
	return o
}

func ownedBy(kind leaks.Kind, name, uid string) change {
	return func(o *leaks.Object) {
		o.Owners = append(o.Owners, leaks.Owner{Kind: kind, Name: name, UID: uid})
	}
}

func in(namespace string) change { return func(o *leaks.Object) { o.Namespace = namespace } }
func by(manager string) change   { return func(o *leaks.Object) { o.Creators = []string{manager} } }
func label(key, v string) change {
	return func(o *leaks.Object) { o.Labels = map[string]string{key: v} }
}

func note(key, v string) change {
	return func(o *leaks.Object) { o.Annotations = map[string]string{key: v} }
}

func held(finalizer string) change {
	return func(o *leaks.Object) { o.Finalizers = []string{finalizer} }
}
func deleting(o *leaks.Object) { o.Deleting = true }

// root is made by the test, and child is a dependent of it that is as it should be.
func root(changes ...change) leaks.Object {
	return object(widget, "w", append([]change{by("test")}, changes...)...)
}

func child(name string) leaks.Object { return object(configMap, name, ownedBy(widget, "w", "w")) }

// TestPlantedLeaksAreFound plants leaks, one in each state: exactly this leak is found, under its rule.
func TestPlantedLeaksAreFound(t *testing.T) {
	for _, test := range []struct {
		name    string
		planted leaks.Object // found among the objects, unless it was collected
		rule    leaks.Rule
		others  []leaks.Object
		gone    []leaks.Object
		mistake bool // planted was collected
	}{
		{"the owner was replaced", object(secret, "s", ownedBy(widget, "w", "before")), leaks.WrongUID, []leaks.Object{root()}, nil, false},
		{"UID of another replica", object(secret, "s", ownedBy(configMap, "c", "w")), leaks.WrongCoordinates, []leaks.Object{root(), child("c")}, nil, false},
		{"collected for a wrong UID", object(secret, "s", ownedBy(widget, "w", "never")), leaks.Mistaken, []leaks.Object{root()}, nil, true},
		{"collected for a wrong UID, and what was meant is gone too", object(secret, "s", ownedBy(widget, "w", "never")), leaks.Mistaken, nil, []leaks.Object{root()}, true},
		{"owner in another namespace", object(secret, "s", in("other"), ownedBy(widget, "w", "w")), leaks.WrongNamespace, []leaks.Object{root()}, nil, false},
		{"collected for an owner elsewhere", object(secret, "s", in("other"), ownedBy(widget, "w", "w")), leaks.Mistaken, []leaks.Object{root()}, nil, true},
		{"wrong kind", object(secret, "s", ownedBy(secret, "w", "w")), leaks.WrongCoordinates, []leaks.Object{root()}, nil, false},
		{"wrong group", object(secret, "s", ownedBy(leaks.Kind{Group: "example.org", Kind: "Widget"}, "w", "w")), leaks.UnknownKind, []leaks.Object{root()}, nil, false},
		{"wrong name", object(secret, "s", ownedBy(widget, "v", "w")), leaks.WrongCoordinates, []leaks.Object{root()}, nil, false},
		{"kind not served", object(secret, "s", ownedBy(leaks.Kind{Group: "example.com", Kind: "Gadget"}, "g", "g")), leaks.UnknownKind, nil, nil, false},
		{"cluster-scoped with a namespaced owner", object(role, "r", ownedBy(widget, "w", "w")), leaks.OutOfScope, []leaks.Object{root()}, nil, false},
		{"one of two owners never existed", object(secret, "s", ownedBy(widget, "w", "w"), ownedBy(widget, "x", "x")), leaks.Dangling, []leaks.Object{root()}, nil, false},
		{"owns itself", object(secret, "s", ownedBy(secret, "s", "s")), leaks.Cycle, nil, nil, false},
		{"owner forgotten, by an operator", object(secret, "s"), leaks.Ownerless, []leaks.Object{root(), child("c")}, nil, false},
		{"owner forgotten, the root is gone", object(secret, "s"), leaks.Ownerless, nil, []leaks.Object{root(), child("c")}, false},
		{
			"owner forgotten once, the test is the operator", object(configMap, "d", by("test")), leaks.Ownerless,
			[]leaks.Object{root(), object(configMap, "c", by("test"), ownedBy(widget, "w", "w"))},
			nil, false,
		},
		{"only a label, the root is gone", object(secret, "s", label("app.example.com/widget", "w")), leaks.LabelOnly, nil, []leaks.Object{root(), child("c")}, false},
		{"only a label, the root is there", object(secret, "s", label("app", "w")), leaks.LabelOnly, []leaks.Object{root(), child("c")}, nil, false},
		{"in another namespace, with an annotation", object(secret, "s", in("other"), note("example.com/owner", "shop/w")), leaks.LabelOnly, []leaks.Object{root(), child("c")}, nil, false},
		{"cluster-scoped, the root had no finalizer", object(role, "r", label("widget", "w")), leaks.LabelOnly, nil, []leaks.Object{root(), child("c")}, false},
		{"only its name", object(secret, "w-token"), leaks.LabelOnly, []leaks.Object{root(), child("c")}, nil, false},
		{"a finalizer without a controller", root(deleting, held("example.com/cleanup")), leaks.Stuck, nil, nil, false},
		{"a pod without a node", object(pod, "p", deleting), leaks.Stuck, nil, nil, false},
		{"a namespace that something holds", object(namespace, "shop", deleting), leaks.Stuck, []leaks.Object{root()}, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			state := leaks.State{Kinds: kinds(), Objects: test.others, Gone: test.gone}
			if test.mistake {
				state.Collected = []leaks.Collected{{Object: test.planted}}
			} else {
				state.Objects = append(state.Objects, test.planted)
			}
			found := leaks.Find(state)
			if len(found) != 1 || found[0].Object.UID != test.planted.UID || found[0].Rule != test.rule || found[0].Why == "" {
				t.Errorf("found %v, want one leak of %s, %s", found, test.planted, test.rule)
			}
			state.Before = map[string]bool{test.planted.UID: true}
			if found := leaks.Find(state); !test.mistake && len(found) != 0 {
				t.Errorf("found what was there before: %v", found)
			}
		})
	}
}

// TestObjectsOfACycleAreFound finds each object of a cycle.
func TestObjectsOfACycleAreFound(t *testing.T) {
	found := leaks.Find(leaks.State{Kinds: kinds(), Objects: []leaks.Object{
		object(secret, "a", ownedBy(secret, "b", "b")), object(secret, "b", ownedBy(secret, "a", "a")), object(secret, "c", ownedBy(secret, "a", "a")),
	}})
	rules := []leaks.Rule{}
	for _, leak := range found {
		rules = append(rules, leak.Rule)
	}
	if !slices.Equal(rules, []leaks.Rule{leaks.Cycle, leaks.Cycle, leaks.Cycle}) {
		t.Errorf("found %v", found)
	}
}

// TestReasonWhyAnObjectIsStuck checks the reason why an object is stuck.
func TestReasonWhyAnObjectIsStuck(t *testing.T) {
	found := leaks.Find(leaks.State{Kinds: kinds(), Objects: []leaks.Object{
		root(deleting, held("foregroundDeletion")), object(configMap, "c", ownedBy(widget, "w", "w"), deleting, held("example.com/cleanup")),
	}})
	if len(found) != 2 || found[0].Why != "no controller has removed the finalizers example.com/cleanup" ||
		found[1].Why != "its foreground deletion waits for ConfigMap shop/c" {
		t.Errorf("found %v", found)
	}
}

// TestObjectsThatShouldStayAreNoLeaks shows what operators leave that is as it should be: nothing is found.
func TestObjectsThatShouldStayAreNoLeaks(t *testing.T) {
	for name, state := range map[string]leaks.State{
		"everything is gone": {Gone: []leaks.Object{root(), child("c")}, Collected: []leaks.Collected{{Object: child("c")}}},
		"a tree of three levels": {Objects: []leaks.Object{
			root(), child("c"), object(secret, "s", ownedBy(configMap, "c", "c")), object(pod, "p", ownedBy(secret, "s", "s")),
		}},
		"a root without dependents": {Objects: []leaks.Object{root(), child("c"), object(widget, "v", by("test"))}},
		"fixtures of the test, the test is the operator": {Objects: []leaks.Object{
			root(), object(configMap, "c", by("test"), ownedBy(widget, "w", "w")), object(secret, "input", by("test")), object(namespace, "other", by("test")),
		}},
		"fixtures of the test, the operator is another process": {Objects: []leaks.Object{root(), child("c"), object(configMap, "input", by("test"))}},
		"the operator's lease and its events": {Objects: []leaks.Object{
			root(), child("c"), object(lease, "operator-leader"), object(leaks.Kind{Kind: "Event"}, "w.17"),
		}},
		"cluster-scoped objects that a finalizer cleans up": {Objects: []leaks.Object{
			root(held("example.com/cleanup")), child("c"), object(role, "r", label("widget", "w")), object(secret, "s", in("other"), note("owner", "shop/w")),
		}},
		"what the control plane makes": {Objects: []leaks.Object{
			root(), child("c"), object(pod, "p", by("kube-controller-manager"), ownedBy(configMap, "c", "c")),
			object(configMap, "kube-root-ca.crt", by("kube-controller-manager")), object(configMap, "version", by("coppice")),
		}},
		"a cluster-scoped owner, and two owners": {Objects: []leaks.Object{
			root(), object(cluster, "cw", by("test")), object(secret, "s", ownedBy(cluster, "cw", "cw"), ownedBy(widget, "w", "w")),
		}},
		"owners under either of the kinds that they have": {Objects: []leaks.Object{
			root(func(o *leaks.Object) { o.Aliases = []leaks.Kind{cluster} }), child("c"), object(secret, "s", ownedBy(cluster, "w", "w")),
		}},
		"dependents of what was there before, collected": {
			Objects: []leaks.Object{object(widget, "w", func(o *leaks.Object) { o.UID = "again" }, by("test"))},
			Gone:    []leaks.Object{root()}, Collected: []leaks.Collected{{Object: child("c")}},
		},
		"what the test says to ignore": {Objects: []leaks.Object{root(), child("c"), object(secret, "cache")}, Ignored: []string{"operator"}},
	} {
		t.Run(name, func(t *testing.T) {
			state.Kinds = kinds()
			if found := leaks.Find(state); len(found) != 0 {
				t.Errorf("found %v", found)
			}
		})
	}
}
