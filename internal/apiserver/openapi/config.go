package openapi

import (
	"fmt"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	apiextensionsopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilopenapi "k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/common/restfuladapter"
)

// title is the title of both documents that clients of Kubernetes expect.
const title = "Kubernetes"

// V3Config returns the configuration of OpenAPI v3, which kubectl explain and server-side apply
// need. external has the versioned types of the built-in kinds.
func V3Config(external *runtime.Scheme) *common.OpenAPIV3Config {
	config := genericapiserver.DefaultOpenAPIV3Config(definitions(), namer(external))
	config.Info.Title = title
	// Otherwise kube-openapi would set it to a function that keeps the first document and all definitions
	// in memory.
	config.GetOperationIDAndTagsFromRoute = operationOf
	return config
}

// operationOf returns the ID and the tags of the operation of a route.
func operationOf(route common.Route) (id string, tags []string, err error) {
	adapted, ok := route.(*restfuladapter.RouteAdapter)
	if !ok {
		return "", nil, fmt.Errorf("the route %s %s is not one of go-restful", route.Method(), route.Path())
	}
	return openapinamer.GetOperationIDAndTags(adapted.Route)
}

// v2Config returns the configuration of OpenAPI v2. Its binary form is invalid without a version.
func v2Config(external *runtime.Scheme, version string) *common.Config {
	config := genericapiserver.DefaultOpenAPIConfig(definitions(), namer(external))
	config.Info.Title, config.Info.Version = title, version
	return config
}

func namer(external *runtime.Scheme) *openapinamer.DefinitionNamer {
	return openapinamer.NewDefinitionNamer(external, apiextensions.Scheme)
}

// definitions returns the types of the built-in kinds and of CustomResourceDefinitions.
func definitions() common.GetOpenAPIDefinitions {
	return utilopenapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(func(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		all := GetOpenAPIDefinitions(ref)
		for name, definition := range apiextensionsopenapi.GetOpenAPIDefinitions(ref) {
			if _, ok := all[name]; !ok {
				all[name] = definition
			}
		}
		return all
	})
}
