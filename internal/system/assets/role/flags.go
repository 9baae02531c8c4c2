package role

import "strings"

// Kind is the kind of a flag's value.
type Kind int

// The kinds of flags.
const (
	Text Kind = iota
	Bool
	Number
	Duration
	List     // separated by commas
	Repeated // one value each time
	Map      // name=value, separated by commas
)

// String implements fmt.Stringer.
func (k Kind) String() string {
	return [...]string{"string", "", "int", "duration", "strings", "string", "name=value"}[k]
}

// Flag is a flag of kube-apiserver.
type Flag struct {
	Name  string
	Kind  Kind
	Usage string
	// Idle is the reason why the flag has no effect here; empty if it has one.
	Idle string
}

// Flags returns the flags of kube-apiserver, the ones with an effect first.
func Flags() []Flag { return append(effective(), idle()...) }

func effective() []Flag {
	return []Flag{
		{Name: "admission-control-config-file", Usage: "AdmissionConfiguration of the plug-ins for webhooks and of PodSecurity"},
		{Name: "advertise-address", Usage: "IP address in the endpoints of the service default/kubernetes"},
		{Name: "api-audiences", Kind: List, Usage: "audiences; a service account token must name one of them (default: the issuers)"},
		{Name: "audit-log-path", Usage: "file of the audit log, - for stdout; needs --audit-policy-file"},
		{Name: "audit-policy-file", Usage: "audit policy"},
		{Name: "authentication-token-webhook-cache-ttl", Kind: Duration, Usage: "how long the webhook's answers are cached (default 2m)"},
		{Name: "authentication-token-webhook-config-file", Usage: "kubeconfig of the webhook that reviews tokens"},
		{Name: "authentication-token-webhook-version", Usage: "version of TokenReviews: v1 or v1beta1 (default v1beta1)"},
		{Name: "authorization-mode", Kind: List, Usage: "AlwaysAllow, AlwaysDeny, Node, RBAC or Webhook (default RBAC)"},
		{Name: "authorization-webhook-cache-authorized-ttl", Kind: Duration, Usage: "how long answers that allow are cached (default 5m)"},
		{Name: "authorization-webhook-cache-unauthorized-ttl", Kind: Duration, Usage: "how long answers that do not allow are cached (default 30s)"},
		{Name: "authorization-webhook-config-file", Usage: "kubeconfig of the webhook of --authorization-mode=Webhook"},
		{Name: "authorization-webhook-version", Usage: "version of SubjectAccessReviews: v1 or v1beta1 (default v1beta1)"},
		{Name: "bind-address", Usage: "IP address to listen on (default 127.0.0.1)"},
		{Name: "cert-dir", Usage: "directory of apiserver.crt and apiserver.key, which are made if missing"},
		{Name: "client-ca-file", Usage: "authority of client certificates; the common name is the user, organizations are the groups"},
		{Name: "controllers", Kind: List, Usage: "controllers to run: gc, namespace, protection, workloads, scheduler, or none"},
		{Name: "disable-admission-plugins", Kind: List, Usage: "admission plug-ins to disable"},
		{Name: "emulated-version", Kind: List, Usage: "minor of Kubernetes whose API is served, such as 1.36 or kube=1.36 (default: $COPPICE_KUBERNETES, else that of this binary)"},
		{Name: "enable-admission-plugins", Kind: List, Usage: "admission plug-ins to enable; OwnerReferencesPermissionEnforcement is not enabled by default"},
		{Name: "enable-garbage-collector", Kind: Bool, Usage: "whether deletions add the finalizers of a garbage collector (default true)"},
		{Name: "etcd-cafile", Usage: "authority of the etcd servers"},
		{Name: "etcd-certfile", Usage: "client certificate for etcd"},
		{Name: "etcd-keyfile", Usage: "key of --etcd-certfile"},
		{Name: "etcd-prefix", Usage: "prefix of all keys in etcd (default /registry)"},
		{Name: "etcd-servers", Kind: List, Usage: "URLs of etcd; without any, an etcd in this process keeps the objects in memory"},
		{Name: "external-hostname", Usage: "name of the server for its clients"},
		{Name: "feature-gates", Kind: Map, Usage: "feature gates of the libraries of this server"},
		{Name: "max-mutating-requests-inflight", Kind: Number, Usage: "writes at a time (default 200)"},
		{Name: "max-requests-inflight", Kind: Number, Usage: "other requests at a time (default 400)"},
		{Name: "nodes", Kind: Number, Usage: "simulated nodes (default: $COPPICE_NODES, else 0)"},
		{Name: "secure-port", Kind: Number, Usage: "port to serve HTTPS on (default 6443)"},
		{Name: "service-account-issuer", Kind: Repeated, Usage: "issuers of service account tokens; the first one issues, all are accepted"},
		{Name: "service-account-key-file", Kind: Repeated, Usage: "public keys of service account tokens"},
		{Name: "service-account-signing-key-file", Usage: "private key that signs service account tokens"},
		{Name: "service-cluster-ip-range", Usage: "range of the cluster IPs of services"},
		{Name: "service-node-port-range", Usage: "range of node ports, such as 30000-32767"},
		{Name: "tls-cert-file", Usage: "serving certificate"},
		{Name: "tls-min-version", Usage: "least version of TLS: VersionTLS12 or VersionTLS13 (default VersionTLS12)"},
		{Name: "tls-private-key-file", Usage: "key of --tls-cert-file"},
		{Name: "token-auth-file", Usage: "CSV file of token, user, uid, groups"},
		{Name: "v", Kind: Number, Usage: "verbosity: 2 logs decisions, too, and 4 the messages of the libraries"},
	}
}

