package system

import (
	"context"
	"log/slog"

	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
)

// credentials are the kubeconfigs of one user.
type credentials struct {
	authority *auth.Authority
	server    string // its URL
	identity  identity
	own       string   // the kubeconfig in the data directory; none if empty
	paths     []string // the kubeconfigs that the user has named, or empty
	log       *slog.Logger
}

// identity is the user of a kubeconfig.
type identity struct {
	user    string
	context string // its name in the kubeconfig
	issue   func(*auth.Authority) (auth.Pair, error)
}

func administrator() identity {
	return identity{auth.AdminUser, ContextName, (*auth.Authority).Admin}
}

// collectorOutside is the user of a collector in another process: the same as in this one.
func collectorOutside() identity {
	return identity{bootstrappolicy.Collector, ContextName + "-collector", func(a *auth.Authority) (auth.Pair, error) { return a.Component(bootstrappolicy.Collector) }}
}

// nodeOutside is the user of a node in another process.
func nodeOutside(name string) identity {
	return identity{bootstrappolicy.NodeUserPrefix + name, ContextName + "-node-" + name, func(a *auth.Authority) (auth.Pair, error) { return a.Node(name) }}
}

// issue issues a certificate and writes it to the kubeconfigs. It sets their current context to choose
// unless that is empty: the first write of a run selects our context, later ones do not.
func (c credentials) issue(choose string) (auth.Pair, error) {
	pair, err := c.identity.issue(c.authority)
	if err != nil {
		return auth.Pair{}, err
	}
	config := kubeconfigOf(c.identity, c.server, c.authority.Certificate(), pair)
	config.CurrentContext = choose
	if c.own != "" {
		if err := mergeKubeconfig(c.own, fileIn, config); err != nil {
			return auth.Pair{}, err
		}
	}
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

// keepFresh issues the next certificate before the last expires, until ctx ends.
func (c credentials) keepFresh(ctx context.Context, clk clock.WithTicker, last auth.Pair) {
	auth.KeepFresh(ctx, clk, last,
		func() (auth.Pair, error) { return c.issue("") },
		func(err error) { c.log.ErrorContext(ctx, "kubeconfig not renewed", "error", err) })
}
