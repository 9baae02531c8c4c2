package apiserver

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/filters"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/accesscontrol"
	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/apiserver/definitions"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// handlerChain returns the filters around a handler. Restrictions, aggregation, definitions and the delete
// flow come after the filters of k8s.io/apiserver, so after authentication and authorization. The gate
// comes first: a request that waits there takes no seat of priority and fairness.
func handlerChain(f *foundation, access *accesscontrol.AccessControl, flow *deleteflow.Flow) func(http.Handler, *genericapiserver.Config) http.Handler {
	start, aggregation, establisher, faults := f.start, f.aggregation, f.establisher, f.faults
	return func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		objects := withBoundedErrors(withBoundedYAML(storage.WithMetadataLists(handler, c.Serializer), c.MaxRequestBodyBytes, c.Serializer), c.Serializer)
		handler = withStreams(flow.WithRequest(objects, c.Serializer), handler)
		handler = aggregation.Filter(definitions.WithDefinitions(handler, establisher))
		handler = restriction.WithRestrictions(handler, access.Restrictions, c.Serializer)
		everybody, own := genericapiserver.DefaultBuildHandlerChain(faults.Requests(handler), c), ownChain(handler, c)
		everybody = withoutForgery(start.gate.filter(faults.Answers(everybody), c.Authentication.Authenticator, c.Serializer))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if inprocess.Is(r.Context()) && isOfCollection(r) && start.isReady() {
				own.ServeHTTP(w, r)
				return
			}
			everybody.ServeHTTP(w, r)
		})
	}
}

// withStreams passes requests that go on to a pod, a service or a node directly to streams. The filters of objects keep
// the body of a request, so that it can be served again: a body of a proxied request has no limit. They also keep
// responses from being flushed.
func withStreams(objects, streams http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if info, ok := apirequest.RequestInfoFrom(r.Context()); ok && isStream(info) {
			streams.ServeHTTP(w, r)
			return
		}
		objects.ServeHTTP(w, r)
	})
}

// isOfCollection reports whether the collector may have sent a request of this process: a DELETE or PATCH
// without impersonation.
func isOfCollection(r *http.Request) bool {
	if r.Method != http.MethodDelete && r.Method != http.MethodPatch {
		return false
	}
	return !impersonates(r)
}

// impersonates reports whether a request impersonates another user.
func impersonates(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// ownChain returns the filters around the handler of the DELETEs and PATCHes that this process sends to itself,
// most of them in cascades: one for each object. These requests are authenticated, authorized and logged like all
// others. ownChain leaves out filters that protect the server from its clients or measure it: priority and
// fairness, since the collector limits its concurrent requests; the timeout, which starts a goroutine for each
// request, since the contexts of these requests end; tracing; CORS. Together they take a quarter of the processor
// time of a cascade. Impersonation is left out, too: handlerChain sends such requests through the other filters.
//
// Until the server is ready, handlerChain does not use ownChain: the path of a resource that is just being
// added may be missing, and only the full chain answers 503 instead of 404.
func ownChain(handler http.Handler, c *genericapiserver.Config) http.Handler {
	handler = filters.WithAuthorization(handler, c.Authorization.Authorizer, c.Serializer)
	handler = filters.WithAudit(handler, c.AuditBackend, c.AuditPolicyRuleEvaluator, nil)
	failed := filters.WithFailedAuthenticationAudit(filters.Unauthorized(c.Serializer), c.AuditBackend, c.AuditPolicyRuleEvaluator)
	handler = filters.WithAuthentication(handler, c.Authentication.Authenticator, failed, c.Authentication.APIAudiences, c.Authentication.RequestHeaderConfig)
	handler = filters.WithWarningRecorder(handler)
	handler = filters.WithLatencyTrackers(handler)
	handler = filters.WithRequestInfo(handler, c.RequestInfoResolver)
	handler = filters.WithRequestReceivedTimestamp(handler)
	handler = genericfilters.WithPanicRecovery(handler, c.RequestInfoResolver)
	return filters.WithAuditInit(handler)
}
