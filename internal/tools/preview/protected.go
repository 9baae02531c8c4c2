package preview

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// protected is the protection of an object (R28).
type protected struct {
	inventory.Protection

	held string // why the deletion by a controller was refused; empty if none was
}

// protect returns the refusal to delete an object that is protected.
func (p *play) protect(o *object, by Actor) error {
	if !o.Protected || o.deleting || p.options.Protection == nil {
		return nil
	}
	if o.protection == nil {
		known := p.options.Protection(o.Object)
		if known.Unread != "" {
			o.addDecider("its protection, which could not be read: " + known.Unread)
			return nil
		}
		if !known.Value.Enforced {
			return nil
		}
		o.protection = &protected{Protection: known.Value}
		for _, l := range known.Value.Remaining {
			if other := p.outlived(o, l); other != nil {
				p.outliving[other.UID] = append(p.outliving[other.UID], o)
			}
		}
	}
	refusal := o.protection.Decide(p.deleterOf(by), slices.DeleteFunc(slices.Clone(o.protection.Remaining), p.isRemoved(o)))
	if refusal == nil {
		return nil
	}
	if by != ByUser {
		o.protection.held = refusal.Reason()
	}
	return refusal.Error(o.Resource.GroupResource(), o.Namespace, o.Name)
}

// deleterOf returns the sort of an actor. The tokens controller of kube-controller-manager has the user of all its
// controllers, which counts as a cascade.
func (p *play) deleterOf(by Actor) protection.Deleter {
	switch by {
	case ByUser, ByNode, ByPodCollector, ByEndpointsController:
		return protection.Request
	case ByTokensController:
		if p.options.RepeatedReplaces == nil || !p.options.RepeatedReplaces() { // our server
			return protection.Request
		}
	case ByCollector, ByNamespaceController, ByServer, ByJobController, ByProtectionController, byUnknown:
	}
	return protection.Cascade
}

// isRemoved returns a function that reports whether an object that o outlives is gone by now.
func (p *play) isRemoved(o *object) func(protection.Remaining) bool {
	return func(l protection.Remaining) bool {
		other := p.outlived(o, l)
		return other != nil && p.objects[other.UID] != nil && p.objects[other.UID].removed
	}
}

// outlived returns an object that o outlives; nil if the inventory does not have it, or if it counts until a finalizer
// is gone.
func (p *play) outlived(o *object, l protection.Remaining) *inventory.Object {
	kind := l.GroupVersionKind().GroupKind()
	r := p.inventory.Resource(ownership.Kind{Group: kind.Group, Kind: kind.Kind})
	if l.Finalizer != "" || r == nil {
		return nil
	}
	namespace := ""
	if r.Namespaced {
		if namespace = l.Namespace; namespace == "" {
			namespace = o.Namespace
		}
	}
	return p.inventory.Named(r, namespace, l.Name)
}

// isHeld reports whether the object stays because protection has refused its deletion by a controller.
func (o *object) isHeld() bool {
	return o.protection != nil && o.protection.held != "" && !o.deleting && !o.removed
}
