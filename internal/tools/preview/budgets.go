package preview

import (
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Budget is a PodDisruptionBudget that the deletion exceeds. It limits only evictions: a DELETE removes the pods
// regardless.
type Budget struct {
	Namespace, Name string
	// Allowed is the number of disruptions that it allows now; Pods are the serving pods that the deletion takes and
	// the budget counts, sorted.
	Allowed int32
	Pods    []ownership.UID
}

// AddBudgets adds the PodDisruptionBudgets that allow fewer disruptions than the deletion causes. The function
// budgets returns those of one namespace, or of all if its argument is empty. AddBudgets omits a budget that is deleted
// itself, and adds budgets that could not be read to Unread.
func (p *Prediction) AddBudgets(inv *inventory.Inventory, budgets func(namespace string) inventory.Fact[[]policyv1.PodDisruptionBudget]) {
	pods := p.disrupted(inv)
	if len(pods) == 0 {
		return
	}
	namespace := pods[0].Namespace
	if slices.ContainsFunc(pods, func(o *inventory.Object) bool { return o.Namespace != namespace }) {
		namespace = ""
	}
	read := budgets(namespace)
	if read.Unread != "" {
		resource := policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
		if !slices.ContainsFunc(p.Unread, func(u inventory.Unread) bool { return u.Resource.GroupResource() == resource.GroupResource() }) {
			p.Unread = append(slices.Clip(p.Unread), inventory.Unread{Resource: resource, Namespace: namespace, Why: read.Unread})
		}
		return
	}
	found := read.Value
	deleted := p.deleted()
	for n := range found {
		if b := exceeded(&found[n], pods); b != nil && !deleted[ownership.UID(found[n].UID)] {
			p.Budgets = append(p.Budgets, *b)
		}
	}
	slices.SortFunc(p.Budgets, func(a, b Budget) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
}

// disrupted returns the serving pods that the deletion takes.
func (p *Prediction) disrupted(inv *inventory.Inventory) []*inventory.Object {
	var pods []*inventory.Object
	for n := range p.Outcomes {
		o := &p.Outcomes[n]
		pod := inv.Pods[o.Object.UID]
		if o.isDeleted() && o.Object.Phase == ownership.Active && pod != nil && pod.IsServing() {
			pods = append(pods, o.Object)
		}
	}
	return pods
}

// deleted returns the objects that are deleted.
func (p *Prediction) deleted() map[ownership.UID]bool {
	deleted := make(map[ownership.UID]bool, len(p.Outcomes))
	for n := range p.Outcomes {
		o := &p.Outcomes[n]
		deleted[o.Object.UID] = o.isDeleted()
	}
	return deleted
}

// exceeded compares a budget with the pods that the deletion takes; nil if the budget allows it. A budget with an
// invalid selector selects nothing, as for an eviction.
func exceeded(b *policyv1.PodDisruptionBudget, pods []*inventory.Object) *Budget {
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return nil
	}
	result := Budget{Namespace: b.Namespace, Name: b.Name, Allowed: b.Status.DisruptionsAllowed}
	for _, o := range pods {
		if o.Namespace == b.Namespace && selector.Matches(o.Labels) {
			result.Pods = append(result.Pods, o.UID)
		}
	}
	if len(result.Pods) <= int(result.Allowed) {
		return nil
	}
	slices.Sort(result.Pods)
	return &result
}
