package auth

import (
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	"k8s.io/apiserver/pkg/authentication/request/x509"
	tokenunion "k8s.io/apiserver/pkg/authentication/token/union"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

// openPaths are the only paths that anonymous users may read: health, and the files of the web page. These files
// contain nothing about the cluster and are the same for everybody; a browser loads them before it has a token to
// send.
func openPaths() []string {
	return slices.Concat([]string{"/healthz", "/livez", "/readyz"}, page.Paths())
}

// Authenticator authenticates a request as the subject of a client certificate that verify accepts, as the
// user of a bearer token according to tokens, as the user that a front proxy names or, on the open paths
// only, as anonymous. A browser sends the token of a WebSocket as a subprotocol, which is removed: nobody must return or log it.
// One valid credential is enough: a client may present the certificate of another control plane with its token. A request
// with invalid credentials only is refused, never treated as anonymous.
func Authenticator(verify x509.VerifyOptionFunc, tokens authenticator.Token, proxies authenticator.Request) authenticator.Request {
	var conditions []apiserver.AnonymousAuthCondition
	for _, p := range openPaths() {
		conditions = append(conditions, apiserver.AnonymousAuthCondition{Path: p})
	}
	certificate := newCertificateCache(x509.NewDynamic(verify, x509.CommonNameUserConversion), clock.RealClock{})
	return union.NewFailOnError(
		group.NewAuthenticatedGroupAdder(union.New(proxies, certificate, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))),
		anonymous.NewAuthenticator(conditions),
	)
}

// Tokens tries the authenticators in order until one accepts a token. An error of one does not stop it: another one, such as a
// webhook, may know a token that looks like a token of this server.
func Tokens(all ...authenticator.Token) authenticator.Token {
	return group.NewTokenGroupAdder(tokenunion.New(all...), []string{user.AllAuthenticated})
}

// Authorizer allows administrators everything, every user to read the open paths, and every user the
// requests that roles allows. The server refuses a request on which none of them has an opinion.
func Authorizer(roles authorizer.Authorizer) (authorizer.Authorizer, error) {
	open, err := path.NewAuthorizer(openPaths())
	if err != nil {
		return nil, fmt.Errorf("authorize the open paths: %w", err)
	}
	a, err := authorizerunion.New(
		authorizerunion.NamedAuthorizer{AuthorizerName: "administrators", Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		authorizerunion.NamedAuthorizer{AuthorizerName: "open paths", Authorizer: open},
		authorizerunion.NamedAuthorizer{AuthorizerName: "roles", Authorizer: roles},
	)
	if err != nil {
		return nil, fmt.Errorf("assemble the authorizers: %w", err)
	}
	return a, nil
}
