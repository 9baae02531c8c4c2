package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/rbac"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/reviews"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/roles"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/tokens"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/podlogs"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// doors is what decides who may enter, and what it knows that by.
type doors struct {
	client     kubernetes.Interface // of the server itself, as an administrator
	shared     informers.SharedInformerFactory
	policy     *roles.Policy
	roles      roles.Authorizer
	components *auth.Components
	accounts   *tokens.Authenticator
	tokens     authenticator.Token
	aggregator *roles.Aggregator
	kinds      *servedKinds
	confined   *restriction.Users
	nodePods   *nodePods
	// mapper tells admission policies about kinds; it is reset when there may be others.
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// metadata reads the metadata of objects as an administrator; set with mapper.
	metadata metadata.Interface
	logs     *podlogs.Endpoint
	// backlog tells how much of a namespace waits for the collector; nil: nobody knows.
	backlog atomic.Pointer[func(namespace string) int]
}

// openDoors sets up authentication and authorization. Serving has been set up.
// The informers that they need are not yet started.
func openDoors(base *genericapiserver.Config, c Config) (*doors, error) {
	client, err := kubernetes.NewForConfig(base.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("create the loopback client: %w", err)
	}
	d := &doors{
		client: client, shared: informers.NewSharedInformerFactory(client, 0), kinds: newServedKinds(),
		components: auth.NewComponents(rbac.Components()...),
	}
	d.accounts = tokens.NewAuthenticator(c.Authority.ServiceAccounts())
	d.tokens = auth.Tokens(d.components, d.accounts)
	d.policy = roles.NewPolicy(d.shared)
	d.roles = roles.NewAuthorizer(d.policy)
	if d.aggregator, err = roles.NewAggregator(d.shared, client.RbacV1()); err != nil {
		return nil, err
	}
	authority, err := dynamiccertificates.NewStaticCAContent("client-ca", c.Authority.Certificate())
	if err != nil {
		return nil, fmt.Errorf("load the certificate authority: %w", err)
	}
	if err := base.Authentication.ApplyClientCert(authority, base.SecureServing); err != nil {
		return nil, fmt.Errorf("verify client certificates: %w", err)
	}
	base.Authentication.Authenticator = auth.Authenticator(authority.VerifyOptions, d.tokens)
	base.Authentication.APIAudiences = audiences()
	d.nodePods = &nodePods{}
	d.confined = restriction.NewUsers(namespaces{d.shared.Core().V1().Namespaces().Lister(), client.CoreV1()}, d.nodePods)
	// Inside the library's filters, so that authentication and authorization come first.
	base.BuildHandlerChainFunc = func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return genericapiserver.DefaultBuildHandlerChain(restriction.Requests(deleteflow.WithRequest(handler, c.Serializer), d.confined, c.Serializer), c)
	}
	base.RuleResolver = d.roles
	base.Authorization.Authorizer, err = auth.Authorizer(d.roles)
	return d, err
}

// audiences are whom a token has to be meant for, so that it is good here.
func audiences() authenticator.Audiences {
	return authenticator.Audiences{tokens.Issuer}
}

// reviews are the API groups that tell who may do what.
func (d *doors) reviews(schemes registry.Schemes, base *genericapiserver.Config) []*genericapiserver.APIGroupInfo {
	return reviews.Groups(schemes, reviews.Config{
		Authorizer: base.Authorization.Authorizer, Rules: d.roles, Tokens: d.tokens, Audiences: audiences(),
	})
}

// serveTokens adds the endpoint of service account tokens to the core group, whose
// registries are where tokens are checked, and that of logs, which looks pods up there.
func (d *doors) serveTokens(core *genericapiserver.APIGroupInfo, authority *auth.Authority) error {
	storages := core.VersionedResourcesStorageMap["v1"]
	objects := tokens.Objects{}
	for _, resource := range []string{"serviceaccounts", "pods", "secrets", "nodes"} {
		getter, ok := storages[resource].(rest.Getter)
		if !ok {
			return fmt.Errorf("tokens cannot be bound to %s: there is no registry of them", resource)
		}
		objects[resource] = getter
	}
	if err := d.nodePods.read(storages["pods"]); err != nil {
		return err
	}
	storages["serviceaccounts/token"] = tokens.NewEndpoint(authority.ServiceAccounts(), objects)
	d.logs = podlogs.NewEndpoint(objects["pods"], podlogs.Agents{Nodes: objects["nodes"], TLS: auth.NewLogReader(authority).TLS}.Logs)
	storages["pods/log"] = d.logs
	d.accounts.Look(objects)
	return nil
}