// idle returns the flags that have no effect. In the text, each reason is followed by its flags, and each
// flag by its kind unless its value is text.
func idle() []Flag {
	kinds := map[string]Kind{"bool": Bool, "int": Number, "duration": Duration, "list": List, "map": Map, "text": Text}
	var all []Flag
	for line := range strings.SplitSeq(strings.TrimSpace(idleFlags), "\n") {
		reason, names, _ := strings.Cut(line, ": ")
		for entry := range strings.SplitSeq(names, " ") {
			name, kind, _ := strings.Cut(entry, "=")
			all = append(all, Flag{Name: name, Kind: kinds[kind], Idle: reason})
		}
	}
	return all
}

const idleFlags = `
privileged containers are always allowed: allow-privileged=bool
all known groups and versions are served: runtime-config=map emulation-forward-compatible=bool runtime-config-emulation-forward-compatible=bool min-compatibility-version=list
collections are deleted eight objects at a time: delete-collection-workers=int
anonymous users may read the health checks only: anonymous-auth=bool
front proxies are those of the control plane's own authority: requestheader-allowed-names=list requestheader-client-ca-file requestheader-extra-headers-prefix=list requestheader-group-headers=list requestheader-uid-headers=list requestheader-username-headers=list proxy-client-cert-file proxy-client-key-file
this kind of authentication is not supported: authentication-config enable-bootstrap-token-auth=bool oidc-ca-file oidc-client-id oidc-groups-claim oidc-groups-prefix oidc-issuer-url oidc-required-claim=map oidc-signing-algs=list oidc-username-claim oidc-username-prefix
service account tokens have no such setting: service-account-extend-token-expiration=bool service-account-jwks-uri service-account-lookup=bool service-account-max-token-expiration=duration service-account-signing-endpoint
this kind of authorization is not supported: authorization-config authorization-policy-file
use --enable-admission-plugins: admission-control=list
the default tolerations of pods are for 300 seconds: default-not-ready-toleration-seconds=int default-unreachable-toleration-seconds=int
the audit log is written at once, and to a file only: audit-log-batch-buffer-size=int audit-log-batch-max-size=int audit-log-batch-max-wait=duration audit-log-batch-throttle-burst=int audit-log-batch-throttle-enable=bool audit-log-batch-throttle-qps audit-log-compress=bool audit-log-format audit-log-maxage=int audit-log-maxbackup=int audit-log-maxsize=int audit-log-mode audit-log-truncate-enabled=bool audit-log-truncate-max-batch-size=int audit-log-truncate-max-event-size=int audit-log-version audit-webhook-batch-buffer-size=int audit-webhook-batch-max-size=int audit-webhook-batch-max-wait=duration audit-webhook-batch-throttle-burst=int audit-webhook-batch-throttle-enable=bool audit-webhook-batch-throttle-qps audit-webhook-config-file audit-webhook-initial-backoff=duration audit-webhook-mode audit-webhook-truncate-enabled=bool audit-webhook-truncate-max-batch-size=int audit-webhook-truncate-max-event-size=int audit-webhook-version
the storage has no such setting: encryption-provider-config encryption-provider-config-automatic-reload=bool etcd-compaction-interval=duration etcd-count-metric-poll-period=duration etcd-db-metric-poll-interval=duration etcd-healthcheck-timeout=duration etcd-readycheck-timeout=duration etcd-servers-overrides=list lease-reuse-duration-seconds=int storage-backend storage-media-type storage-initialization-timeout=duration watch-cache=bool watch-cache-sizes=list event-ttl=duration
serving has no such setting: cors-allowed-origins=list disable-http2-serving=bool goaway-chance http2-max-streams-per-connection=int livez-grace-period=duration max-connection-bytes-per-sec=int min-request-timeout=int permit-address-sharing=bool permit-port-sharing=bool request-timeout=duration shutdown-delay-duration=duration shutdown-send-retry-after=bool shutdown-watch-termination-grace-period=duration strict-transport-security-directives=list tls-cipher-suites=list tls-curve-preferences=list tls-sni-cert-key enable-priority-and-fairness=bool
connections to nodes have no such setting: egress-selector-config-file enable-aggregator-routing=bool aggregator-reject-forwarding-redirect=bool kubelet-certificate-authority kubelet-client-certificate kubelet-client-key kubelet-preferred-address-types=list kubelet-timeout=duration
the service default/kubernetes has no such setting: endpoint-reconciler-type kubernetes-service-node-port=int peer-advertise-ip peer-advertise-port peer-ca-file
the server elects no leaders of other components: coordinated-leadership-lease-duration=duration coordinated-leadership-renew-deadline=duration coordinated-leadership-retry-period=duration
logs and metrics have no such setting: allow-metric-labels=map allow-metric-labels-manifest disabled-metrics=list show-hidden-metrics-for-version log-flush-frequency=duration log-json-info-buffer-size log-json-split-stream=bool log-text-info-buffer-size log-text-split-stream=bool logging-format vmodule tracing-config-file enable-logs-handler=bool contention-profiling=bool debug-socket-path profiling=bool logtostderr=bool alsologtostderr=bool
`
