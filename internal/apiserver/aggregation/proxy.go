package aggregation

import (
	"math/rand/v2"
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/proxy"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	proxyutil "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/transport"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// unavailable is the response of kube-apiserver for an unavailable server.
const unavailable = "service unavailable"

// proxy forwards a request to the server, in the name of its user.
func (a *Aggregator) proxy(w http.ResponseWriter, r *http.Request, b *backend) {
	if b.broken != nil {
		http.Error(w, escape.Line(b.broken.Error()), http.StatusInternalServerError)
		return
	}
	if !b.available.Load() {
		http.Error(w, unavailable, http.StatusServiceUnavailable)
		return
	}
	user, ok := genericrequest.UserFrom(r.Context())
	if !ok {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	addresses, err := a.addresses(r.Context(), b)
	if err != nil {
		http.Error(w, unavailable, http.StatusServiceUnavailable)
		return
	}
	location := &url.URL{Scheme: "https", Host: addresses[rand.IntN(len(addresses))], Path: r.URL.Path, RawQuery: r.URL.Query().Encode()}
	onward, done := proxyutil.NewRequestForProxy(location, r)
	defer done()
	// The handler removes such headers of the client.
	upgrade := httpstream.IsUpgradeRequest(r)
	through := transport.NewAuthProxyRoundTripper(user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra(), b.transport)
	if upgrade { // an upgrade bypasses the round tripper
		transport.SetAuthProxyHeaders(onward, user.GetName(), user.GetUID(), user.GetGroups(), user.GetExtra())
	}
	handler := proxy.NewUpgradeAwareHandler(location, through, true, upgrade, responder{func() { a.suspect(b) }})
	handler.RejectForwardingRedirects = true // otherwise the server could send users' credentials elsewhere
	utilflowcontrol.RequestDelegated(r.Context())
	handler.ServeHTTP(w, onward)
}

// responder answers requests that could not reach the server.
type responder struct{ failed func() }

// Error implements proxy.ErrorResponder.
func (p responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil { // the client has not disconnected
		p.failed()
	}
	http.Error(w, escape.Line(err.Error()), http.StatusServiceUnavailable)
}

// suspect requests a check of a server that a request could not reach, so that discovery and the condition
// are updated before the next regular check.
func (a *Aggregator) suspect(b *backend) {
	select {
	case a.requests <- controller.Request{Key: cache.ObjectName{Name: b.version.Version + "." + b.version.Group}}:
	default: // other checks are queued already
	}
}