// Collector reaches the server as Client does, as the user that the collector is.
func (s *Server) Collector() (*restclient.Config, error) { return s.as(rbac.Collector) }

// NamespaceController reaches the server as Client does, as the user that the
// namespace controller is.
func (s *Server) NamespaceController() (*restclient.Config, error) {
	return s.as(rbac.NamespaceController)
}

// Workloads reaches the server as Client does, as the user that the controllers of
// workloads are.
func (s *Server) Workloads() (*restclient.Config, error) { return s.as(rbac.WorkloadControllers) }

// ProtectionController reaches the server as Client does, as the user that the
// controller of package protection is.
func (s *Server) ProtectionController() (*restclient.Config, error) {
	return s.as(rbac.ProtectionController)
}

// Candidate reaches the server as Client does, as the user that campaigns for the Lease
// rbac.ControllersLease in kube-system.
func (s *Server) Candidate() (*restclient.Config, error) { return s.as(rbac.Candidate) }

// NodeAgent reaches the server as Client does, as the user that the agent of the nodes of
// this process is.
func (s *Server) NodeAgent() (*restclient.Config, error) { return s.as(rbac.NodeAgent) }

// Node reaches the server as Client does, as the node of that name, and may do there what
// an agent with a credential of that node may.
func (s *Server) Node(name string) *restclient.Config {
	config := s.Client()
	config.Impersonate = restclient.ImpersonationConfig{UserName: rbac.NodeUserPrefix + name, Groups: []string{user.NodesGroup, user.AllAuthenticated}}
	return config
}

// ServeLogs tells where the logs of pods on the nodes of this process are; it has none if nil.
func (s *Server) ServeLogs(source podlogs.Source) { s.doors.logs.SetSource(source) }

// Scheduler reaches the server as Client does, as the user that the scheduler is.
func (s *Server) Scheduler() (*restclient.Config, error) { return s.as(rbac.Scheduler) }

func (s *Server) as(component string) (*restclient.Config, error) {
	config := s.Client()
	token, err := s.doors.components.Token(component)
	config.BearerToken = token
	return config, err
}

// CountBacklog lets the server ask how many objects of a namespace wait for the collector,
// which bounds what references may be added there (package owners); nil: it is not known.
// It may be called at any time.
func (s *Server) CountBacklog(waiting func(namespace string) int) {
	if waiting == nil {
		s.doors.backlog.Store(nil)
		return
	}
	s.doors.backlog.Store(&waiting)
}

func (d *doors) waiting(namespace string) int {
	if waiting := d.backlog.Load(); waiting != nil {
		return (*waiting)(namespace)
	}
	return 0
}

// ownerExists implements owners.Exists. An owner of a kind that is not served is said to
// be there: what it is to be is for others to judge.
func (d *doors) ownerExists(ctx context.Context, kind schema.GroupKind, namespace string, ref metav1.OwnerReference) (bool, error) {
	mapping, err := d.mapper.RESTMapping(kind)
	if err != nil {
		return true, nil //nolint:nilerr // see above
	}
	objects := metadata.ResourceInterface(d.metadata.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		objects = d.metadata.Resource(mapping.Resource).Namespace(namespace)
	}
	owner, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s %s: %w", mapping.Resource.Resource, ref.Name, err)
	}
	return owner.UID == ref.UID, nil
}

// namespaces tells which namespaces are being deleted.
type namespaces struct {
	cached corev1listers.NamespaceLister
	live   corev1client.NamespacesGetter
}

// Terminating implements confine.Namespaces. A namespace that the cache has as active is
// read: it may have been marked just now.
func (n namespaces) Terminating(ctx context.Context, name string) (bool, error) {
	if ns, err := n.cached.Get(name); err == nil && ns.DeletionTimestamp != nil {
		return true, nil
	}
	ns, err := n.live.Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns.DeletionTimestamp != nil, nil
}
