package routing_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/emicklei/go-restful/v3"

	"github.com/coppice-dev/coppice/internal/apiserver/routing"
)

// service has routes like those of an API group.
func service(root string, resources ...string) *restful.WebService {
	s := new(restful.WebService)
	s.Path(root).Consumes("*/*")
	add := func(method, path string, consumes ...string) {
		route := s.Method(method).Path(path).Produces("application/json", "application/yaml").To(func(*restful.Request, *restful.Response) {})
		if len(consumes) > 0 {
			route.Consumes(consumes...)
		}
		s.Route(route)
	}
	add(http.MethodGet, "/")
	for _, resource := range resources {
		for _, collection := range []string{resource, "namespaces/{namespace}/" + resource, "watch/namespaces/{namespace}/" + resource} {
			add(http.MethodGet, collection)
			add(http.MethodPost, collection)
			add(http.MethodGet, collection+"/{name}")
			add(http.MethodPut, collection+"/{name}/status")
			add(http.MethodPatch, collection+"/{name}", "application/merge-patch+json", "application/json-patch+json")
			add(http.MethodDelete, collection+"/{name}")
			add(http.MethodGet, collection+"/{name}/proxy/{path:*}")
		}
	}
	return s
}

func services() []*restful.WebService {
	return []*restful.WebService{
		service("/api/v1", "pods", "configmaps", "namespaces"), service("/apis/apps/v1", "deployments"),
		service("/apis/apps"), service("/apis"), service("/version"),
	}
}

// ask makes a request of tokens that occur in routes, and of others.
func ask(random *rand.Rand) *http.Request {
	tokens := []string{
		"api", "apis", "v1", "apps", "namespaces", "watch", "pods", "configmaps", "deployments", "status", "proxy", "version",
		"default", "x", "", "{", "{name}", "a:b", "ü",
	}
	starts := []string{"", "/api/v1", "/apis/apps/v1", "/api/v1/namespaces/default", "/apis", "//api/v1/watch"}
	var path strings.Builder
	path.WriteString(starts[random.IntN(len(starts))])
	for range random.IntN(6) {
		path.WriteString("/" + tokens[random.IntN(len(tokens))])
	}
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead}
	request := httptest.NewRequest(methods[random.IntN(len(methods))], "http://localhost/", nil)
	request.URL.Path = path.String()
	types := []string{"", "application/json", "application/yaml", "application/merge-patch+json", "text/html, application/json;q=0.5", "*/*"}
	for _, header := range []string{"Accept", "Content-Type"} {
		if value := types[random.IntN(len(types))]; value != "" {
			request.Header.Set(header, value)
		}
	}
	return request
}

// found is what a router says, in words.
func found(router restful.RouteSelector, services []*restful.WebService, request *http.Request) string {
	service, route, err := router.SelectRoute(services, request)
	if err != nil {
		return fmt.Sprintf("%#v", err)
	}
	return service.RootPath() + " " + route.String() + fmt.Sprint(route.Consumes)
}

func TestFindsWhatTheLibraryFinds(t *testing.T) {
	all := services()
	router, library := routing.New(all), restful.CurlyRouter{}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	routes := map[string]bool{}
	for range 50_000 {
		request := ask(random)
		want := found(library, all, request)
		routes[want] = true
		for _, which := range []string{"first", "again"} {
			if got := found(router, all, request); got != want {
				t.Fatalf("seed %d, %s %q %v, %s: %s, the library finds %s", seed, request.Method, request.URL.Path, request.Header, which, got, want)
			}
		}
	}
	if len(routes) < 50 {
		t.Errorf("the requests were of %d kinds only", len(routes))
	}
}

// Services that were added or replaced are not routed by what was learnt of others, nor
// are routes by more than the shape of a request.
func TestAsksTheLibraryAboutOthers(t *testing.T) {
	condition := service("/conditional")
	condition.Route(condition.GET("/x").If(func(r *http.Request) bool { return r.URL.RawQuery != "" }).To(func(*restful.Request, *restful.Response) {}))
	expression := service("/expression")
	expression.Route(expression.GET("/{number:[0-9]+}").To(func(*restful.Request, *restful.Response) {}))
	for name, test := range map[string]struct {
		learnt, asked []*restful.WebService
		paths         []string // each shall find what the library finds
	}{
		"added":      {services(), append(services(), service("/apis/batch/v1", "jobs")), []string{"/apis/batch/v1/jobs", "/apis/batch/v1/x"}},
		"replaced":   {services()[:1], []*restful.WebService{service("/apis/batch/v1", "jobs")}, []string{"/api/v1/pods", "/apis/batch/v1/jobs"}},
		"condition":  {[]*restful.WebService{condition}, []*restful.WebService{condition}, []string{"/conditional/x?y", "/conditional/x", "/conditional/x?y"}},
		"expression": {[]*restful.WebService{expression}, []*restful.WebService{expression}, []string{"/expression/1", "/expression/a", "/expression/2"}},
		"none":       {nil, nil, []string{"/x", "/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			router := routing.New(test.learnt)
			for _, path := range test.paths {
				request := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
				if got, want := found(router, test.asked, request), found(restful.CurlyRouter{}, test.asked, request); got != want {
					t.Errorf("%s: %s, the library finds %s", path, got, want)
				}
			}
		})
	}
}

// Whatever clients ask, what is remembered of it is bounded.
func TestMemoryIsBounded(t *testing.T) {
	all := services()
	router := routing.New(all)
	ask := func(accept string) {
		request := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/pods", nil)
		request.Header.Set("Accept", accept)
		if _, _, err := router.SelectRoute(all, request); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5000 {
		ask(fmt.Sprintf("application/json,x/%d", i))
		ask("application/json," + strings.Repeat("x", 1000+i))
	}
	if n := router.Known(); n != 1024 {
		t.Errorf("%d shapes are remembered", n)
	}
}

func BenchmarkSelectRoute(b *testing.B) {
	all := services()
	request := httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/namespaces/default/configmaps/x", nil)
	request.Header.Set("Accept", "application/json")
	for name, router := range map[string]restful.RouteSelector{"library": restful.CurlyRouter{}, "remembered": routing.New(all)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := router.SelectRoute(all, request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
