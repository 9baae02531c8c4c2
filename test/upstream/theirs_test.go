package upstream

import (
	"net"
	"testing"

	"github.com/coppice-dev/coppice/internal/testing/memorystore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/client-go/kubernetes/fake"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	apiservicerest "k8s.io/kube-aggregator/pkg/registry/apiservice/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	// The groups register their types, defaults and conversions.
	_ "k8s.io/kubernetes/pkg/apis/admissionregistration/install"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	_ "k8s.io/kubernetes/pkg/apis/authentication/install"
	_ "k8s.io/kubernetes/pkg/apis/authorization/install"
	_ "k8s.io/kubernetes/pkg/apis/autoscaling/install"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	_ "k8s.io/kubernetes/pkg/apis/certificates/install"
	_ "k8s.io/kubernetes/pkg/apis/coordination/install"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	_ "k8s.io/kubernetes/pkg/apis/discovery/install"
	_ "k8s.io/kubernetes/pkg/apis/events/install"
	_ "k8s.io/kubernetes/pkg/apis/extensions/install"
	_ "k8s.io/kubernetes/pkg/apis/flowcontrol/install"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	_ "k8s.io/kubernetes/pkg/apis/node/install"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	_ "k8s.io/kubernetes/pkg/apis/rbac/install"
	_ "k8s.io/kubernetes/pkg/apis/resource/install"
	_ "k8s.io/kubernetes/pkg/apis/scheduling/install"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	_ "k8s.io/kubernetes/pkg/apis/storagemigration/install"
	kubeletclient "k8s.io/kubernetes/pkg/kubelet/client"
	admissionregistrationrest "k8s.io/kubernetes/pkg/registry/admissionregistration/rest"
	appsrest "k8s.io/kubernetes/pkg/registry/apps/rest"
	autoscalingrest "k8s.io/kubernetes/pkg/registry/autoscaling/rest"
	batchrest "k8s.io/kubernetes/pkg/registry/batch/rest"
	certificatesrest "k8s.io/kubernetes/pkg/registry/certificates/rest"
	coordinationrest "k8s.io/kubernetes/pkg/registry/coordination/rest"
	configmapstore "k8s.io/kubernetes/pkg/registry/core/configmap/storage"
	endpointsstore "k8s.io/kubernetes/pkg/registry/core/endpoint/storage"
	eventstore "k8s.io/kubernetes/pkg/registry/core/event/storage"
	limitrangestore "k8s.io/kubernetes/pkg/registry/core/limitrange/storage"
	namespacestore "k8s.io/kubernetes/pkg/registry/core/namespace/storage"
	nodestore "k8s.io/kubernetes/pkg/registry/core/node/storage"
	pvstore "k8s.io/kubernetes/pkg/registry/core/persistentvolume/storage"
	pvcstore "k8s.io/kubernetes/pkg/registry/core/persistentvolumeclaim/storage"
	podstore "k8s.io/kubernetes/pkg/registry/core/pod/storage"
	podtemplatestore "k8s.io/kubernetes/pkg/registry/core/podtemplate/storage"
	controllerstore "k8s.io/kubernetes/pkg/registry/core/replicationcontroller/storage"
	resourcequotastore "k8s.io/kubernetes/pkg/registry/core/resourcequota/storage"
	secretstore "k8s.io/kubernetes/pkg/registry/core/secret/storage"
	"k8s.io/kubernetes/pkg/registry/core/service/ipallocator"
	"k8s.io/kubernetes/pkg/registry/core/service/portallocator"
	servicestore "k8s.io/kubernetes/pkg/registry/core/service/storage"
	serviceaccountstore "k8s.io/kubernetes/pkg/registry/core/serviceaccount/storage"
	discoveryrest "k8s.io/kubernetes/pkg/registry/discovery/rest"
	eventsrest "k8s.io/kubernetes/pkg/registry/events/rest"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	networkingrest "k8s.io/kubernetes/pkg/registry/networking/rest"
	noderest "k8s.io/kubernetes/pkg/registry/node/rest"
	policyrest "k8s.io/kubernetes/pkg/registry/policy/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	resourcerest "k8s.io/kubernetes/pkg/registry/resource/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"
	storagerest "k8s.io/kubernetes/pkg/registry/storage/rest"
	storagemigrationrest "k8s.io/kubernetes/pkg/registry/storagemigration/rest"
)

// stable enables the resources that kube-apiserver serves by default: those of versions without alpha or beta.
type stable struct {
	serverstorage.APIResourceConfigSource // panics on methods that the registries do not call
}

func (stable) ResourceEnabled(resource schema.GroupVersionResource) bool {
	return isStable(resource.Version)
}

func (stable) ResourceExplicitlyEnabled(schema.GroupVersionResource) bool { return false }

func (stable) AnyResourceForGroupEnabled(string) bool { return true }

func isStable(version string) bool { return version == "v1" || version == "v2" }

// provider is what upstream has for each group.
type provider interface {
	NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error)
}

