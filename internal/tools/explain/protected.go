package explain

import (
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// protected explains a protected object that a cascading deletion would otherwise delete.
func (e *Explainer) protected(o *inventory.Object) (Wait, bool) {
	if e.Facts == nil || !o.Protected || o.Resource == nil {
		return Wait{}, false
	}
	fact := e.Facts.Protection(o)
	p := fact.Value
	if fact.Unread != "" || !p.Enforced {
		return Wait{}, false
	}
	refusal := p.Decide(protection.Cascade, p.Remaining)
	if refusal == nil {
		return Wait{}, false
	}
	var next []Step
	if p.Unchecked != "" {
		next = append(next, Step{"check the list, as a user with the right to read its objects", protection.CheckCommand(o.Resource.GroupResource(), o.Namespace, o.Name)})
	}
	next = append(next, Step{"remove its protection, if it may be deleted", protection.Command(o.Resource.GroupResource(), o.Namespace, o.Name)})
	return Wait{On: OnProtection, State: Stuck, Says: "it is " + refusal.Reason(), Next: next}, true
}
