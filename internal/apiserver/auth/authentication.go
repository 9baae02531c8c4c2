package auth

import (
	"fmt"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/utils/clock"
)

// healthPaths are the only paths that anonymous users may read.
func healthPaths() []string { return []string{"/healthz", "/livez", "/readyz"} }

// Authenticator authenticates a request as the subject of a client certificate that verify
// accepts, as the user of a bearer token according to tokens, as whom a front proxy says or, on the
// health paths only, as anonymous. A request with an invalid credential is refused, never treated as
// anonymous.
func Authenticator(verify x509.VerifyOptionFunc, tokens authenticator.Token, proxies authenticator.Request) authenticator.Request {
	var conditions []apiserver.AnonymousAuthCondition
	for _, p := range healthPaths() {
		conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: p})
	}
	certificate := newCertificateCache(x509.NewDynamic(verify, x509.CommonNameUserConversion), clock.RealClock{})
	return union.NewFailOnError(
		group.NewAuthenticatedGroupAdder(union.NewFailOnError(proxies, certificate, bearertoken.New(tokens))),
		anonymous.NewAuthenticator(conditions),
	)
}

// Tokens asks the authenticators one after the other until one accepts a token.
func Tokens(all ...authenticator.Token) authenticator.Token {
	return group.NewTokenGroupAdder(tokenunion.NewFailOnError(all...), []string{user.AllAuthenticated})
}

// Authorizer allows administrators everything, every user to read the health paths, and every
// user what roles allows. The server refuses a request that none of them has an opinion on.
func Authorizer(roles authorizer.Authorizer) (authorizer.Authorizer, error) {
	health, err := path.NewAuthorizer(healthPaths())
	if err != nil {
		return nil, fmt.Errorf("authorize the health paths: %w", err)
	}
	a, err := authorizerunion.New(
		authorizerunion.NamedAuthorizer{AuthorizerName: "administrators", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "health", Authorizer: health},
		authorizerunion.NamedAuthorizer{AuthorizerName: "roles", Authorizer: roles},
	)
	if err != nil {
		return nil, fmt.Errorf("assemble the authorizers: %w", err)
	}
	return a, nil
}
