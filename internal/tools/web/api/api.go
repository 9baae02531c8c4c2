// Package api answers questions about ownership and its collection over HTTP, with the caller's own rights.
//
//	/coppice/v1/owners      the owners of the named objects, direct and indirect
//	/coppice/v1/dependents  their dependents, direct and indirect
//	/coppice/v1/component   their connected components; without names, all objects with owners or dependents
//	/coppice/v1/preview     the effects of a DELETE of them
//	/coppice/v1/explain     why they still exist
//	/coppice/v1/protected   the protected objects, with their modes
//	/coppice/v1/records     the collector's last changes, with their reasons
//	/coppice/v1/status      the state of the collector
//	/coppice/v1/resume      POST: resumes deletions that the breaker has paused
//	/coppice/v1/watch       new records, and the states of the named objects, as server-sent events
//	/coppice/v1/stories     deletions, each from its request to the last object gone: a list
//	/coppice/v1/stories/ID  one of them, with its objects: ?format=text for people
//	…/watch                 below both, the same as server-sent events, when it changes
//	/coppice/v1/openapi     this API, as an OpenAPI 3 document
//
// Objects are named as ?object=RESOURCE.GROUP/NAMESPACE/NAME, or RESOURCE.GROUP/NAME if they have no
// namespace or are in the one of ?namespace=NAMESPACE, or as ?uid=UID. object and uid may be repeated.
//
// The main flow: an Access authenticates the caller and checks rights to list (access.go); a Sight caches the
// rights for one request (sight.go); names are resolved to UIDs (names.go); package insight reads the ownership
// graph; and the handler removes all objects from the answer that the caller may not list. An answer is as if these
// did not exist; every caller without the right to list everything reads that objects may be left out. For previews
// and explanations, the neighborhood of the objects is read, and filtered before the evaluation (answers.go).
package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Prefix begins all paths. It contains the version of the answers.
const Prefix = "/coppice/v1"

// The paths.
const (
	Owners     = Prefix + "/owners"
	Dependents = Prefix + "/dependents"
	Component  = Prefix + "/component"
	Preview    = Prefix + "/preview"
	Explain    = Prefix + "/explain"
	Deletions  = Prefix + "/deletions"
	Records    = Prefix + "/records"
	Protected  = Prefix + "/protected"
	Status     = Prefix + "/status"
	Watch      = Prefix + "/watch"
	Stories    = Prefix + "/stories"
	Resume     = Prefix + "/resume"
	OpenAPI    = Prefix + "/openapi"
)

// Paths returns the paths without variables; other paths are below Stories.
func Paths() []string {
	var all []string
	for _, r := range (&handler{}).routes() {
		if !strings.HasPrefix(r.path, Stories+"/") {
			all = append(all, r.path)
		}
	}
	return all
}

// Routes returns all routes, as METHOD PATTERN.
func Routes() []string {
	var all []string
	for _, r := range (&handler{}).routes() {
		all = append(all, r.method+" "+r.path)
	}
	return all
}

// Source provides the data of the answers.
type Source interface {
	// View runs a function on the ownership graph, as an insight.View.
	View(read func(g *ownership.Graph))
	// Resources returns the resources whose objects are in the graph, or that these may name.
	Resources() []*inventory.Resource
	// Living reads the UID of the namespace with a name; empty if it does not exist.
	Living(ctx context.Context, namespace string) (ownership.UID, error)
	// Neighborhood reads the part of the cluster that the deletion of some objects concerns. It reads objects that are
	// not in the graph as the caller. The graph may have objects that the caller may not list.
	Neighborhood(ctx context.Context, caller *rest.Config, uids []ownership.UID) (*answer.Cluster, error)
	// Defaults returns the default modes of protection (R28), as far as the caller may read them.
	Defaults(ctx context.Context, caller *rest.Config) (protection.Defaults, error)
	// Limits returns the deletions that need no confirmation (R32).
	Limits() protection.Limits
	// Records returns the remembered changes with a higher number, the oldest first.
	Records(after uint64) []report.Record
	// Status returns the state of the collector that a caller may see.
	Status(ctx context.Context, s *Sight) (SeenStatus, error)
	// Resume resumes the deletions of a kind, and reports whether they were paused.
	Resume(kind string) bool
	// Stories returns the stories of deletions; nil if no collector works here.
	Stories() *storybook.Book
}

// SeenStatus is the part of the status of a collector that a caller may see.
type SeenStatus struct {
	report.Status

	// Unread lists the reasons why objects may be missing.
	Unread []string `json:"unread,omitempty"`
}

