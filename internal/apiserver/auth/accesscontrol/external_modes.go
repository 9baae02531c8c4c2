package accesscontrol

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/pkg/authorization/union"
	webhookauthorizer "k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
)

// The authorization modes.
const (
	ModeAlwaysAllow = "AlwaysAllow"
	ModeAlwaysDeny  = "AlwaysDeny"
	ModeNode        = "Node"
	ModeRBAC        = "RBAC"
	ModeWebhook     = "Webhook"
)

// Modes returns the supported authorization modes.
func Modes() []string {
	return []string{ModeAlwaysAllow, ModeAlwaysDeny, ModeNode, ModeRBAC, ModeWebhook}
}

// Authorizer returns the authorizer of the modes, in their order. roles authorizes by RBAC; it also
// authorizes the components in every mode. Mode Node adds nothing to RBAC: here nodes have roles, and
// restrictions beyond them in every mode.
func (c External) Authorizer(roles authorizer.Authorizer, components []string) (authorizer.Authorizer, error) {
	if len(c.Modes) == 0 {
		return roles, nil
	}
	var all []namedAuthorizer
	for _, mode := range c.Modes {
		if mode == ModeNode {
			continue
		}
		one, err := c.mode(mode, roles)
		if err != nil {
			return nil, err
		}
		all = append(all, namedAuthorizer{AuthorizerName: mode, Authorizer: one})
	}
	if !slices.Contains(c.Modes, ModeRBAC) {
		all = append([]namedAuthorizer{{AuthorizerName: "components", Authorizer: onlyFor{components, roles}}}, all...)
	}
	return union.New(all...)
}

type namedAuthorizer = union.NamedAuthorizer

func (c External) mode(mode string, roles authorizer.Authorizer) (authorizer.Authorizer, error) {
	switch mode {
	case ModeAlwaysAllow:
		return authorizerfactory.NewAlwaysAllowAuthorizer(), nil
	case ModeAlwaysDeny:
		return authorizerfactory.NewAlwaysDenyAuthorizer(), nil
	case ModeRBAC:
		return roles, nil
	case ModeWebhook:
		return c.AuthorizationWebhook.authorizer()
	}
	return nil, fmt.Errorf("no mode of authorization: %q", mode)
}

func (w Webhook) authorizer() (authorizer.Authorizer, error) {
	if w.Kubeconfig == "" {
		return nil, errors.New("authorization by a webhook needs the file that says how to reach it")
	}
	client, backoff, err := w.client()
	if err != nil {
		return nil, fmt.Errorf("configure the webhook of authorization: %w", err)
	}
	implementation, err := webhookauthorizer.New(client, w.version(), w.AcceptedFor, w.RefusedFor, backoff, authorizer.DecisionNoOpinion, nil, "",
		metrics.NoopAuthorizerMetrics{}, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, fmt.Errorf("configure the webhook of authorization: %w", err)
	}
	return implementation, nil
}

// onlyFor is an authorizer for some users only.
type onlyFor struct {
	users []string
	authorizer.Authorizer
}

// Authorize implements authorizer.Authorizer.
func (o onlyFor) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if u := a.GetUser(); u == nil || !slices.Contains(o.users, u.GetName()) {
		return authorizer.DecisionNoOpinion, "", nil
	}
	return o.Authorizer.Authorize(ctx, a)
}