// theirs returns upstream's registries, as kube-apiserver makes them, on a storage in memory.
func theirs(t *testing.T) *side {
	t.Helper()
	store := newStore(legacyscheme.Scheme, aggregatorscheme.Scheme)
	allow := authorizerfactory.NewAlwaysAllowAuthorizer()
	client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	s := newSide("theirs", store)
	s.plugins = plugins(t)
	for _, p := range []provider{
		admissionregistrationrest.RESTStorageProvider{Authorizer: allow, DiscoveryClient: client.Discovery()},
		appsrest.StorageProvider{},
		autoscalingrest.RESTStorageProvider{},
		batchrest.RESTStorageProvider{},
		certificatesrest.RESTStorageProvider{Authorizer: allow},
		coordinationrest.RESTStorageProvider{},
		discoveryrest.StorageProvider{},
		eventsrest.RESTStorageProvider{},
		flowcontrolrest.RESTStorageProvider{},
		networkingrest.RESTStorageProvider{},
		noderest.RESTStorageProvider{},
		policyrest.RESTStorageProvider{},
		rbacrest.RESTStorageProvider{Authorizer: allow},
		resourcerest.RESTStorageProvider{NamespaceClient: client.CoreV1().Namespaces(), Authorizer: allow},
		schedulingrest.RESTStorageProvider{},
		storagerest.RESTStorageProvider{},
		storagemigrationrest.RESTStorageProvider{},
	} {
		group, err := p.NewRESTStorage(stable{}, store)
		if err != nil {
			t.Fatal(err)
		}
		s.add(&group)
	}
	core := genericapiserver.NewDefaultAPIGroupInfo("", legacyscheme.Scheme, legacyscheme.ParameterCodec, legacyscheme.Codecs)
	core.VersionedResourcesStorageMap["v1"] = coreStorages(t, store)
	s.add(&core)
	aggregated := apiservicerest.NewRESTStorage(stable{}, store, false)
	s.add(&aggregated)
	s.createOthers(t)
	return s
}

// coreStorages returns the registries of the core group. Upstream's provider of them also starts what repairs the
// allocated addresses of services, and needs clients.
func coreStorages(t *testing.T, store *memorystore.Store) map[string]rest.Storage {
	t.Helper()
	var failures []error
	check := func(err error) { failures = append(failures, err) }
	all := map[string]rest.Storage{}
	for plural, make := range map[string]func() (rest.Storage, error){
		"configmaps":   func() (rest.Storage, error) { return configmapstore.NewREST(store) },
		"endpoints":    func() (rest.Storage, error) { return endpointsstore.NewREST(store) },
		"events":       func() (rest.Storage, error) { return eventstore.NewREST(store, 0) },
		"limitranges":  func() (rest.Storage, error) { return limitrangestore.NewREST(store) },
		"podtemplates": func() (rest.Storage, error) { return podtemplatestore.NewREST(store) },
		"secrets":      func() (rest.Storage, error) { return secretstore.NewREST(store) },
		"serviceaccounts": func() (rest.Storage, error) {
			return serviceaccountstore.NewREST(store, nil, nil, nil, 0, nil, nil, nil, nil, nil, false, 0)
		},
	} {
		storage, err := make()
		check(err)
		all[plural] = storage
	}
	namespaces, namespaceStatus, finalize, err := namespacestore.NewREST(store)
	check(err)
	all["namespaces"], all["namespaces/status"], all["namespaces/finalize"] = namespaces, namespaceStatus, finalize
	quotas, quotaStatus, err := resourcequotastore.NewREST(store)
	check(err)
	all["resourcequotas"], all["resourcequotas/status"] = quotas, quotaStatus
	volumes, volumeStatus, err := pvstore.NewREST(store)
	check(err)
	all["persistentvolumes"], all["persistentvolumes/status"] = volumes, volumeStatus
	claims, claimStatus, err := pvcstore.NewREST(store)
	check(err)
	all["persistentvolumeclaims"], all["persistentvolumeclaims/status"] = claims, claimStatus
	controllers, err := controllerstore.NewStorage(store)
	check(err)
	all["replicationcontrollers"], all["replicationcontrollers/status"] = controllers.Controller, controllers.Status
	nodes, err := nodestore.NewStorage(store, kubeletclient.KubeletClientConfig{}, nil)
	check(err)
	all["nodes"], all["nodes/status"] = nodes.Node, nodes.Status
	pods, err := podstore.NewStorage(store, nodes.KubeletConnectionInfo, nil, nil, authorizerfactory.NewAlwaysAllowAuthorizer())
	check(err)
	all["pods"], all["pods/status"], all["pods/binding"] = pods.Pod, pods.Status, pods.Binding
	all["pods/ephemeralcontainers"], all["pods/resize"] = pods.EphemeralContainers, pods.Resize
	addresses, err := ipallocator.NewInMemory(&net.IPNet{IP: net.IPv4(10, 96, 0, 0).To4(), Mask: net.CIDRMask(12, 32)})
	check(err)
	ports, err := portallocator.NewInMemory(utilnet.PortRange{Base: 30000, Size: 2768})
	check(err)
	services, serviceStatus, _, err := servicestore.NewREST(store, api.IPv4Protocol,
		map[api.IPFamily]ipallocator.Interface{api.IPv4Protocol: addresses}, ports, nil, pods.Pod, nil)
	check(err)
	all["services"], all["services/status"] = services, serviceStatus
	for _, err := range failures {
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}
