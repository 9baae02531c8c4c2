package apiserver

import (
	"net/http"
	"strings"

	"k8s.io/apiserver/pkg/endpoints/filters"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/restriction"
	"github.com/coppice-dev/coppice/internal/apiserver/deleteflow"
	"github.com/coppice-dev/coppice/internal/apiserver/establishing"
	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
	"github.com/coppice-dev/coppice/internal/apiserver/storage"
)

// handlerChain returns the filters around a handler. Restrictions, aggregation, definitions and the
// delete flow come after those of k8s.io/apiserver, so after authentication and authorization. The gate
// comes first: a request that waits takes no place of one that priority and fairness counts.
func handlerChain(s *Server, flow *deleteflow.Flow) func(http.Handler, *genericapiserver.Config) http.Handler {
	return func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		handler = withBoundedYAML(storage.WithMetadataLists(handler, c.Serializer), c.MaxRequestBodyBytes, c.Serializer)
		handler = s.aggregation.Filter(establishing.WithDefinitions(flow.WithRequest(handler, c.Serializer), s.establisher))
		handler = restriction.WithRestrictions(handler, s.access.Restrictions, c.Serializer)
		everybody, own := genericapiserver.DefaultBuildHandlerChain(handler, c), ownChain(handler, c)
		everybody = s.gate.filter(everybody, c.Authentication.Authenticator, c.Serializer)
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if inprocess.Is(r.Context()) && isOfCollection(r) && s.isReady() {
				own.ServeHTTP(w, r)
				return
			}
			everybody.ServeHTTP(w, r)
		})
	}
}

// isOfCollection reports whether a request of this process is one that the collector may have sent: a
// DELETE, or a PATCH of owner references and finalizers, in its own name.
func isOfCollection(r *http.Request) bool {
	if r.Method != http.MethodDelete && r.Method != http.MethodPatch {
		return false
	}
	return !impersonates(r)
}

// impersonates reports whether a request asks to be made in another user's name.
func impersonates(r *http.Request) bool {
	for name := range r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			return true
		}
	}
	return false
}

// ownChain returns the filters around the handler of the DELETEs and PATCHes that this process sends
// itself: those of a cascade, above all, one for each object. They are authenticated, authorized and logged as
// all others are. They are left out where a filter protects the server from its clients, or tells
// how long it takes: priority and fairness, since the collector limits how many it sends at a time; the
// timeout, for which each request gets a goroutine, since their contexts end; tracing; CORS. Together they take a
// quarter of the processor time of a cascade. The filter that has somebody impersonated is left out, too:
// who asks for that does not come here.
//
// Until the server is ready, a path may be missing that is only being added, which one of the filters
// for everybody answers with 503, not 404.
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
