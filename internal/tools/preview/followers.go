package preview

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Some controllers delete objects that have no owner references once another object is gone: the tokens controller the
// token Secrets of a ServiceAccount, and the endpoints controller the Endpoints with the name of a Service, whoever
// wrote them. The EndpointSlices that mirror Endpoints are their dependents.

// follow lets these controllers work. A namespace that is being emptied loses the objects anyway.
func (p *play) follow() {
	followed := p.followed
	p.followed = nil
	for _, o := range followed {
		switch {
		case p.emptied[o.Namespace] != nil:
		case o.Resource.GroupResource() == corev1.Resource("services"):
			p.deleteEndpoints(o)
		default:
			p.deleteTokens(o)
		}
	}
}

func (p *play) deleteEndpoints(service *object) {
	if r := p.inventory.Resource(ownership.Kind{Kind: "Endpoints"}); r != nil {
		p.deleteFollower(p.inventory.Named(r, service.Namespace, service.Name), ByEndpointsController)
	}
}

func (p *play) deleteTokens(account *object) {
	if p.options.Tokens == nil || !p.hasSecrets(account.Namespace) {
		return
	}
	for _, token := range p.options.Tokens(account.Namespace) {
		if token.Account == account.Name && (token.AccountUID == "" || token.AccountUID == account.UID) {
			p.deleteFollower(p.inventory.Object(token.Secret), ByTokensController)
		}
	}
}

// hasSecrets reports whether the inventory has Secrets in a namespace.
func (p *play) hasSecrets(namespace string) bool {
	return slices.ContainsFunc(p.contents[namespace], func(o *inventory.Object) bool { return o.Resource.GroupResource() == corev1.Resource("secrets") })
}

// deleteFollower makes the DELETE of one of these controllers, if nobody has before. If the server refuses that, the
// object stays.
func (p *play) deleteFollower(o *inventory.Object, by Actor) {
	if o == nil || p.options.Follows != nil && !p.options.Follows() {
		return
	}
	if loaded := p.load(o); !loaded.deleting && !loaded.removed {
		_ = p.delete(loaded, "", by)
	}
}
