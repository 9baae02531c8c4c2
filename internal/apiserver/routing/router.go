// Package routing finds the handler of a request among the library's routes.
//
// The library compares a request with every route of its API group, of which the core
// group has two hundred, and copies those that match: 3 % of the time that a small write
// takes, and 5 % of what it allocates. What it finds depends on little of a request, its
// shape: the words of the path that some route spells out, where the others stand, the
// method and the two headers about media types. So Router asks the library once for each
// shape.
package routing

import (
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/emicklei/go-restful/v3"
)

const (
	// mostShapes is how many shapes are remembered: clients choose the media types, so
	// there may be any number.
	mostShapes = 1024
	// longestShape is how long a shape may be that is remembered, in bytes. Paths and
	// headers may be much longer; with them, memory would not be bounded.
	longestShape = 512
)

// Router is a restful.CurlyRouter that remembers. It is safe for concurrent use.
type Router struct {
	library  restful.CurlyRouter
	services []*restful.WebService
	// words are what routes spell out at the first position of a path, the second, ....
	words []map[string]bool

	mu    sync.RWMutex
	known map[string]choice // by shape
}

// choice is what the library has found.
type choice struct {
	service *restful.WebService
	route   *restful.Route
}

// New returns the router for these services, whose routes are complete. For others, and
// for services whose routes depend on more than the shape of a request, it asks the
// library each time.
func New(services []*restful.WebService) *Router {
	r := &Router{known: map[string]choice{}}
	for _, service := range services {
		if !r.learn(service.RootPath()) {
			return r
		}
		for _, route := range service.Routes() {
			if len(route.If) > 0 || !r.learn(route.Path) {
				return r
			}
		}
	}
	r.services = slices.Clone(services)
	return r
}

// learn adds the words of a route's path, unless whether it matches depends on more than
// words: on an expression, or on a verb after a colon. A parameter for the rest of a path
// takes anything.
func (r *Router) learn(path string) bool {
	for i, token := range strings.Split(strings.Trim(path, "/"), "/") {
		if strings.Contains(strings.TrimSuffix(token, ":*}"), ":") {
			return false
		}
		if i == len(r.words) {
			r.words = append(r.words, map[string]bool{})
		}
		if !strings.HasPrefix(token, "{") {
			r.words[i][token] = true
		}
	}
	return true
}

// SelectRoute implements restful.RouteSelector.
func (r *Router) SelectRoute(services []*restful.WebService, request *http.Request) (*restful.WebService, *restful.Route, error) {
	if len(services) == 0 || !slices.Equal(services, r.services) {
		return r.library.SelectRoute(services, request)
	}
	var room [longestShape]byte
	shape := r.shape(room[:0], request)
	r.mu.RLock()
	found, ok := r.known[string(shape)]
	r.mu.RUnlock()
	if ok {
		return found.service, found.route, nil
	}
	service, route, err := r.library.SelectRoute(services, request)
	if err == nil && len(shape) <= longestShape {
		r.remember(string(shape), choice{service, route})
	}
	return service, route, err
}

func (r *Router) remember(shape string, found choice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.known) < mostShapes {
		r.known[shape] = found
	}
}

// shape appends to buffer what the choice of a route depends on. Words that no route
// spells out match parameters only, whatever they are, if they are not empty; they are
// written like a parameter, which no word can be taken for.
func (r *Router) shape(buffer []byte, request *http.Request) []byte {
	buffer = append(buffer, request.Method...)
	rest, more := strings.TrimLeft(request.URL.Path, "/"), true
	for i := 0; more; i++ {
		var token string
		token, rest, more = strings.Cut(rest, "/")
		buffer = append(buffer, '/')
		if token == "" || i < len(r.words) && r.words[i][token] {
			buffer = append(buffer, token...)
		} else {
			buffer = append(buffer, '{')
		}
	}
	for _, header := range []string{restful.HEADER_ContentType, restful.HEADER_Accept} {
		buffer = append(buffer, '\n')
		buffer = append(buffer, request.Header.Get(header)...)
	}
	return buffer
}
