package explain

import (
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/escape"
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
	return Wait{On: OnProtection, State: Stuck, Says: "it is " + refusal.Reason(), Next: next}, true
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
