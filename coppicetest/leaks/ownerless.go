package leaks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// controlPlane are the field managers of what every server makes by itself.
func controlPlane() []string {
	return []string{"kube-controller-manager", "kube-apiserver", "kube-scheduler", "kubelet", "coppice", "coppicetest", "clusterrole-aggregation-controller"}
}

// ignoredKinds are the kinds of objects that have no owner on purpose: they end by themselves, or
// belong to a process.
func ignoredKinds() []Kind {
	return []Kind{
		{"", "Event"},
		{"events.k8s.io", "Event"},
		{"coordination.k8s.io", "Lease"},
		{"", "Node"},
		{"", "Namespace"},
		{"apiextensions.k8s.io", "CustomResourceDefinition"},
		{"apiregistration.k8s.io", "APIService"},
	}
}

// ownerless reports whether an object without an owner should have one. Whoever creates objects
// and gives them owners is taken to be an operator. What an operator makes is meant to have an
// owner, unless it is of a kind that owns others. Tests often run the operator in their own
// process, and then both are the same field manager; so if the manager creates roots too, there
// has to be more: the same manager gives owners to other objects of the kind.
func (k *knowledge) ownerless(o Object) (Leak, bool) {
	if slices.Contains(ignoredKinds(), o.Kind) || k.rootKinds[o.Kind] || len(k.dependents[o.UID]) > 0 {
		return Leak{}, false
	}
	for _, manager := range o.Creators {
		if !k.makesOwned[manager] || slices.Contains(controlPlane(), manager) || slices.Contains(k.Ignored, manager) {
			continue
		}
		root, says := k.rootOf(o)
		switch {
		case says != "" && k.cleansUp(root):
			return Leak{}, false // by a finalizer, when the root is deleted
		case says != "":
			return Leak{LabelOnly, o, fmt.Sprintf("%s says that it belongs to %s, and no owner reference does", says, root)}, true
		case k.ownedKinds[made{o.Kind, manager}]:
			return Leak{Ownerless, o, fmt.Sprintf("it has no owner, and other objects of its kind that %s has made have one", manager)}, true
		case !k.makesRoots[manager]:
			return Leak{Ownerless, o, fmt.Sprintf("it has no owner, and all else that %s has made has one", manager)}, true
		}
	}
	return Leak{}, false
}

// cleansUp reports whether a root exists that has a finalizer: its controller deletes by itself
// what it cannot own.
func (k *knowledge) cleansUp(root Object) bool {
	now, exists := k.objects[root.UID]
	return exists && len(now.Finalizers) > 0
}

// rootOf returns the root that an object names, and what names it.
func (k *knowledge) rootOf(o Object) (root Object, says string) {
	for _, root := range k.roots {
		for _, key := range slices.Sorted(maps.Keys(o.Labels)) {
			if value := o.Labels[key]; value == root.Name || value == root.UID || root.Namespace != "" && value == root.Namespace+"."+root.Name {
				return root, "label " + key
			}
		}
		for _, key := range slices.Sorted(maps.Keys(o.Annotations)) {
			if value := o.Annotations[key]; value == root.Name || value == root.UID || root.Namespace != "" && value == root.Namespace+"/"+root.Name {
				return root, "annotation " + key
			}
		}
		if o.Namespace == root.Namespace && strings.HasPrefix(o.Name, root.Name+"-") {
			return root, "its name"
		}
	}
	return Object{}, ""
}
