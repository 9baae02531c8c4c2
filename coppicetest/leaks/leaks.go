// Package leaks finds, in the state of an idle server, objects that will never be collected and
// objects that were collected by mistake. It is pure: a State in, leaks out.
//
// Some leaks are certain: references that no collector can follow (references.go), and terminating
// objects that stay (Find). Others are likely: objects without an owner whose creator usually sets
// one (ownerless.go). The likely ones are inferred from field managers. Objects from before the test
// and objects of the server itself are left out.
package leaks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Kind is a group and a kind.
type Kind struct{ Group, Kind string }

// String returns the kind as Kubernetes users write it: "ReplicaSet.apps", "Pod".
func (k Kind) String() string {
	if k.Group == "" {
		return k.Kind
	}
	return k.Kind + "." + k.Group
}

// Owner is an owner reference.
type Owner struct {
	Kind      Kind
	Name, UID string
}

// Object is the metadata of an object.
type Object struct {
	Kind                 Kind
	Aliases              []Kind // other kinds that the server serves it as
	Namespace, Name, UID string
	Owners               []Owner
	Finalizers           []string
	Deleting             bool
	// Creators are the field managers of the oldest fields: one of them created the object.
	Creators    []string
	Labels      map[string]string
	Annotations map[string]string
}

// String returns, for example, "ReplicaSet.apps shop/web".
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind.String() + " " + o.Name
	}
	return o.Kind.String() + " " + o.Namespace + "/" + o.Name
}

// goesBy reports whether the server serves the object as a kind.
func (o Object) goesBy(kind Kind) bool { return o.Kind == kind || slices.Contains(o.Aliases, kind) }

// Collected is an object that the collector has deleted, with its owner references.
type Collected struct {
	Object Object
	Time   time.Time
}

// State holds the known objects and kinds of an idle server.
type State struct {
	// Objects are all objects.
	Objects []Object
	// Kinds are the served kinds; namespaced kinds map to true.
	Kinds map[Kind]bool
	// Before are the UIDs of the objects that existed before the test. They are not reported.
	Before map[string]bool
	// Collected are the objects that the collector has deleted since.
	Collected []Collected
	// Gone are the known objects that existed during the test and no longer exist. Their names tell
	// which object a label refers to.
	Gone []Object
	// Ignored are field managers whose objects are not reported. The control plane's managers are
	// always ignored.
	Ignored []string
}

// Rule names the problem of an object.
type Rule string

// The rules.
const (
	WrongUID         Rule = "wrong-uid"         // the owner was replaced, or never had this UID
	WrongNamespace   Rule = "wrong-namespace"   // the owner is in another namespace
	WrongCoordinates Rule = "wrong-coordinates" // the owner has another kind or name
	UnknownKind      Rule = "unknown-kind"      // the kind of the owner is not served
	OutOfScope       Rule = "out-of-scope"      // it is cluster-scoped, and the owner is not
	Dangling         Rule = "dangling"          // the owner does not exist
	Cycle            Rule = "cycle"             // it owns itself, directly or through others
	Mistaken         Rule = "mistaken"          // it was collected, because its reference was wrong
	Ownerless        Rule = "ownerless"         // it has no owner, unlike other objects of its creator
	LabelOnly        Rule = "label-only"        // only a label, an annotation or its name refers to an owner
	Stuck            Rule = "stuck"             // it is terminating and stays
)

// Leak is an object that the test left behind.
type Leak struct {
	Rule   Rule
	Object Object
	Why    string
}

// String returns, for example, "ConfigMap shop/web: dangling: …".
func (l Leak) String() string { return fmt.Sprintf("%s: %s: %s", l.Object, l.Rule, l.Why) }

// Find returns the leaks, by object. It reports each object once.
func Find(s State) []Leak {
	known := index(s)
	var all []Leak
	for _, o := range s.Objects {
		if s.Before[o.UID] {
			continue
		}
		if leak, ok := known.judge(o); ok {
			all = append(all, leak)
		}
	}
	for _, c := range s.Collected {
		if leak, ok := known.mistaken(c.Object); ok {
			all = append(all, leak)
		}
	}
	slices.SortFunc(all, func(a, b Leak) int {
		return cmp.Or(strings.Compare(a.Object.String(), b.Object.String()), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Object.UID, b.Object.UID))
	})
	return all
}

// judge returns the leak of an existing object, if it is one.
func (k *knowledge) judge(o Object) (Leak, bool) {
	if o.Deleting {
		return Leak{Stuck, o, k.holds(o)}, true
	}
	for _, owner := range o.Owners {
		if rule, why := k.reference(o, owner); rule != "" {
			return Leak{rule, o, why}, true
		}
	}
	if len(o.Owners) > 0 {
		if k.onlyOwnsItself(o) {
			return Leak{Cycle, o, "all of its owners are owned by itself in the end, so none of them is ever garbage"}, true
		}
		return Leak{}, false
	}
	return k.ownerless(o)
}

// holds returns the reason why a terminating object still exists.
func (k *knowledge) holds(o Object) string {
	switch {
	case slices.Contains(o.Finalizers, "foregroundDeletion"):
		var blocking []string
		for _, uid := range k.dependents[o.UID] {
			blocking = append(blocking, k.objects[uid].String())
		}
		return "its foreground deletion waits for " + orNothing(blocking)
	case len(o.Finalizers) > 0:
		return "no controller has removed the finalizers " + strings.Join(o.Finalizers, ", ")
	case o.Kind == Kind{Kind: "Namespace"}:
		var left []string
		for _, other := range k.objects {
			if other.Namespace == o.Name {
				left = append(left, other.String())
			}
		}
		slices.Sort(left)
		return "it waits for " + orNothing(left)
	case o.Kind == Kind{Kind: "Pod"}:
		return "its grace period has not ended, or there is no node to end it"
	}
	return "its grace period has not ended"
}

func orNothing(names []string) string {
	if len(names) == 0 {
		return "nothing that is known"
	}
	return strings.Join(names, ", ")
}
