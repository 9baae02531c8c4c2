package podstreams

import (
	"net/http"
	"net/url"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/registry/rest"
	translate "k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// forward returns a handler that forwards a stream. It translates WebSockets that can close single streams,
// and WebSockets for port forwarding, to SPDY; it forwards all other streams unchanged.
func forward(to *url.URL, transport http.RoundTripper, r kubeletapi.StreamRequest, responder rest.Responder) http.Handler {
	direct := proxy.NewUpgradeAwareHandler(to, transport, false, true, proxy.NewErrorResponder(responder))
	direct.RejectForwardingRedirects = true
	if r.Kind == kubeletapi.PortForward {
		return translate.NewTranslatingHandler(direct, translate.NewTunnelingHandler(direct), wsstream.IsWebSocketRequestWithTunnelingProtocol)
	}
	process := translate.NewStreamTranslatorHandler(to, transport, 0, translate.Options{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Tty: r.TTY})
	return translate.NewTranslatingHandler(direct, process, wsstream.IsWebSocketRequestWithStreamCloseProtocol)
}
