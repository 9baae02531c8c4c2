package apiserver

import (
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/trace/noop"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1beta1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	utilopenapi "k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/builtin"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// collectionWorkers is how many objects of a collection of custom resources are deleted
// at a time; the registries of the built-in kinds have a number of their own.
const collectionWorkers = 8

// setFeatures decides about features of the library, of which there is one set in a
// process. What it decodes for watches it shall decode in order, on one goroutine for a
// watch: one for each event begins with a small stack and has it grown each time.
func setFeatures() error {
	if err := utilfeature.DefaultMutableFeatureGate.Set(string(features.ConcurrentWatchObjectDecode) + "=false"); err != nil {
		return fmt.Errorf("set the library's features: %w", err)
	}
	return nil
}

// baseConfig is the configuration of the generic server but for storage and admission.
func baseConfig(c Config, schemes registry.Schemes, own *loopback) (*genericapiserver.Config, error) {
	if err := setFeatures(); err != nil {
		return nil, err
	}
	base := genericapiserver.NewConfig(schemes.Codecs)
	binary, err := utilversion.ParseSemantic(c.Version)
	if err != nil {
		return nil, fmt.Errorf("version %q: %w", c.Version, err)
	}
	base.EffectiveVersion = reportedVersion{compatibility.DefaultBuildEffectiveVersion(), binary, c.Version}
	if err := secure(c, base); err != nil {
		return nil, err
	}
	if c.Audit != nil {
		audit(base, c.Audit)
	}
	base.LoopbackClientConfig = own.config(base.LoopbackClientConfig)
	describe(base, schemes)
	base.MergedResourceConfig = apiextensions.DefaultAPIResourceConfigSource()
	base.AggregatedDiscoveryGroupManager = discoveryendpoint.NewResourceManager("apis")
	base.AddReadyzChecks(healthz.NamedCheck("etcd", func(r *http.Request) error { return c.Store.Healthy(r.Context()) }))
	base.LongRunningFunc = untimed(base.LongRunningFunc)
	base.ShutdownWatchTerminationGracePeriod = watchGrace
	return base, nil
}

// secure sets up TLS.
func secure(c Config, base *genericapiserver.Config) error {
	address, ok := c.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("apiserver: Listener is on %s, not on TCP", c.Listener.Addr().Network())
	}
	certificate, err := auth.NewServingCertificate(c.Authority, address.IP, clock.RealClock{}, c.certificateFailed, c.ServingNames...)
	if err != nil {
		return err
	}
	serving := genericoptions.NewSecureServingOptions()
	serving.Listener, serving.BindAddress, serving.BindPort = c.Listener, address.IP, address.Port
	serving.MinTLSVersion = "VersionTLS13"
	serving.ServerCert.GeneratedCert = certificate
	if err := serving.ApplyTo(&base.SecureServing); err != nil {
		return fmt.Errorf("set up serving: %w", err)
	}
	// The library's options for a loopback would make a certificate for it, a quarter of
	// a start. It has a transport of its own here and never sees one.
	if base.LoopbackClientConfig, err = base.SecureServing.NewLoopbackClientConfig(rand.Text(), nil); err != nil {
		return fmt.Errorf("set up the loopback: %w", err)
	}
	base.PublicAddress = address.IP
	if address.IP.IsUnspecified() {
		base.PublicAddress = net.IPv4(127, 0, 0, 1)
	}
	return nil
}

// certificateFailed says that there is no new serving certificate: for four months, the
// old one is good still.
func (c Config) certificateFailed(err error) {
	if c.Log != nil {
		c.Log.Error("serving certificate not renewed", "error", err)
	}
}

// describe sets up OpenAPI v3, from which kubectl explains and the server applies.
func describe(base *genericapiserver.Config, schemes registry.Schemes) {
	base.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions(), definitionNamer(schemes))
	base.OpenAPIV3Config.Info.Title = openAPITitle
	base.SkipOpenAPIInstallation = true // see installSchemas
}

// swaggerConfig is how OpenAPI v2 is built. In its binary form the document is
// not valid without a version.
func swaggerConfig(schemes registry.Schemes, version string) *common.Config {
	config := genericapiserver.DefaultOpenAPIConfig(definitions(), definitionNamer(schemes))
	config.Info.Title, config.Info.Version = openAPITitle, version
	return config
}

// openAPITitle is what clients of the field expect there.
const openAPITitle = "Kubernetes"

