package system

import (
	"context"
	"log/slog"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// credentials are those of one user, in kubeconfigs.
type credentials struct {
	authority *auth.Authority
	server    string // its URL
	identity  identity
	paths     []string // the kubeconfigs
	log       *slog.Logger
}

// identity is who a kubeconfig is for.
type identity struct {
	user    string
	context string // its name in the kubeconfig
	issue   func(*auth.Authority) (auth.Pair, error)
}

func administrator() identity {
	return identity{auth.AdminUser, ContextName, (*auth.Authority).Admin}
}

// collectorOutside is the collector in another process: the user that it is in this one.
func collectorOutside() identity {
	return identity{bootstrappolicy.Collector, ContextName + "-collector", func(a *auth.Authority) (auth.Pair, error) { return a.Component(bootstrappolicy.Collector) }}
}

// nodeOutside is a node in a process of its own.
func nodeOutside(name string) identity {
	return identity{bootstrappolicy.NodeUserPrefix + name, ContextName + "-node-" + name, func(a *auth.Authority) (auth.Pair, error) { return a.Node(name) }}
}

// issue issues a certificate and writes it to the kubeconfigs. Where they have a context
// of another name chosen, the first writes of a run choose ours, and later ones leave it.
func (c credentials) issue(choose string) (auth.Pair, error) {
	pair, err := c.identity.issue(c.authority)
	if err != nil {
		return auth.Pair{}, err
	}
	config := kubeconfigOf(c.identity, c.server, c.authority.Certificate(), pair)
	config.CurrentContext = choose
	for _, path := range c.paths {
		if path == "" {
			continue
		}
		if err := writeKubeconfig(path, config); err != nil {
			return auth.Pair{}, err
		}
	}
	return pair, nil
}

// keepFresh issues another before the last expires, until ctx ends.
func (c credentials) keepFresh(ctx context.Context, clk clock.WithTicker, last auth.Pair) {
	auth.KeepFresh(ctx, clk, last,
		func() (auth.Pair, error) { return c.issue("") },
		func(err error) { c.log.ErrorContext(ctx, "kubeconfig not renewed", "error", err) })
}
