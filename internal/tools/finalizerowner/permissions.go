package finalizerowner

import (
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Permissions finds permissions that RBAC denies to controllers. It judges only a controller of certain identity: the
// only workload with the name of the field manager.
type Permissions struct {
	index   *Index
	denials map[denial]types.NamespacedName // no account: it is permitted, or unknown
}

type denial struct {
	manager         string
	resource        *inventory.Resource
	namespace, name string
}

// NewPermissions returns the permissions according to the index's facts.
func NewPermissions(x *Index) *Permissions {
	return &Permissions{index: x, denials: make(map[denial]types.NamespacedName)}
}

// Denied returns the service account of a field manager that may not update the finalizers of an object; false if it
// may, or if the rules are unknown.
func (p *Permissions) Denied(manager string, r *inventory.Resource, namespace, name string) (types.NamespacedName, bool) {
	if !r.Namespaced {
		namespace = ""
	}
	key := denial{manager, r, namespace, name}
	account, ok := p.denials[key]
	if !ok {
		misses := p.index.facts.Misses()
		account = p.find(key)
		if p.index.facts.Misses() == misses {
			p.denials[key] = account
		}
	}
	return account, account.Name != ""
}

func (p *Permissions) find(d denial) (nobody types.NamespacedName) {
	x := p.index
	if x.facts == nil || inuse.IsTool(d.manager) || inuse.IsAnonymous(d.manager) {
		return nobody
	}
	var named []*inventory.Object
	for _, w := range x.workloads {
		if isNamed(w, d.manager) {
			named = append(named, w)
		}
	}
	if len(named) != 1 {
		return nobody
	}
	w := x.facts.Workload(named[0])
	if w.Unread != "" || w.Value.ServiceAccount == "" {
		return nobody
	}
	account := types.NamespacedName{Namespace: named[0].Namespace, Name: w.Value.ServiceAccount}
	rules, unread := x.rules(account, d.namespace)
	// A controller without any rule for the group uses another account, or is not a controller.
	if unread != "" || !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return slices.Contains(r.APIGroups, d.resource.Group) }) {
		return nobody
	}
	if ok, _ := validation.Covers(rules, []rbacv1.PolicyRule{{
		Verbs: []string{"update"}, APIGroups: []string{d.resource.Group}, Resources: []string{d.resource.Resource + "/finalizers"}, ResourceNames: []string{d.name},
	}}); ok {
		return nobody
	}
	return account
}
