package assets

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/apiserver/admissionchain"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/serviceaccounttoken"
	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/node/agent/nodeconfig"
	"github.com/coppice-dev/coppice/internal/system"
	"github.com/coppice-dev/coppice/internal/tools/version"
)

// The environment variables that configure more than the flags of a test framework.
const (
	controllersVariable = "COPPICE_CONTROLLERS"
	kubernetesVariable  = "COPPICE_KUBERNETES"
	nodesVariable       = "COPPICE_NODES"
)

// The names of the controllers in coppice up, and the name for none of them.
const (
	controllerNone       = "none"
	controllerGC         = "gc"
	controllerNamespace  = "namespace"
	controllerProtection = "protection"
	controllerWorkloads  = "workloads"
	controllerScheduler  = "scheduler"
)

// defaultController is the default of COPPICE_CONTROLLERS (docs/decisions/0027-the-seat-collects-on-request.md).
const defaultController = controllerNone

// kube-apiserver's defaults.
const (
	defaultPort        = 6443
	tokenTTL           = 2 * time.Minute
	authorizedTTL      = 5 * time.Minute
	unauthorizedTTL    = 30 * time.Second
	leastTLS           = "VersionTLS12"
	servingCertificate = "apiserver.crt"
	servingKey         = "apiserver.key"
)

// APIServer is the configuration from the flags of kube-apiserver.
type APIServer struct {
	Options system.Options
	// Version means that the process should only print its version, which is Options.Version.
	Version bool
	// Verbosity is --v.
	Verbosity int
	// CertDir is --cert-dir.
	CertDir string
	// FeatureGates are the given feature gates.
	FeatureGates map[string]bool
	// Notes are messages about flags without effect, one line each.
	Notes []string
}

// ParseAPIServer parses the flags of kube-apiserver. environment returns the variables that add to them, and
// settings has the settings of the directory.
func ParseAPIServer(args []string, environment func(string) string, settings Settings) (APIServer, error) {
	v, err := parse(args)
	if err != nil {
		return APIServer{}, err
	}
	a := APIServer{Version: *v.bools["version"], Verbosity: v.number("v", 0), CertDir: v.text("cert-dir")}
	o := &a.Options
	if o.Version, err = kubernetesFrom(v, environment, settings); err != nil || a.Version {
		return a, err
	}
	for _, apply := range []func(*values, *system.Options) error{addressFrom, storageFrom, serviceRangeFrom, auditFrom, admissionFrom, accessFrom} {
		if err := apply(v, o); err != nil {
			return APIServer{}, err
		}
	}
	if err := controllersFrom(v, o, environment, settings.Controllers); err != nil {
		return APIServer{}, err
	}
	if a.FeatureGates, err = gatesFrom(v); err != nil {
		return APIServer{}, err
	}
	if o.Faults, err = faults.ParsePlan(environment(faults.Variable)); err != nil {
		return APIServer{}, fmt.Errorf("$%s: %w", faults.Variable, err)
	}
	o.Server.MaxRequests, o.Server.MaxWrites = v.number("max-requests-inflight", 0), v.number("max-mutating-requests-inflight", 0)
	if o.Server.MaxRequests < 0 || o.Server.MaxWrites < 0 {
		return APIServer{}, fmt.Errorf("--max-requests-inflight and --max-mutating-requests-inflight cannot be negative")
	}
	a.Notes = v.notes
	return a, nil
}

// kubernetesFrom returns the version of Kubernetes to report, of the minor whose API the flag, or else the environment, or else
// the directory of the assets names.
func kubernetesFrom(v *values, environment func(string) string, settings Settings) (string, error) {
	minor, source := settings.Kubernetes, "the file "+kubernetesFile
	if fromEnvironment := environment(kubernetesVariable); fromEnvironment != "" {
		minor, source = fromEnvironment, "$"+kubernetesVariable
	}
	for _, given := range v.list("emulated-version") {
		component, ofKube, isNamed := strings.Cut(given, "=")
		switch {
		case !isNamed:
			minor, source = given, "--emulated-version"
		case component == "kube":
			minor, source = ofKube, "--emulated-version"
		default:
			return "", fmt.Errorf("--emulated-version %s: the only component is kube, as in kube=1.36", given)
		}
	}
	kubernetes, err := version.KubernetesOf(minor)
	if err != nil {
		return "", fmt.Errorf("%s: %w", source, err)
	}
	return kubernetes, nil
}

