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

// healthPaths are what a caller without a credential may read, and nothing else.
func healthPaths() []string { return []string{"/healthz", "/livez", "/readyz"} }

// Authenticator tells who a caller is: the subject of a client certificate that
// verify accepts, whoever tokens says that the bearer token is of, or, on the health
// paths only, anonymous. A credential that is shown and is bad is refused, never
// treated as anonymous.
func Authenticator(verify x509.VerifyOptionFunc, tokens authenticator.Token) authenticator.Request {
	var conditions []apiserver.AnonymousAuthCondition
	for _, p := range healthPaths() {
		conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: p})
	}
	certificate := newVerified(x509.NewDynamic(verify, x509.CommonNameUserConversion), clock.RealClock{})
	return union.NewFailOnError(
		group.NewAuthenticatedGroupAdder(union.NewFailOnError(certificate, bearertoken.New(tokens))),
		anonymous.NewAuthenticator(conditions),
	)
}

// Tokens asks all of the given, until one knows a token.
func Tokens(all ...authenticator.Token) authenticator.Token {
	return group.NewTokenGroupAdder(tokenunion.NewFailOnError(all...), []string{user.AllAuthenticated})
}

// Authorizer lets administrators do everything, everybody read the health paths, and
// everybody do what their roles allow. Whatever none of these has an opinion on is
// refused by the server.
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
