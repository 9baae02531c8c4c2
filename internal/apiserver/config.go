package apiserver

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	discoveryendpoint "k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/apiserver/auth"
	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// When the server stops, it finishes requests in flight, ends watches within watchGrace, and gives
// connections connectionGrace to close: HTTP/2 keeps a connection open for a second after it has sent
// GOAWAY.
const (
	watchGrace      = 100 * time.Millisecond
	connectionGrace = 1200 * time.Millisecond
	// startPatience bounds how long a stopping server waits for its start to finish. The start takes a
	// fraction of a second, unless etcd does not answer.
	startPatience = 10 * time.Second
)

// baseConfig returns the configuration of the generic server without storage,
// authentication, authorization and admission.
func baseConfig(c completedConfig, schemes registry.Schemes, own *inprocess.Loopback) (*genericapiserver.Config, error) {
	base := genericapiserver.NewConfig(schemes.Codecs)
	effective := compatibility.DefaultBuildEffectiveVersion()
	if c.kubernetes.LessThan(effective.EmulationVersion()) {
		effective.SetEmulationVersion(c.kubernetes)
	}
	base.EffectiveVersion = reportedVersion{effective, c.kubernetes, c.Version}
	if err := applySecureServing(c, base); err != nil {
		return nil, err
	}
	if c.Audit != nil {
		if err := applyAudit(base, c.Audit, c.AuditPolicy); err != nil {
			return nil, err
		}
	}
	base.MaxRequestsInFlight = cmp.Or(c.MaxRequests, base.MaxRequestsInFlight)
	base.MaxMutatingRequestsInFlight = cmp.Or(c.MaxWrites, base.MaxMutatingRequestsInFlight)
	base.LoopbackClientConfig = own.Config(base.LoopbackClientConfig)
	base.OpenAPIV3Config = openapi.V3Config(schemes.External)
	base.SkipOpenAPIInstallation = true // package openapi installs it
	base.MergedResourceConfig = apiextensions.DefaultAPIResourceConfigSource()
	base.AggregatedDiscoveryGroupManager = discoveryendpoint.NewResourceManager("apis")
	base.AddReadyzChecks(healthz.NamedCheck("etcd", func(r *http.Request) error { return c.Store.Healthy(r.Context()) }))
	base.LongRunningFunc = longRunning(base.LongRunningFunc)
	base.ShutdownWatchTerminationGracePeriod = watchGrace
	return base, nil
}

// applySecureServing sets up TLS.
func applySecureServing(c completedConfig, base *genericapiserver.Config) error {
	address, ok := c.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("apiserver: Listener is on %s, not on TCP", c.Listener.Addr().Network())
	}
	secure := genericoptions.NewSecureServingOptions()
	secure.Listener, secure.BindAddress, secure.BindPort = c.Listener, address.IP, address.Port
	secure.MinTLSVersion = cmp.Or(c.External.MinTLSVersion, "VersionTLS13")
	if err := useServingCertificate(c, secure, address.IP); err != nil {
		return err
	}
	if err := secure.ApplyTo(&base.SecureServing); err != nil {
		return fmt.Errorf("set up serving: %w", err)
	}
	// SecureServingOptions.WithLoopback would generate a certificate for the loopback, which takes a
	// quarter of the start. Our loopback has a transport of its own (inprocess.Loopback) and needs no TLS.
	var err error
	if base.LoopbackClientConfig, err = base.SecureServing.NewLoopbackClientConfig(rand.Text(), nil); err != nil {
		return fmt.Errorf("set up the loopback: %w", err)
	}
	base.PublicAddress = address.IP
	if address.IP.IsUnspecified() {
		base.PublicAddress = net.IPv4(127, 0, 0, 1)
	}
	return nil
}

// useServingCertificate serves with the certificate from the files, or else with one that the authority
// issues.
func useServingCertificate(c completedConfig, secure *genericoptions.SecureServingOptions, address net.IP) error {
	if c.External.ServingCert != "" && !c.External.ServingAbsent {
		secure.ServerCert.CertKey = genericoptions.CertKey{CertFile: c.External.ServingCert, KeyFile: c.External.ServingKey}
		return nil
	}
	failed := func(err error) { // the old certificate is valid for four more months
		c.Log.Error("serving certificate not renewed", "error", err)
	}
	names := append(slices.Clone(c.ServingNames), c.Services.First().String())
	certificate, err := auth.NewServingCertificate(c.Authority, address, clock.RealClock{}, failed, names...)
	if err != nil {
		return err
	}
	if c.External.ServingAbsent {
		pem, key := certificate.CurrentCertKeyContent()
		if err := c.External.StoreServing(pem, key, c.Authority.Certificate()); err != nil {
			return err
		}
	}
	secure.ServerCert.GeneratedCert = certificate
	return nil
}

// longRunning exempts snapshots, logs and streams to pods from the request timeout, in addition to
// what k8s.io/apiserver exempts.
func longRunning(next apirequest.LongRunningRequestCheck) apirequest.LongRunningRequestCheck {
	return func(r *http.Request, info *apirequest.RequestInfo) bool {
		return info != nil && (isStream(info) || isSnapshot(info)) || next(r, info)
	}
}

// isStream reports whether a request goes on to a pod, a service or a node, in any of its verbs.
func isStream(info *apirequest.RequestInfo) bool {
	return info.IsResourceRequest && slices.Contains([]string{"log", "exec", "attach", "portforward", "proxy"}, info.Subresource)
}

// reportedVersion makes /version report the version of this build even if the linker did not set
// the variables of k8s.io/component-base.
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