func addressFrom(v *values, o *system.Options) error {
	address := cmp.Or(v.text("bind-address"), "127.0.0.1")
	if o.BindAddress = net.ParseIP(address); o.BindAddress == nil {
		return fmt.Errorf("--bind-address %q is not an IP address", address)
	}
	if o.Port = v.number("secure-port", defaultPort); o.Port < 0 || o.Port > 65535 {
		return fmt.Errorf("--secure-port %d is not between 0 and 65535", o.Port)
	}
	if advertised := v.text("advertise-address"); advertised != "" {
		ip := net.ParseIP(advertised)
		if ip == nil {
			return fmt.Errorf("--advertise-address %q is not an IP address", advertised)
		}
		if ip.IsGlobalUnicast() {
			o.AdvertiseAddress = ip
		} else {
			v.note("--advertise-address=%s has no effect: no other machine reaches this server there", advertised)
		}
	}
	o.ExternalHost = v.text("external-hostname")
	return nil
}

// storageFrom configures the storage in --etcd-servers. The keys and similar files of the run are in a
// directory in --cert-dir. If this process cannot remove them, the creator of --cert-dir does.
func storageFrom(v *values, o *system.Options) error {
	o.Ephemeral, o.TempDir = true, v.text("cert-dir")
	o.Etcd = system.Etcd{
		Servers: v.list("etcd-servers"), CAFile: v.text("etcd-cafile"), CertFile: v.text("etcd-certfile"), KeyFile: v.text("etcd-keyfile"),
		Prefix: cmp.Or(v.text("etcd-prefix"), system.DefaultOptions().Etcd.Prefix), Exclusive: true,
	}
	if len(o.Etcd.Servers) == 0 {
		v.note("--etcd-servers is empty: the objects are kept in this process")
		return nil
	}
	if err := o.Etcd.Validate(); err != nil {
		return fmt.Errorf("--etcd-servers: %w", err)
	}
	return nil
}

func serviceRangeFrom(v *values, o *system.Options) error {
	addresses, second, _ := strings.Cut(v.text("service-cluster-ip-range"), ",")
	if second != "" {
		v.note("--service-cluster-ip-range: services have addresses of one range, the first")
	}
	var err error
	if o.Services, err = system.ServiceRanges(addresses); err != nil {
		return fmt.Errorf("--service-cluster-ip-range %w", err)
	}
	ports := v.text("service-node-port-range")
	if ports == "" {
		return nil
	}
	first, last, _ := strings.Cut(ports, "-")
	low, err := strconv.ParseUint(first, 10, 16)
	if err == nil {
		var high uint64
		high, err = strconv.ParseUint(last, 10, 16)
		o.Services.FirstPort, o.Services.LastPort = int32(low), int32(high)
	}
	if err != nil || o.Services.FirstPort > o.Services.LastPort {
		return fmt.Errorf("--service-node-port-range %q is not a range such as 30000-32767", ports)
	}
	return nil
}

// auditFrom configures the audit log as in kube-apiserver: it needs a file and a policy.
func auditFrom(v *values, o *system.Options) error {
	o.AuditPath, o.Server.AuditPolicy, o.Server.TrustAuditDir = v.text("audit-log-path"), v.text("audit-policy-file"), true
	if o.AuditPath == "" || o.Server.AuditPolicy == "" {
		if o.AuditPath != "" {
			v.note("--audit-log-path has no effect without --audit-policy-file")
		}
		o.AuditPath, o.Server.AuditPolicy = system.NoAuditLog, ""
	}
	return nil
}

