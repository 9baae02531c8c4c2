package explain

import (
	"cmp"
	"strings"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// protected explains a protected object that a cascading deletion would otherwise delete.
func (e *Explainer) protected(o *inventory.Object) (Wait, bool) {
	if !o.Protected {
		return Wait{}, false
	}
	p, now, _ := e.protection(o)
	if now == nil {
		return Wait{}, false
	}
	if ends := e.ends(o, p); len(ends) > 0 {
		return Wait{On: OnProtection, Says: "it is " + now.Reason(), Waits: ends}, true
	}
	var next []Step
	if p.Unchecked != "" {
		next = append(next, Step{"check the list, as a user with the right to read its objects", protection.CheckCommand(o.Resource.GroupResource(), o.Namespace, o.Name)})
	}
	for _, r := range p.Remaining[:min(len(p.Remaining), mostListed)] {
		if !p.NeedsLookup() || r.Unknown != "" || r.Unread {
			continue
		}
		says := "wait until what it outlives is gone, or delete that first: "
		if p.Mode == protection.Unused {
			says = "delete what uses it, or make it use something else: "
		}
		next = append(next, Step{says + r.String(), getOutlived(r.Outlived)})
	}
	next = append(next, Step{"remove its protection, if it may be deleted", protection.Command(o.Resource.GroupResource(), o.Namespace, o.Name)})
	return Wait{On: OnProtection, State: Stuck, Says: "it is " + now.Reason(), Next: next}, true
}

// protection returns how the server protects an object now, and the refusal of a cascade; nil for none.
func (e *Explainer) protection(o *inventory.Object) (p inventory.Protection, now *protection.Refusal, isKnown bool) {
	if e.Facts == nil || o.Resource == nil {
		return inventory.Protection{}, nil, false
	}
	fact := e.Facts.Protection(o)
	p = fact.Value
	if fact.Unread == "" && p.Enforced {
		now = p.Decide(protection.Cascade, p.Remaining)
	}
	return p, now, fact.Unread == ""
}

// remembered explains an object by a refusal in the past. What the object outlived may be gone since then.
func (e *Explainer) remembered(o *inventory.Object, r Refused) Wait {
	if r.By != refusal.ByProtection {
		return e.refusal(o, r)
	}
	p, now, isKnown := e.protection(o)
	if !isKnown {
		return e.refusal(o, r)
	}
	if now == nil {
		w := Wait{
			On: OnProtection, State: Slow, Since: &r.Since,
			Says: "its protection has ended, as far as it can be seen; the controller tries again within a minute", Next: []Step{{"wait", waitFor(o)}},
		}
		if !p.Enforced || p.IsPart {
			w.State = Unknown
		}
		return w
	}
	if ends := e.ends(o, p); len(ends) > 0 {
		return Wait{On: OnProtection, Since: &r.Since, Says: "the server refuses it: " + r.String(), Waits: ends}
	}
	return e.refusal(o, r)
}

// isUnprotected reports whether an object is known to be protected no longer.
func (e *Explainer) isUnprotected(o *inventory.Object) bool {
	_, now, isKnown := e.protection(o)
	return isKnown && now == nil
}

// ends returns open waits for the objects because of which a protected object stays, if all of them are to go, too; none
// otherwise.
func (e *Explainer) ends(o *inventory.Object, p inventory.Protection) []Wait {
	if !p.NeedsLookup() || p.IsPart {
		return nil
	}
	waits := make([]Wait, 0, len(p.Remaining))
	for _, r := range p.Remaining {
		other := e.keeper(o, r)
		if other == nil || other.UID == o.UID || !e.goesBefore(other, o) {
			return nil
		}
		says := refOf(other).String() + " is being deleted"
		if other.Phase == ownership.Active {
			says = refOf(other).String() + " is to be deleted, too"
		}
		waits = append(waits, e.via(OnUser, other, says))
	}
	return waits
}

// keeper returns an object because of which another one stays; nil if the inventory does not have it.
func (e *Explainer) keeper(o *inventory.Object, r protection.Remaining) *inventory.Object {
	kind := r.GroupVersionKind()
	resource := e.Inventory.Resource(ownership.Kind{Group: kind.Group, Kind: kind.Kind})
	switch {
	case r.UID != "":
		return e.Inventory.Object(ownership.UID(r.UID))
	case r.Finalizer != "" || r.Name == "" || resource == nil:
		return nil
	case !resource.Namespaced:
		return e.Inventory.Named(resource, "", r.Name)
	}
	return e.Inventory.Named(resource, cmp.Or(r.Namespace, o.Namespace), r.Name)
}

// goesBefore reports whether an object is to go, and does not wait for another one meanwhile: a namespace is emptied in
// stages.
func (e *Explainer) goesBefore(o, other *inventory.Object) bool {
	isSwept := o.Phase == ownership.Active && o.Namespace != "" && o.Namespace == other.Namespace
	if isSwept && (o.Resource == nil || other.Resource == nil) {
		return false
	}
	var order namespaces.Order
	return e.isToGo(o) && (!isSwept || order.StageOf(o.Resource.GroupResource()) <= order.StageOf(other.Resource.GroupResource()))
}

// isToGo reports whether an object is being deleted, or is to be deleted with its namespace or its definition.
func (e *Explainer) isToGo(o *inventory.Object) bool {
	home, crd := e.home(o), e.definition(o)
	return o.Phase != ownership.Active || home != nil && isTerminating(home) || crd != nil && isTerminating(crd)
}

// getOutlived returns the command that shows outlived objects.
func getOutlived(o protection.Outlived) string {
	if o.Finalizer != "" {
		return "coppice explain --all"
	}
	kind := strings.ToLower(o.Kind)
	if group, _, hasGroup := strings.Cut(o.APIVersion, "/"); hasGroup {
		kind += "." + group
	}
	return "kubectl get " + escape.Shell(kind+"/"+o.Name) + namespaceFlag(o.Namespace)
}
