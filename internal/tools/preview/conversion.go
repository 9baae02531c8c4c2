package preview

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Use is the purpose for which a request needs an object in one of its versions.
type Use int

// The uses.
const (
	// Read: the object is read in the version of its resource.
	Read Use = iota
	// Change: the object is read, and is stored again.
	Change
	// List: the server lists the instances of a definition in the version in which they are stored.
	List
)

// convert returns an error if the server cannot convert an object for the request of an actor.
func (p *play) convert(o *object, by Actor, use Use) error {
	if p.options.Conversion == nil {
		return nil
	}
	refused := p.options.Conversion(o.Object, use)
	if refused == nil {
		return nil
	}
	o.refusal = &Refusal{Refusal: *refused, To: by}
	return errors.New(refused.String())
}

// seen returns which of the objects that the removal of an object concerns upstream's collector looks at. While it cannot
// list the resource, because objects cannot be converted, it does not see that an owner is gone: the dependents stay.
func (p *play) seen(o *object, concerned []ownership.UID) []ownership.UID {
	if !p.options.Order.IsUpstream() || p.options.Conversion == nil {
		return concerned
	}
	refused := p.options.Conversion(o.Object, Read)
	if refused == nil {
		return concerned
	}
	return slices.DeleteFunc(slices.Clone(concerned), func(uid ownership.UID) bool {
		other := p.objects[uid]
		isDependent := other != nil && slices.ContainsFunc(other.now.Owners, func(r ownership.Reference) bool { return r.UID == o.UID })
		if isDependent && !other.deleting {
			other.refusal = &Refusal{Refusal: *refused, To: ByCollector, IsList: true}
		}
		return isDependent
	})
}

// unconvertedInstance returns why the server cannot list the instances of a definition: one of them cannot be converted,
// or no list shows which.
func (p *play) unconvertedInstance(r *inventory.Resource) *refusal.Refusal {
	if r == nil || p.options.Conversion == nil {
		return nil
	}
	for key, refused := range p.unconverted {
		if key.resource == r.GroupResource() {
			return &refused
		}
	}
	for _, o := range p.instances[r] {
		if refused := p.options.Conversion(o, List); refused != nil {
			return refused
		}
	}
	return nil
}

// unconvertedIn returns why the objects of a resource in a namespace cannot be listed.
func (p *play) unconvertedIn(namespace string, r schema.GroupResource) (refusal.Refusal, bool) {
	for _, key := range []tallyKey{{namespace, r}, {"", r}} {
		if refused, ok := p.unconverted[key]; ok {
			return refused, true
		}
	}
	return refusal.Refusal{}, false
}

// conversion predicts whether a request for an object fails because it cannot be converted. A webhook without endpoints
// converts nothing; for one that may answer, the server is asked for the object.
func (p *Predictor) conversion(o *inventory.Object, use Use) *refusal.Refusal {
	crd := p.definitionOf(o.Resource)
	if crd == nil {
		return nil
	}
	definition := p.facts.Definition(crd).Value
	isStored := definition.Storage == o.Resource.Version
	if use == List && !isStored {
		return p.unlistable(o, &definition)
	}
	needs := definition.Needs(o.Resource.Version)
	switch {
	case needs == inventory.Never:
		return nil
	case needs == inventory.Always && definition.IsDead():
		return definition.Dead()
	case needs == inventory.Always: // for one as for all
		o = p.cluster.instances[o.Resource][0]
	case definition.Endpoints > 0:
		return nil
	}
	if refused, ok := refusal.In(p.facts.Body(o).Unread); ok && refused.By == refusal.ByConversion {
		return &refused
	}
	if use == Change && definition.IsDead() && !isStored {
		return definition.Dead()
	}
	return nil
}

// unlistable returns the refusal of a list in the version of the storage, because of one object: if that can be read in
// another version, and nothing converts, it is stored in the other one.
func (p *Predictor) unlistable(o *inventory.Object, d *inventory.Definition) *refusal.Refusal {
	if d.IsDead() && d.Needs(d.Storage) != inventory.Never && d.Needs(o.Resource.Version) == inventory.Sometimes && p.facts.Body(o).Unread == "" {
		return d.Dead()
	}
	return nil
}

// definitionOf returns the CustomResourceDefinition of a resource, or nil. It searches once for all objects of the resource.
func (p *Predictor) definitionOf(r *inventory.Resource) *inventory.Object {
	definitions := p.inventory.Resource(ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"})
	if definitions == nil {
		return nil
	}
	known, ok := p.definitions[r]
	if !ok {
		known = p.inventory.Named(definitions, "", r.GroupResource().String())
		p.definitions[r] = known
	}
	return known
}
