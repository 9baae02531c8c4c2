package explain

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// index finds the objects that others wait for, so that the explanation of one object does not look at all others.
// Each map is made when it is first needed.
type index struct {
	byNamespace map[string][]*inventory.Object
	byResource  map[schema.GroupResource][]*inventory.Object
	byClaim     map[types.NamespacedName][]*inventory.Object
	before      map[string]int
}

// inNamespace returns the objects in a namespace.
func (e *Explainer) inNamespace(name string) []*inventory.Object {
	if e.index.byNamespace == nil {
		e.index.byNamespace = map[string][]*inventory.Object{}
		for _, o := range e.Inventory.Objects {
			e.index.byNamespace[o.Namespace] = append(e.index.byNamespace[o.Namespace], o)
		}
	}
	return e.index.byNamespace[name]
}

// ofResource returns the objects of a resource.
func (e *Explainer) ofResource(r schema.GroupResource) []*inventory.Object {
	if e.index.byResource == nil {
		e.index.byResource = map[schema.GroupResource][]*inventory.Object{}
		for _, o := range e.Inventory.Objects {
			if o.Resource != nil {
				e.index.byResource[o.Resource.GroupResource()] = append(e.index.byResource[o.Resource.GroupResource()], o)
			}
		}
	}
	return e.index.byResource[r]
}

// podsOf returns the pods that use a PersistentVolumeClaim.
func (e *Explainer) podsOf(claim types.NamespacedName) []*inventory.Object {
	if e.index.byClaim == nil {
		e.index.byClaim = map[types.NamespacedName][]*inventory.Object{}
		for _, o := range e.Inventory.Objects {
			pod := e.Inventory.Pods[o.UID]
			if pod == nil {
				continue
			}
			for _, c := range pod.Claims {
				key := types.NamespacedName{Namespace: o.Namespace, Name: c.Name}
				if known := e.index.byClaim[key]; len(known) == 0 || known[len(known)-1] != o {
					e.index.byClaim[key] = append(known, o)
				}
			}
		}
	}
	return e.index.byClaim[claim]
}

// countBefore returns the number of contents that a namespace had in the earlier inventory; 0 without one.
func (e *Explainer) countBefore(namespace string) int {
	if e.Before != nil && e.index.before == nil {
		e.index.before = map[string]int{}
		for _, o := range e.Before.Objects {
			if o.Resource == nil || o.Resource.Deletable {
				e.index.before[o.Namespace]++
			}
		}
	}
	return e.index.before[namespace]
}
