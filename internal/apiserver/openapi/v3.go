package openapi

import (
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

const v3Path = "/openapi/v3"

// InstallV3 serves OpenAPI v3, a document for each group version. Call it after PrepareRun, when all routes
// are registered, with SkipOpenAPIInstallation set in the generic configuration. version is the version of
// the server; definitions has the CustomResourceDefinitions.
//
// apiextensions-apiserver would add the documents of custom resources to the same service, and keep them
// all. It does so only if the server has a StaticOpenAPISpec, which PrepareRun would set if it installed
// OpenAPI itself. Here customV3 builds them for each request.
func InstallV3(server *genericapiserver.GenericAPIServer, config *common.OpenAPIV3Config, version string, definitions cache.Store) {
	service := handler3.NewOpenAPIService()
	builtin := make(map[string]bool)
	// Each document is built from its own copy of the definitions: kube-openapi writes into them while
	// another document may be built or encoded. Building one document at a time takes less memory.
	var building sync.Mutex
	separate := *config
	separate.Definitions = nil
	for _, routes := range server.Handler.GoRestfulContainer.RegisteredWebServices() {
		path := strings.TrimPrefix(routes.RootPath(), "/")
		builtin[path] = true
		service.UpdateGroupVersionLazy(path, cached.Once(cached.Func(func() (*spec3.OpenAPI, string, error) {
			building.Lock()
			defer building.Unlock()
			document, err := builder3.BuildOpenAPISpecFromRoutes(restfuladapter.AdaptWebServices([]*restful.WebService{routes}), &separate)
			if err != nil {
				return nil, "", fmt.Errorf("describe %s: %w", path, err)
			}
			nameSharedTypes(document, path)
			return document, path, nil
		})))
	}
	server.OpenAPIV3VersionedService = service
	custom := &customV3{builtin: service, paths: builtin, version: version, definitions: definitions}
	server.Handler.NonGoRestfulMux.Handle(v3Path, http.HandlerFunc(custom.serveIndex))
	server.Handler.NonGoRestfulMux.HandlePrefix(v3Path+"/", http.HandlerFunc(custom.serveDocument))
}

// nameSharedTypes reduces the names of types that every group version has (DeleteOptions, WatchEvent) to
// the names in this group version and in core/v1.
func nameSharedTypes(document *spec3.OpenAPI, path string) {
	here, ok := versionOfPath(path)
	if !ok || document.Components == nil {
		return
	}
	const extension = "x-kubernetes-group-version-kind"
	for _, typed := range document.Components.Schemas {
		names, _ := typed.Extensions[extension].([]any)
		var kept []any
		for _, name := range names {
			gvk, _ := name.(map[string]any)
			if kind := gvk["kind"]; kind != "DeleteOptions" && kind != "WatchEvent" {
				kept = names
				break
			}
			version := schema.GroupVersion{Group: fmt.Sprint(gvk["group"]), Version: fmt.Sprint(gvk["version"])}
			if version == here || version == (schema.GroupVersion{Version: "v1"}) {
				kept = append(kept, name)
			}
		}
		if len(kept) > 0 {
			typed.Extensions[extension] = kept
		}
	}
}

// versionOfPath returns the group version that api/v1, apis/apps/v1 and so on serve.
func versionOfPath(path string) (schema.GroupVersion, bool) {
	switch parts := strings.Split(path, "/"); {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}