func definitionNamer(schemes registry.Schemes) *openapinamer.DefinitionNamer {
	return openapinamer.NewDefinitionNamer(schemes.External, apiextensions.Scheme)
}

// definitions are the types of the built-in kinds and of CustomResourceDefinitions.
func definitions() common.GetOpenAPIDefinitions {
	return utilopenapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := openapi.GetOpenAPIDefinitions(ref)
		for name, definition := range apiextensionsopenapi.GetOpenAPIDefinitions(ref) {
			if _, ok := all[name]; !ok {
				all[name] = definition
			}
		}
		return all
	})
}

// options are the three ways in which registries ask for their storage.
type options struct {
	builtin storageOptions // built-in kinds
	custom  storageOptions // instances of custom resources
}

type storageOptions = generic.RESTOptionsGetter

// restOptions sets up the storage of all resources: in the given store, behind the
// delete flow. It also sets what the server of custom resources takes from the base
// configuration: the storage of CustomResourceDefinitions, which have a scheme of
// their own.
func restOptions(c Config, schemes registry.Schemes, flow *deleteflow.Flow, base *genericapiserver.Config) options {
	etcd := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(c.Store.Prefix(), nil))
	etcd.StorageConfig.Transport.TracerProvider = noop.NewTracerProvider()
	etcd.StorageConfig.StorageObjectCountTracker = base.StorageObjectCountTracker
	etcd.DefaultStorageMediaType = runtime.ContentTypeProtobuf
	etcd.EnableGarbageCollection = !c.CollectorDisabled
	etcd.DeleteCollectionWorkers = collectionWorkers
	// The library checks etcd over its network; baseConfig has a check of its own.
	etcd.SkipHealthEndpoints = true

	factory := serverstorage.NewDefaultStorageFactory(etcd.StorageConfig, etcd.DefaultStorageMediaType, schemes.Codecs,
		serverstorage.NewDefaultResourceEncodingConfigForEffectiveVersion(schemes.Hub, base.EffectiveVersion), serverstorage.NewResourceConfig(), nil)

	definitions := *etcd
	definitions.StorageConfig.Codec = apiextensions.Codecs.LegacyCodec(v1beta1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion)
	definitions.StorageConfig.EncodeVersioner = runtime.NewMultiGroupVersioner(apiextensionsv1.SchemeGroupVersion, schema.GroupKind{Group: apiextensionsv1.GroupName})

	guarded := func(next generic.RESTOptionsGetter) storageOptions {
		return c.Store.RESTOptions(next, flow.Guard, unique())
	}
	base.RESTOptionsGetter = guarded(definitions.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: definitions.StorageConfig}, nil))
	return options{
		builtin: guarded(etcd.CreateRESTOptionsGetter(factory, nil)),
		custom:  guarded(apiextensionsoptions.NewCRDRESTOptionsGetter(definitions, nil, base.StorageObjectCountTracker)),
	}
}

// unique are the values that no two objects of a built-in kind may have.
func unique() storage.Unique {
	all := storage.Unique{}
	for _, k := range builtin.Resources() {
		if k.Strategy.Unique != nil {
			all[k.GroupResource()] = k.Strategy.Unique
		}
	}
	return all
}

// reportedVersion makes /version report the version of this build, also where the
// build did not stamp the library's own variables.
type reportedVersion struct {
	basecompatibility.EffectiveVersion
	binary     *utilversion.Version
	gitVersion string
}

// Info implements EffectiveVersion.
func (v reportedVersion) Info() *version.Info {
	info := v.EffectiveVersion.Info()
	info.Major, info.Minor = strconv.FormatUint(uint64(v.binary.Major()), 10), strconv.FormatUint(uint64(v.binary.Minor()), 10)
	info.GitVersion = v.gitVersion
	return info
}

// clusterServices would find the address of a webhook that names a Service. No
// proxy routes to services here, so webhooks have to be given by URL.
type clusterServices struct{}

// ResolveEndpoint implements webhook.ServiceResolver.
func (clusterServices) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	return nil, fmt.Errorf("service %s/%s:%d cannot be reached from the API server: give the webhook a url instead of a service", namespace, name, port)
}

func webhookAuthentication(loopback *rest.Config) webhook.AuthenticationInfoResolverWrapper {
	return webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, loopback, noop.NewTracerProvider())
}
