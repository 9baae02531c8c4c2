package apiserver

import (
	"cmp"
	"context"

	"k8s.io/apiserver/pkg/endpoints/filters"

	"github.com/coppice-dev/coppice/internal/apiserver/faults"
	"github.com/coppice-dev/coppice/internal/apiserver/openapi"
	"github.com/coppice-dev/coppice/internal/collect/protected"
)

// serve adds the hooks, the paths that are not resources, and OpenAPI, which needs all resources to be installed.
// It returns the function that serves until its context ends.
func serve(c completedConfig, f *foundation, s *security, apis *apis, r *registration) (prepared func(context.Context) error, err error) {
	generic := apis.generic
	if err := addHooks(generic, hooks{
		config: c, client: f.client, informers: f.informers, access: s.access, roles: f.roles, aggregation: f.aggregation,
		start: f.start, defaults: f.schemes.Hub.Default, confirmations: s.confirmations, registration: r,
	}); err != nil {
		return nil, err
	}
	generic.ShutdownTimeout = cmp.Or(c.ConnectionGrace, connectionGrace)
	prepared = generic.PrepareRun().RunWithContext
	paths := generic.Handler.NonGoRestfulMux
	paths.Handle(SnapshotPath, snapshotHandler{c.Store})
	paths.Handle(NewestPath, newestHandler{c.Store})
	paths.Handle(protected.DefaultsPath, filters.WithAuthorization(protected.ServeDefaults(c.Protect), unrestricted(s.access), f.schemes.Codecs))
	paths.Handle(faults.Path, sameOrigin(f.faults.Handler(unrestricted(s.access), c.Faults.Refused)))
	issuer, err := s.access.IssuerDiscovery(generic.ExternalAddress)
	if err != nil { // like upstream: tokens are issued nevertheless
		c.Log.Warn("the issuer of service account tokens cannot be discovered", "reason", err)
	}
	for path, handler := range issuer {
		paths.Handle(path, handler)
	}
	definitions := apis.definitions.GetStore()
	openapi.InstallV2(generic, f.schemes.External, c.Version, definitions, f.aggregation.OpenAPIV2)
	openapi.InstallV3(generic, f.base.OpenAPIV3Config, c.Version, definitions)
	// The groups were installed with these definitions. Later descriptions of types create their own.
	f.base.OpenAPIV3Config.Definitions = nil
	return prepared, nil
}
