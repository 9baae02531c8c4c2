package leaks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// controlPlane returns the field managers of objects that every server creates by itself.
func controlPlane() []string {
	return []string{"kube-controller-manager", "kube-apiserver", "kube-scheduler", "kubelet", "coppice", "coppicetest", "clusterrole-aggregation-controller"}
}

// ignoredKinds returns the kinds whose objects have no owner on purpose: they expire by themselves,
// or belong to a process.
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

// ownerless reports whether an object without an owner should have one. A field manager that
// creates objects with owners is taken to be an operator. All objects of an operator should have an
// owner, except objects of a kind that owns others. Tests often run the operator in their own
// process, with the same field manager. So if the manager also creates roots, an object is only
// reported if the manager sets owners on other objects of the kind.
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
			return Leak{}, false // the controller's finalizer cleans up when the root is deleted
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

// cleansUp reports whether a root exists and has a finalizer: its controller deletes objects that
// the root cannot own.
func (k *knowledge) cleansUp(root Object) bool {
	now, exists := k.objects[root.UID]
	return exists && len(now.Finalizers) > 0
}

// rootOf returns the root that an object refers to, and the label, annotation or name that refers
// to it.
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
