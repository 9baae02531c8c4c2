package apiserver

import (
	"github.com/emicklei/go-restful/v3"
)

// shareRoutes lets routes share values that go-restful creates anew for each route: routes with one path
// share its regular expression, and all routes share the description of each parameter. There are thousands
// of routes; these values were a seventh of the live heap of an idle server.
func shareRoutes(services []*restful.WebService) {
	parameters := make(map[parameter]*restful.Parameter)
	for _, service := range services {
		first := make(map[string]restful.Route) // by path
		routes := service.Routes()
		for i, route := range routes {
			for j, p := range route.ParameterDocs {
				route.ParameterDocs[j] = shared(p, parameters)
			}
			same, ok := first[route.Path]
			if !ok {
				first[route.Path] = route
				continue
			}
			routes[i] = withPathOf(same, route)
		}
	}
}

// withPathOf returns a route with the unexported fields of another route of the same path. go-restful has
// derived these fields from the path.
func withPathOf(same, route restful.Route) restful.Route {
	same.ExtensionProperties = route.ExtensionProperties
	same.Method, same.Path = route.Method, route.Path
	same.Produces, same.Consumes = route.Produces, route.Consumes
	same.Function, same.Filters, same.If = route.Function, route.Filters, route.If
	same.Doc, same.Notes, same.Operation, same.ParameterDocs = route.Doc, route.Notes, route.Operation, route.ParameterDocs
	same.ResponseErrors, same.DefaultResponse = route.ResponseErrors, route.DefaultResponse
	same.ReadSample, same.WriteSample, same.WriteSamples = route.ReadSample, route.WriteSample, route.WriteSamples
	same.Metadata, same.Deprecated = route.Metadata, route.Deprecated
	return same
}

// parameter is the description of a parameter by k8s.io/apiserver.
type parameter struct {
	name, description, dataType, dataFormat  string
	kind                                     int
	required, allowMultiple, allowEmptyValue bool
	defaultValue, collectionFormat, pattern  string
	uniqueItems                              bool
}

// shared returns a known parameter with the same description, or p. Nobody modifies either any more.
func shared(p *restful.Parameter, known map[parameter]*restful.Parameter) *restful.Parameter {
	d := p.Data()
	bounded := d.Minimum != nil || d.Maximum != nil || d.MinLength != nil || d.MaxLength != nil || d.MinItems != nil || d.MaxItems != nil
	if bounded || len(d.Extensions) > 0 || len(d.AllowableValues) > 0 || len(d.PossibleValues) > 0 {
		return p
	}
	key := parameter{
		name: d.Name, description: d.Description, dataType: d.DataType, dataFormat: d.DataFormat, kind: d.Kind,
		required: d.Required, allowMultiple: d.AllowMultiple, allowEmptyValue: d.AllowEmptyValue,
		defaultValue: d.DefaultValue, collectionFormat: d.CollectionFormat, pattern: d.Pattern, uniqueItems: d.UniqueItems,
	}
	if same, ok := known[key]; ok {
		return same
	}
	known[key] = p
	return p
}
