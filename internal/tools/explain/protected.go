package explain

import (
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Protections are Details that know how the server protects objects (R28).
type Protections interface {
	// Protection returns the protection of an object, and the existing objects that it outlives; false if the server
	// does not protect it.
	Protection(o *inventory.Object) (protection.Protection, []protection.Left, bool)
}

// protected explains a protected object that a cascading deletion would otherwise delete.
func (e *Explainer) protected(o *inventory.Object) (Wait, bool) {
	details, ok := e.Details.(Protections)
	if !ok || !o.Protected || o.Resource == nil {
		return Wait{}, false
	}
	p, left, ok := details.Protection(o)
	if !ok {
		return Wait{}, false
	}
	refusal := p.Decide(protection.Cascade, left)
	if refusal == nil {
		return Wait{}, false
	}
	var next []Step
	if p.Unchecked != "" {
		next = append(next, Step{"have the list checked, as a user who may read what it names", protection.CheckCommand(o.Resource.GroupResource(), o.Namespace, o.Name)})
	}
	next = append(next, Step{"lift its protection, if it may go", protection.Command(o.Resource.GroupResource(), o.Namespace, o.Name)})
	return Wait{On: OnProtection, State: Stuck, Says: "it is " + refusal.Reason(), Next: next}, true
}
