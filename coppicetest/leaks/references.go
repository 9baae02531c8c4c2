package leaks

import "fmt"

// knowledge is a State with indexes.
type knowledge struct {
	State

	objects    map[string]Object   // by UID
	named      map[place]string    // the UIDs of objects that exist or existed
	dependents map[string][]string // the UIDs of the dependents of a UID
	roots      []Object            // owners without an owner that exist or existed
	rootKinds  map[Kind]bool
	ownedKinds map[made]bool   // the managers that created owned objects, by kind
	makesOwned map[string]bool // the managers that created owned objects
	makesRoots map[string]bool // the managers that created objects of a kind that owns others
}

// made pairs a kind with a field manager that has created objects of it.
type made struct {
	kind    Kind
	manager string
}

// place identifies an object by kind, namespace and name.
type place struct {
	kind            Kind
	namespace, name string
}

func index(s State) *knowledge {
	k := &knowledge{
		State: s, objects: map[string]Object{}, named: map[place]string{}, dependents: map[string][]string{}, rootKinds: map[Kind]bool{},
		ownedKinds: map[made]bool{}, makesOwned: map[string]bool{}, makesRoots: map[string]bool{},
	}
	for _, o := range s.Gone {
		k.named[place{o.Kind, o.Namespace, o.Name}] = o.UID
	}
	for _, o := range s.Objects {
		k.objects[o.UID] = o
		for _, kind := range append([]Kind{o.Kind}, o.Aliases...) {
			k.named[place{kind, o.Namespace, o.Name}] = o.UID
		}
		for _, owner := range o.Owners {
			k.dependents[owner.UID] = append(k.dependents[owner.UID], o.UID)
		}
	}
	k.indexRoots()
	k.indexMakers()
	return k
}

// indexRoots finds the owners that have no owner.
func (k *knowledge) indexRoots() {
	owners := map[string]bool{}
	note := func(o Object) {
		for _, owner := range o.Owners {
			owners[owner.UID] = true
			k.rootKinds[owner.Kind] = true
		}
	}
	for _, o := range k.Objects {
		note(o)
	}
	for _, c := range k.Collected {
		note(c.Object)
	}
	for _, o := range k.Gone {
		note(o)
	}
	for _, o := range append(append([]Object{}, k.Objects...), k.Gone...) {
		if owners[o.UID] && len(o.Owners) == 0 {
			k.roots = append(k.roots, o)
		}
	}
}

// indexMakers records which field managers created which objects.
func (k *knowledge) indexMakers() {
	note := func(o Object) {
		for _, manager := range o.Creators {
			switch {
			case len(o.Owners) > 0:
				k.ownedKinds[made{o.Kind, manager}] = true
				k.makesOwned[manager] = true
			case k.rootKinds[o.Kind]:
				k.makesRoots[manager] = true
			}
		}
	}
	for _, o := range k.Objects {
		note(o)
	}
	for _, c := range k.Collected {
		note(c.Object)
	}
	for _, o := range k.Gone {
		note(o)
	}
}

// reference checks an owner reference of an object. It returns the rule that the reference breaks
// and why; rule is empty if the reference is right.
func (k *knowledge) reference(o Object, owner Owner) (rule Rule, why string) {
	namespaced, served := k.Kinds[owner.Kind]
	is, exists := k.objects[owner.UID]
	switch {
	case !served:
		return UnknownKind, fmt.Sprintf("its owner %s %s is of a kind that is not served", owner.Kind, owner.Name)
	case o.Namespace == "" && namespaced:
		return OutOfScope, fmt.Sprintf("it lives in no namespace, and its owner %s %s does: a collector cannot know in which", owner.Kind, owner.Name)
	case exists && (!is.goesBy(owner.Kind) || is.Name != owner.Name):
		return WrongCoordinates, fmt.Sprintf("it says that its owner is %s %s, and the object with that UID is %s", owner.Kind, owner.Name, is)
	case exists && is.Namespace != "" && is.Namespace != o.Namespace:
		return WrongNamespace, fmt.Sprintf("its owner %s is in another namespace, where no collector looks for it", is)
	case exists:
		return "", ""
	}
	if uid, ok := k.named[k.placeOf(o, owner)]; ok && uid != owner.UID {
		return WrongUID, fmt.Sprintf("the UID of %s %s is %s, and not %s", owner.Kind, owner.Name, uid, owner.UID)
	}
	return Dangling, fmt.Sprintf("its owner %s %s (%s) does not exist", owner.Kind, owner.Name, owner.UID)
}

// placeOf returns the place where a collector looks for the owner of an object.
func (k *knowledge) placeOf(o Object, owner Owner) place {
	at := place{kind: owner.Kind, name: owner.Name}
	if k.Kinds[owner.Kind] {
		at.namespace = o.Namespace
	}
	return at
}

// mistaken reports whether an object was collected because of a reference that was always wrong: an
// owner with that UID never existed, but one exists elsewhere or has the name.
func (k *knowledge) mistaken(o Object) (Leak, bool) {
	for _, owner := range o.Owners {
		if k.wasThere(owner.UID) {
			continue
		}
		rule, why := k.reference(o, owner)
		if rule == WrongUID || rule == WrongNamespace || rule == WrongCoordinates {
			return Leak{Mistaken, o, "it was collected: " + why}, true
		}
	}
	return Leak{}, false
}

// wasThere reports whether an owner is known to have existed and to be gone.
func (k *knowledge) wasThere(uid string) bool {
	if _, exists := k.objects[uid]; exists {
		return false
	}
	for _, o := range k.Gone {
		if o.UID == uid {
			return true
		}
	}
	return k.Before[uid]
}

// onlyOwnsItself reports whether no chain of owners leads from an object to a root.
func (k *knowledge) onlyOwnsItself(o Object) bool {
	seen := map[string]bool{}
	next := []string{o.UID}
	for len(next) > 0 {
		uid := next[0]
		next = next[1:]
		if seen[uid] {
			continue
		}
		seen[uid] = true
		at := k.objects[uid]
		if len(at.Owners) == 0 {
			return false // a root
		}
		for _, owner := range at.Owners {
			next = append(next, owner.UID)
		}
	}
	return true
}
