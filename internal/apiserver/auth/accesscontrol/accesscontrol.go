// Package accesscontrol sets up the authentication and authorization of an API server from the packages
// beside it and from files (external.go), and serves the API groups and subresources that belong to them: reviews
// (reviews.go), and service account tokens.
package accesscontrol

import (
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/serviceaccounttoken"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// AccessControl is the authentication and authorization of one server.
type AccessControl struct {
	// Policy has the roles and bindings of the server.
	Policy *rbac.InformerPolicy
	// Authorizer authorizes the requests to the server.
	Authorizer authorizer.Authorizer
	// Components authenticates the control plane's own components.
	Components *auth.Components
	// Restrictions limit components and nodes further than RBAC can.
	Restrictions *restriction.Restrictions

	authority       *auth.Authority
	external        External
	key             *serviceaccounttoken.Key
	rbac            rbac.Authorizer
	serviceAccounts *serviceaccounttoken.Authenticator
	tokens          authenticator.Token
}

// Config configures an AccessControl.
type Config struct {
	Authority *auth.Authority
	// External is the authentication and authorization that files configure.
	External External
	Client   kubernetes.Interface
	// Informers must not have been started.
	Informers informers.SharedInformerFactory
	// Registry returns the registry of a resource of the core group, which is nil until the API is installed. Until
	// then no service account token is valid.
	Registry func(resource string) rest.Storage
	Now      func() time.Time
}

// Apply sets up authentication and authorization in the configuration of the generic
// server, whose serving has been set up.
func Apply(base *genericapiserver.Config, c Config) (*AccessControl, error) {
	key, err := c.External.ServiceAccounts.Key(c.Authority.ServiceAccounts(), c.Now)
	if err != nil {
		return nil, err
	}
	a := &AccessControl{
		Policy: rbac.NewInformerPolicy(c.Informers), Components: auth.NewComponents(bootstrappolicy.Components()...),
		authority: c.Authority, external: c.External, key: key, serviceAccounts: serviceaccounttoken.NewAuthenticator(key, c.Client.CoreV1(), c.getter),
	}
	pods := restriction.NewPodRegistry(c.Registry)
	a.Restrictions = restriction.New(restriction.NewNamespaces(c.Informers.Core().V1().Namespaces().Lister(), c.Client.CoreV1()), pods)
	further, err := c.External.Authenticators(a.audiences())
	if err != nil {
		return nil, err
	}
	a.tokens = auth.Tokens(append([]authenticator.Token{a.Components, a.serviceAccounts}, further...)...)
	if err := a.applyAuthentication(base); err != nil {
		return nil, err
	}
	a.rbac = rbac.NewAuthorizer(a.Policy)
	base.RuleResolver = a.rbac
	modes, err := c.External.Authorizer(a.rbac, bootstrappolicy.Components())
	if err != nil {
		return nil, err
	}
	a.Authorizer, err = auth.Authorizer(modes)
	base.Authorization.Authorizer = a.Authorizer
	return a, err
}

func (a *AccessControl) applyAuthentication(base *genericapiserver.Config) error {
	authorities, err := a.external.ClientAuthorities(a.authority.Certificate())
	if err != nil {
		return err
	}
	clientCA, err := dynamiccertificates.NewStaticCAContent("client-ca", authorities)
	if err != nil {
		return fmt.Errorf("load the certificate authority: %w", err)
	}
	if err := base.Authentication.ApplyClientCert(clientCA, base.SecureServing); err != nil {
		return fmt.Errorf("verify client certificates: %w", err)
	}
	proxyCA, err := dynamiccertificates.NewStaticCAContent("front-proxy-ca", a.authority.FrontProxy().Authority())
	if err != nil {
		return fmt.Errorf("load the certificate authority of front proxies: %w", err)
	}
	if err := base.Authentication.ApplyClientCert(proxyCA, base.SecureServing); err != nil {
		return fmt.Errorf("verify the certificates of front proxies: %w", err)
	}
	base.Authentication.Authenticator = auth.Authenticator(clientCA.VerifyOptions, a.tokens, auth.FrontProxies(proxyCA.VerifyOptions))
	base.Authentication.APIAudiences = a.audiences()
	return nil
}

// audiences returns the audiences of this server: a token must name at least one.
func (a *AccessControl) audiences() authenticator.Audiences { return a.key.Audiences() }

// SignForSecret returns a token of a service account that is valid while the Secret contains it.
func (a *AccessControl) SignForSecret(account *corev1.ServiceAccount, secret string) (string, error) {
	return a.key.SignForSecret(account, secret)
}

// ReviewGroups returns the API groups of reviews, authentication.k8s.io and authorization.k8s.io.
func (a *AccessControl) ReviewGroups(schemes registry.Schemes, base *genericapiserver.Config) []*genericapiserver.APIGroupInfo {
	return reviews{
		Authorizer: a.Restrictions.Reviews(base.Authorization.Authorizer), Rules: a.rbac, Tokens: a.tokens, Audiences: a.audiences(),
	}.groups(schemes)
}

// getter returns what reads the objects of a resource of the core group; nil until the API is installed.
func (c Config) getter(resource string) rest.Getter {
	getter, _ := c.Registry(resource).(rest.Getter)
	return getter
}

// AddTokens adds serviceaccounts/token to the registries of the core group, by resource.
func (a *AccessControl) AddTokens(core map[string]rest.Storage) error {
	objects := serviceaccounttoken.Getters{}
	for _, resource := range []string{"serviceaccounts", "pods", "secrets", "nodes"} {
		getter, ok := core[resource].(rest.Getter)
		if !ok {
			return fmt.Errorf("service account tokens cannot be bound to %s: no registry of them can be read", resource)
		}
		objects[resource] = getter
	}
	core["serviceaccounts/token"] = serviceaccounttoken.NewEndpoint(a.key, objects)
	return nil
}

// GuardRoles puts the check for privilege escalation in front of the registries of roles and
// bindings, by resource.
func (a *AccessControl) GuardRoles(storages map[string]rest.Storage) error {
	return rbac.NewEscalationCheck(a.Policy, a.Authorizer).Guard(storages)
}

// IssuerDiscovery returns the handlers with which clients discover how to verify service account tokens, by
// path. host is this server's.
func (a *AccessControl) IssuerDiscovery(host string) (map[string]http.Handler, error) {
	return a.key.Discovery(host)
}
