package apiserver

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/emicklei/go-restful/v3"
	"github.com/google/go-cmp/cmp"
)

// newService returns a service with routes of two paths. One of them sets all attributes that a route can
// have.
func newService() *restful.WebService {
	service := new(restful.WebService)
	service.Path("/apis/example.com/v1")
	answers := func(text string) restful.RouteFunction {
		return func(_ *restful.Request, response *restful.Response) { response.Header().Set("X-Route", text) }
	}
	pretty := func() *restful.Parameter {
		return restful.QueryParameter("pretty", "if it is true, the output is pretty printed")
	}
	most := 3.0
	service.Route(service.GET("/things/{name}").To(answers("get")).Param(pretty()).Operation("readThing"))
	service.Route(service.PUT("/things/{name}").To(answers("put")).Param(pretty()).Param(pretty().Required(true)).
		Operation("replaceThing").Doc("replace").Notes("all of it").Deprecate().Metadata("kind", "Thing").
		Reads(struct{}{}).Writes("", 1).Returns(http.StatusOK, "OK", nil).DefaultReturns("fails", nil).
		AddExtension("x-action", "put").Consumes("*/*").Produces("application/json").
		Filter(func(q *restful.Request, s *restful.Response, next *restful.FilterChain) { next.ProcessFilter(q, s) }).
		If(func(*http.Request) bool { return true }))
	service.Route(service.GET("/things").To(answers("list")).Operation("listThings").Param(pretty().Maximum(most)).Param(pretty()))
	return service
}

// Sharing does not change routes.
func TestShareRoutes(t *testing.T) {
	service, want := newService(), newService()
	shareRoutes([]*restful.WebService{service})
	routes := service.Routes()
	for i, route := range want.Routes() {
		got := reflect.ValueOf(routes[i])
		for name, value := range reflect.ValueOf(route).Fields() {
			if !name.IsExported() {
				continue
			}
			is := got.FieldByIndex(name.Index)
			if name.Name == "Function" || name.Name == "Filters" || name.Name == "If" {
				if is.IsNil() != value.IsNil() || name.Name != "Function" && is.Len() != value.Len() {
					t.Errorf("%s %s: %s is %v", route.Method, route.Path, name.Name, is)
				}
				continue
			}
			if diff := cmp.Diff(value.Interface(), is.Interface(), cmp.Exporter(func(reflect.Type) bool { return true })); diff != "" {
				t.Errorf("%s %s: %s: (-want +got)\n%s", route.Method, route.Path, name.Name, diff)
			}
		}
	}
	expression := func(i int) uintptr { return reflect.ValueOf(routes[i]).FieldByName("pathExpr").Pointer() }
	if expression(0) != expression(1) || expression(0) == expression(2) {
		t.Error("the routes of one path do not share its expression, or those of two paths do")
	}
	first := routes[0].ParameterDocs[0]
	if routes[1].ParameterDocs[0] != first || routes[2].ParameterDocs[1] != first || routes[1].ParameterDocs[1] == first || routes[2].ParameterDocs[0] == first {
		t.Error("parameters that are the same are not shared, or others are")
	}
}

func TestSharedRoutesAreFound(t *testing.T) {
	service := newService()
	shareRoutes([]*restful.WebService{service})
	container := restful.NewContainer()
	container.Router(restful.CurlyRouter{})
	container.Add(service)
	for _, test := range []struct{ method, path, want string }{
		{http.MethodGet, "/things/a", "get"}, {http.MethodPut, "/things/a", "put"}, {http.MethodGet, "/things", "list"},
	} {
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(test.method, "/apis/example.com/v1"+test.path, http.NoBody)
		container.Dispatch(answer, request)
		if got := answer.Header().Get("X-Route"); got != test.want {
			t.Errorf("%s %s: %q, want %q (%d)", test.method, test.path, got, test.want, answer.Code)
		}
	}
}
