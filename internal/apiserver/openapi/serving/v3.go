package apiserver

import (
	"fmt"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/cached"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/spec3"
)

const schemasPath = "/openapi/v3"

// installSchemas serves OpenAPI v3: a document for each group version. The library
// would build them all at every start; here the first request does, as most servers
// are never asked: the documents repeat in each group version what a pod is. Custom
// resources are added by the library, to the same service.
func (s *Server) installSchemas(config *common.OpenAPIV3Config) error {
	service := handler3.NewOpenAPIService()
	if err := service.RegisterOpenAPIV3VersionedService(schemasPath, s.generic.Handler.NonGoRestfulMux); err != nil {
		return fmt.Errorf("serve %s: %w", schemasPath, err)
	}
	// Each document is built from definitions of its own: the library writes into
	// them, and another document may be built or encoded at that moment. One at a time
	// is enough, and takes less memory.
	var building sync.Mutex
	separate := *config
	separate.Definitions = nil
	for _, routes := range s.generic.Handler.GoRestfulContainer.RegisteredWebServices() {
		path := strings.TrimPrefix(routes.RootPath(), "/")
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
	s.generic.OpenAPIV3VersionedService = service
	return nil
}

// nameSharedTypes leaves to the types that every group version has (DeleteOptions,
// WatchEvent) their name in this one and in core/v1, of all that they have.
func nameSharedTypes(document *spec3.OpenAPI, path string) {
	here, ok := versionOfPath(path)
	if !ok || document.Components == nil {
		return
	}
	const extension = "x-kubernetes-group-version-kind"
	for _, described := range document.Components.Schemas {
		names, _ := described.Extensions[extension].([]any)
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
			described.Extensions[extension] = kept
		}
	}
}

// versionOfPath is the group version that is served under api/v1, apis/apps/v1 and so on.
func versionOfPath(path string) (schema.GroupVersion, bool) {
	switch parts := strings.Split(path, "/"); {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	}
	return schema.GroupVersion{}, false
}
