package openapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/aggregator"
	kubebuilder "k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

const v2Path = "/openapi/v2"

// documentV2 serves OpenAPI v2, which kubectl before 1.27 uses to explain and validate. It rebuilds the document
// when a CustomResourceDefinition has changed.
type documentV2 struct {
	config      *common.Config
	routes      func() []*restful.WebService
	definitions cache.Store // of CustomResourceDefinitions
	others      func(context.Context) []Document

	mu      sync.Mutex
	version string       // guarded by mu: of the APIs that handler describes
	handler http.Handler // guarded by mu
}

// Document describes the API of another server.
type Document struct {
	Spec *spec.Swagger // is not changed
	// Version identifies the document.
	Version string
}

// InstallV2 serves OpenAPI v2. version is the version of the server, definitions has the
// CustomResourceDefinitions, and others returns the documents of other servers.
func InstallV2(server *genericapiserver.GenericAPIServer, external *runtime.Scheme, version string, definitions cache.Store, others func(context.Context) []Document) {
	server.Handler.NonGoRestfulMux.Handle(v2Path, &documentV2{
		config:      v2Config(external, version),
		routes:      server.Handler.GoRestfulContainer.RegisteredWebServices,
		definitions: definitions,
		others:      others,
	})
}

// ServeHTTP implements http.Handler.
func (s *documentV2) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	current, err := s.current(r.Context())
	if err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusInternalServerError)
		return
	}
	current.ServeHTTP(w, r)
}

func (s *documentV2) current(ctx context.Context) (http.Handler, error) {
	definitions, others := served(s.definitions), s.others(ctx)
	version := versionOf(definitions, others)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handler != nil && s.version == version {
		return s.handler, nil
	}
	document, err := s.build(definitions, others)
	if err != nil {
		return nil, err
	}
	var fresh captured
	handler.NewOpenAPIService(document).RegisterOpenAPIVersionedService(v2Path, &fresh)
	s.handler, s.version = fresh.Handler, version
	return s.handler, nil
}

func versionOf(definitions []*apiextensionsv1.CustomResourceDefinition, others []Document) string {
	var version strings.Builder
	for _, crd := range definitions {
		fmt.Fprintf(&version, "%s@%s ", crd.UID, crd.ResourceVersion)
	}
	for _, other := range others {
		fmt.Fprintf(&version, "%s ", other.Version)
	}
	return version.String()
}

// build describes the built-in kinds with their routes and custom resources with their definitions, and
// adds the documents of other servers. It renames different types of the same name.
func (s *documentV2) build(definitions []*apiextensionsv1.CustomResourceDefinition, others []Document) (*spec.Swagger, error) {
	document, err := kubebuilder.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices(s.routes()), s.config)
	if err != nil {
		return nil, fmt.Errorf("describe the built-in kinds: %w", err)
	}
	document.Definitions = handler.PruneDefaults(document.Definitions)
	var custom []*spec.Swagger
	for _, crd := range definitions {
		for _, v := range crd.Spec.Versions {
			if !v.Served {
				continue
			}
			document, err := builder.BuildOpenAPIV2(crd, v.Name, builder.Options{V2: true})
			if err != nil {
				return nil, fmt.Errorf("describe version %s of %s: %w", v.Name, crd.Name, err)
			}
			custom = append(custom, document)
		}
	}
	merged, err := builder.MergeSpecs(document, custom...)
	if err != nil {
		return nil, fmt.Errorf("merge the descriptions of custom resources: %w", err)
	}
	for _, other := range others {
		if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(merged, other.Spec); err != nil {
			return nil, fmt.Errorf("merge the description %s: %w", other.Version, err)
		}
	}
	return merged, nil
}

// captured is a common.PathHandler that keeps the handler that kube-openapi registers.
type captured struct{ http.Handler }

// Handle implements common.PathHandler.
func (h *captured) Handle(_ string, registered http.Handler) { h.Handler = registered }