// Graph is the answer about owners, dependents and components.
type Graph struct {
	insight.Graph

	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// RecordList is the answer about records.
type RecordList struct {
	Items []report.Record `json:"items"`
	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// Handler returns a handler for all paths.
func Handler(s Source, access Access) http.Handler {
	h := &handler{source: s, access: access, seats: map[cost]*seats{}, reserve: newReserve()}
	for _, c := range []cost{costly, lasting} {
		h.seats[c] = newSeats(limitsOf(c))
	}
	mux := http.NewServeMux()
	for _, route := range h.routes() {
		answer := h.handlerOf(route)
		if route.method != http.MethodGet {
			// Browsers send certificates with the requests of any page, but also the page's origin.
			answer = http.NewCrossOriginProtection().Handler(answer)
		}
		mux.Handle(route.method+" "+route.path, answer)
	}
	return guarded(mux)
}

// route is one row of the table of routes.
type route struct {
	method, path string
	cost         cost
	answer       func(w http.ResponseWriter, r *http.Request, s *Sight) error
}

func (h *handler) routes() []route {
	const get = http.MethodGet
	return []route{
		{get, Owners, costly, h.graph(insight.Looker.Owners)},
		{get, Dependents, costly, h.graph(insight.Looker.Dependents)},
		{get, Component, costly, h.graph(component)},
		{get, Preview, costly, h.preview},
		{get, Explain, costly, h.explain},
		{get, Deletions, costly, h.deletions},
		{get, Protected, costly, h.protected},
		{get, Records, costly, h.records},
		{get, Status, cheap, h.status},
		{get, Watch, lasting, h.watch},
		{get, Stories, costly, h.stories},
		{get, Stories + "/watch", lasting, h.watchStories},
		{get, Stories + "/{id}", costly, h.story},
		{get, Stories + "/{id}/watch", lasting, h.watchStory},
		{http.MethodPost, Resume, cheap, h.resume},
		{get, OpenAPI, cheap, h.openapi},
	}
}

type handler struct {
	source Source
	access Access
	seats  map[cost]*seats
	// reserve bounds the memory of large answers; without one, they are encoded twice.
	reserve *reserve
}

// guarded sets headers that keep browsers from interpreting or storing answers.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// handlerOf returns the handler of a route. It writes the error of an answer.
func (h *handler) handlerOf(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.answer(w, r, route); err != nil {
			writeError(w, err)
		}
	})
}

// answer authenticates the caller, waits for a seat, and answers while it holds the seat.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, route route) error {
	caller, err := h.access(r)
	if err != nil {
		return err
	}
	if seats := h.seats[route.cost]; seats != nil {
		leave, err := seats.take(r.Context(), caller.User)
		if err != nil {
			return err
		}
		defer leave()
	}
	if within := route.cost.within(); within > 0 {
		// A client that does not read must not keep the seat, nor the connection after the answer: the server itself
		// lifts the deadline before the next request. Servers with a timeout of their own do not support this.
		_ = http.NewResponseController(w).SetWriteDeadline(now().Add(within))
	}
	sight, err := newSight(r.Context(), caller, h.source.Resources(), h.source.Living)
	if err != nil {
		return err
	}
	return route.answer(w, r, sight)
}

// refusal is an error with a status code; the answer contains both.
type refusal struct {
	code int
	says string
}

func (e *refusal) Error() string { return e.says }

func writeError(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway // the API server did not answer a question about the caller
	told, isRefusal := errors.AsType[*refusal](err)
	switch {
	case errors.Is(err, ErrUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		code = http.StatusUnauthorized
	case errors.Is(err, ErrComponent):
		code = http.StatusForbidden
	case isRefusal:
		code = told.code
	}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, escape.Line(err.Error()), code) // curl prints it on a terminal
}

// graph answers with a part of the ownership graph.
func (h *handler) graph(part func(insight.Looker, ...ownership.UID) insight.Graph) func(http.ResponseWriter, *http.Request, *Sight) error {
	return func(w http.ResponseWriter, r *http.Request, s *Sight) error {
		uids, err := h.named(r, s)
		if err != nil {
			return err
		}
		isWhole := strings.HasSuffix(r.URL.Path, Component) && len(uids) == 0
		if len(uids) == 0 && !isWhole {
			return &refusal{http.StatusBadRequest, "name an object: ?object=RESOURCE.GROUP/NAMESPACE/NAME or ?uid=UID"}
		}
		if uids, err = h.shown(r.Context(), s, uids); err != nil {
			return err
		}
		if len(uids) == 0 && !isWhole {
			return errNotKnown
		}
		picture, err := s.picture(r.Context(), h.source.View, part, uids)
		if err != nil {
			return err
		}
		if len(picture.Objects) == 0 && !isWhole {
			return errNotKnown
		}
		return h.writeJSON(w, Graph{Graph: picture, Unread: s.Unread()})
	}
}

var errNotKnown = &refusal{http.StatusNotFound, "this object is unknown, or you may not list it"}

func component(l insight.Looker, uids ...ownership.UID) insight.Graph {
	if len(uids) == 0 {
		return l.Whole()
	}
	return l.Component(uids...)
}

// records answers with the records of all objects, or of the named ones.
func (h *handler) records(w http.ResponseWriter, r *http.Request, s *Sight) error {
	wanted, err := h.recordsWanted(r, s)
	if err != nil {
		return err
	}
	list := RecordList{Items: []report.Record{}}
	for _, record := range h.source.Records(0) {
		if !wanted(&record) {
			continue
		}
		seen, err := s.record(r.Context(), &record)
		if err != nil {
			return err
		}
		if seen {
			list.Items = append(list.Items, record)
		}
	}
	list.Unread = s.Unread()
	return h.writeJSON(w, list)
}

func (h *handler) status(w http.ResponseWriter, r *http.Request, s *Sight) error {
	status, err := h.source.Status(r.Context(), s)
	if err != nil {
		return err
	}
	return h.writeJSON(w, status)
}
