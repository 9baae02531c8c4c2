package cli

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/coppice-dev/coppice/internal/apiserver/recyclebin"
	"github.com/coppice-dev/coppice/internal/collect/process"
	"github.com/coppice-dev/coppice/internal/tools/admission"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
	"github.com/coppice-dev/coppice/internal/tools/web"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
	"github.com/coppice-dev/coppice/internal/tools/web/page"
)

// checkAddresses validates the flags of the diagnostics.
func (f *collectFlags) checkAddresses() error {
	if f.bindAddress != "0" && !web.IsLoopbackAddress(f.bindAddress) {
		return usageError{fmt.Errorf("--bind-address %s is not an address of the loopback interface with a port, such as %s: "+
			"the diagnostics name objects and do not authenticate requests; use --metrics-address for probes and Prometheus", f.bindAddress, web.DefaultAddress)}
	}
	if _, _, err := net.SplitHostPort(f.metricsAddress); f.metricsAddress != "0" && err != nil {
		return usageError{fmt.Errorf("--metrics-address %s is not an address with a port, such as :10271", f.metricsAddress)}
	}
	return nil
}

// listen opens the addresses of the diagnostics, so that an address in use is an error at the
// start, and returns functions that serve them. access checks the requests to the API.
func (f *collectFlags) listen(ctx context.Context, c metrics.Controllers, access api.Access, r *process.Role, log *slog.Logger) ([]func(context.Context) error, error) {
	diagnostics := http.NewServeMux()
	diagnostics.Handle(api.Prefix+"/", api.Handler(api.Of(c.Controllers, admission.New(), f.protect.confirm), access))
	diagnostics.Handle(recyclebin.Path, recyclebin.Off("only a server of coppice up --recycle=SIZE,AGE keeps deleted objects"))
	diagnostics.Handle(page.Root, page.Handler())
	diagnostics.Handle("/", web.Handler(web.Of(c)))
	warm := f.election.ready(c)
	var servers []func(context.Context) error
	for _, endpoint := range []struct {
		flag, address string
		handler       http.Handler
	}{
		{"--bind-address", f.bindAddress, web.Local(web.StandBy(r.StandsBy, warm, diagnostics))},
		{"--metrics-address", f.metricsAddress, web.StandBy(r.StandsBy, warm, web.Probes(web.Of(c)))},
	} {
		if endpoint.address == "0" {
			continue
		}
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", endpoint.address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w; choose another address with %s, 0 for none", endpoint.address, ask.CauseOf(err), endpoint.flag)
		}
		log.InfoContext(ctx, "serving diagnostics", "flag", endpoint.flag, "address", "http://"+listener.Addr().String())
		servers = append(servers, serveOn(listener, endpoint.handler))
	}
	return servers, nil
}