// absent returns the admission plug-ins of kube-apiserver that this server lacks.
func absent() []string {
	return []string{
		"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "DenyServiceExternalIPs", "EventRateLimit",
		"ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "NamespaceAutoProvision", "NamespaceExists",
		"NodeDeclaredFeatureValidator", "PodNodeSelector", "PodTolerationRestriction",
	}
}

// always returns the admission plug-ins of kube-apiserver whose work other parts of the server always do.
func always() []string {
	return []string{"DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "NodeRestriction", "Priority", "RuntimeClass"}
}

// admissionFrom disables the plug-ins in --disable-admission-plugins, and the one for permissions on owner
// references unless it is enabled: kube-apiserver does not enable it by default.
func admissionFrom(v *values, o *system.Options) error {
	o.Server.AdmissionConfig = v.text("admission-control-config-file")
	enabled, disabled := v.list("enable-admission-plugins"), v.list("disable-admission-plugins")
	for _, name := range slices.Concat(enabled, disabled) {
		if !slices.Contains(slices.Concat(admissionchain.Optional(), absent(), always()), name) {
			return fmt.Errorf("admission plug-in %q is unknown", name)
		}
	}
	for _, name := range enabled {
		if slices.Contains(disabled, name) {
			return fmt.Errorf("%s is both in --enable-admission-plugins and in --disable-admission-plugins", name)
		}
		if slices.Contains(absent(), name) {
			v.note("--enable-admission-plugins=%s has no effect: this server does not have it", name)
		}
	}
	for _, name := range disabled {
		if slices.Contains(always(), name) {
			v.note("--disable-admission-plugins=%s has no effect: the server always runs that check", name)
		}
	}
	o.Server.DisabledPlugins = disabled
	if !slices.Contains(enabled, system.OwnerReferencesPlugin) {
		o.DisableAdmissionPlugins = []string{system.OwnerReferencesPlugin}
	}
	return nil
}

func accessFrom(v *values, o *system.Options) error {
	c := accesscontrol.External{
		ServingCert: v.text("tls-cert-file"), ServingKey: v.text("tls-private-key-file"), MinTLSVersion: cmp.Or(v.text("tls-min-version"), leastTLS),
		ClientCA: v.text("client-ca-file"), Tokens: v.text("token-auth-file"),
		TokenWebhook: accesscontrol.Webhook{
			Kubeconfig: v.text("authentication-token-webhook-config-file"), Version: v.text("authentication-token-webhook-version"),
			AcceptedFor: v.duration("authentication-token-webhook-cache-ttl", tokenTTL),
		},
		ServiceAccounts: serviceaccounttoken.Files{
			SigningKey: v.text("service-account-signing-key-file"), VerifyingKeys: v.list("service-account-key-file"),
			Issuers: v.list("service-account-issuer"), Audiences: v.list("api-audiences"),
		},
		AuthorizationWebhook: accesscontrol.Webhook{
			Kubeconfig: v.text("authorization-webhook-config-file"), Version: v.text("authorization-webhook-version"),
			AcceptedFor: v.duration("authorization-webhook-cache-authorized-ttl", authorizedTTL),
			RefusedFor:  v.duration("authorization-webhook-cache-unauthorized-ttl", unauthorizedTTL),
		},
	}
	if (c.ServingCert == "") != (c.ServingKey == "") {
		return fmt.Errorf("--tls-cert-file and --tls-private-key-file go together")
	}
	if err := servingFrom(v.text("cert-dir"), &c); err != nil {
		return err
	}
	for _, mode := range v.list("authorization-mode") {
		switch {
		case slices.Contains(accesscontrol.Modes(), mode):
			c.Modes = append(c.Modes, mode)
		case mode == "ABAC":
			v.note("--authorization-mode=ABAC has no effect: this server does not have it, and it allows no request")
			c.Modes = append(c.Modes, accesscontrol.ModeAlwaysDeny)
		default:
			return fmt.Errorf("--authorization-mode %q: choose from %s", mode, strings.Join(accesscontrol.Modes(), ", "))
		}
	}
	o.Server.External = c
	return nil
}

// servingFrom configures the certificate in --cert-dir unless the flags name another one. The server writes
// it if it does not exist.
func servingFrom(dir string, c *accesscontrol.External) error {
	if dir == "" || c.ServingCert != "" {
		return nil
	}
	c.ServingCert, c.ServingKey = filepath.Join(dir, servingCertificate), filepath.Join(dir, servingKey)
	certificate, key := isFile(c.ServingCert), isFile(c.ServingKey)
	if certificate != key {
		return fmt.Errorf("--cert-dir %s has one of %s and %s; they go together", dir, servingCertificate, servingKey)
	}
	c.ServingAbsent = !certificate
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// controllersFrom configures the controllers that the flag, or else the environment, or else the directory
// of the assets names. Other controllers of Kubernetes count as running elsewhere: kube-apiserver does not
// know either which controllers run.
func controllersFrom(v *values, o *system.Options, environment func(string) string, listed string) error {
	names, err := controllersOf(v, environment, listed)
	if err != nil {
		return err
	}
	placement := func(name string) system.Placement {
		if slices.Contains(names, name) {
			return system.InProcess
		}
		return system.Elsewhere
	}
	o.GarbageCollector, o.NamespaceController = placement(controllerGC), placement(controllerNamespace)
	if v.given["enable-garbage-collector"] && !*v.bools["enable-garbage-collector"] {
		o.GarbageCollector = system.Disabled
	}
	o.VolumeProtection, o.Workloads = placement(controllerProtection), placement(controllerWorkloads)
	o.Scheduler = slices.Contains(names, controllerScheduler)

	o.NodeGrace = system.DefaultOptions().NodeGrace
	nodes, err := strconv.Atoi(cmp.Or(environment(nodesVariable), "0"))
	if err != nil {
		return fmt.Errorf("$%s: %q is not a number", nodesVariable, environment(nodesVariable))
	}
	o.Nodes = nodeconfig.Options{Nodes: v.number("nodes", nodes), Runtime: nodeconfig.Simulated}
	return o.Nodes.Validate("--nodes")
}

// controllersOf returns the names of the controllers to run.
func controllersOf(v *values, environment func(string) string, listed string) ([]string, error) {
	var names []string
	var source string
	switch fromEnvironment := environment(controllersVariable); {
	case v.given["controllers"]:
		names, source = v.list("controllers"), "--controllers"
	case fromEnvironment != "":
		names, source = strings.Split(fromEnvironment, ","), "$"+controllersVariable
	case listed != "":
		names, source = strings.Split(listed, ","), "the file "+controllersFile
	default:
		names = []string{defaultController}
	}
	known := []string{controllerGC, controllerNamespace, controllerProtection, controllerWorkloads, controllerScheduler}
	for _, name := range names {
		switch {
		case name == controllerNone && len(names) > 1:
			return nil, fmt.Errorf("%s names controllers beside %s", source, controllerNone)
		case name != controllerNone && !slices.Contains(known, name):
			return nil, fmt.Errorf("%s: controller %q is unknown: choose from %s, or %s", source, name, strings.Join(known, ", "), controllerNone)
		}
	}
	return names, nil
}

// gatesFrom returns the feature gates; a name may have the prefix of a component.
func gatesFrom(v *values) (map[string]bool, error) {
	gates := map[string]bool{}
	names, entries := v.entries("feature-gates")
	for _, name := range names {
		on, err := strconv.ParseBool(entries[name])
		if err != nil {
			return nil, fmt.Errorf("--feature-gates %s=%s is neither true nor false", name, entries[name])
		}
		_, gate, found := strings.Cut(name, ":")
		if !found {
			gate = name
		}
		gates[gate] = on
	}
	return gates, nil
}
