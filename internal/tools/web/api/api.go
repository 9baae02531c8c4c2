// Package api answers questions about ownership and its collection over HTTP, for whoever may ask.
//
//	/coppice/v1/owners      what owns the named objects, directly or not
//	/coppice/v1/dependents  what they own, directly or not
//	/coppice/v1/component   everything that is connected with them; without names, all that owns or is owned
//	/coppice/v1/preview     what a DELETE of them would do
//	/coppice/v1/explain     why they are still there
//	/coppice/v1/protected   what is protected, and how
//	/coppice/v1/records     the last changes that the collector made, with their reasons
//	/coppice/v1/status      the state of the collector
//	/coppice/v1/resume      POST: resumes deletions that the breaker has paused
//	/coppice/v1/watch       new records, and what the named objects wait for, as server-sent events
//	/coppice/v1/stories     deletions, each from who asked for it to the last object gone: a list
//	/coppice/v1/stories/ID  one of them, with its objects: ?format=text for people
//	…/watch                 below both, the same as server-sent events, when it changes
//	/coppice/v1/openapi     this, as an OpenAPI 3 document
//
// Objects are named as ?object=RESOURCE.GROUP/NAMESPACE/NAME, or RESOURCE.GROUP/NAME if they have no
// namespace or are in that of ?namespace=NAMESPACE, or as ?uid=UID. object and uid may be repeated.
//
// The main flow: an Access says who asks, and what they may list (access.go); a Sight remembers that for
// one request (sight.go); names are resolved to UIDs (names.go); package insight reads the ownership graph;
// and of the answer everything is removed that the caller may not list. An answer is as if nothing else existed: that
// objects may have been removed is said to all who may not list everything. For previews and explanations the surroundings
// of the objects are read, and what the caller may not list is removed before they are made (answers.go).
package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/collector"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Prefix is that of all paths. It states the version of the answers.
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

// Paths returns the paths that have no variable part; below Stories there are others.
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

// Source has the answers.
type Source interface {
	// View runs a function on the ownership graph, as an insight.View.
	View(read func(g *ownership.Graph))
	// Resources are those whose objects are in the graph, or may be named by them.
	Resources() []*inventory.Resource
	// Living implements Living.
	Living(ctx context.Context, namespace string) (ownership.UID, error)
	// Around reads the surroundings of some objects. What the collector does not know of them is read as the
	// caller; what it knows may be more than the caller may see.
	Around(ctx context.Context, caller *rest.Config, uids []ownership.UID) (*Surroundings, error)
	// Records returns the remembered changes with a higher number, the oldest first.
	Records(after uint64) []collector.Record
	// Status returns the state of the collector, as far as a caller may see it, to be encoded as JSON.
	Status(ctx context.Context, s *Sight) (any, error)
	// Resume resumes the deletions of a kind, and reports whether they were paused.
	Resume(kind string) bool
	// Stories returns the stories of deletions; nil if no collector works here.
	Stories() *story.Book
	// NoStatus returns a value of the type that Status returns.
	NoStatus() any
}

// Graph is the answer about owners, dependents and components.
type Graph struct {
	insight.Graph

	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// RecordList is the answer about records.
type RecordList struct {
	Items []collector.Record `json:"items"`
	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// Handler returns a handler for all paths.
func Handler(s Source, access Access) http.Handler {
	h := &handler{source: s, access: access, seats: map[cost]*seats{}}
	for _, c := range []cost{costly, lasting} {
		h.seats[c] = newSeats(limitsOf(c))
	}
	mux := http.NewServeMux()
	for _, route := range h.routes() {
		answer := h.asked(route)
		if route.method != http.MethodGet {
			// Browsers send certificates with whatever a page has them send; they say whose page it is.
			answer = http.NewCrossOriginProtection().Handler(answer)
		}
		mux.Handle(route.method+" "+route.path, answer)
	}
	return guarded(mux)
}

// route is one row of the table of all that is served.
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
}

// guarded sets headers that keep browsers from interpreting or storing answers.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// asked authenticates the caller, waits for their turn, and writes the error of an answer.
func (h *handler) asked(route route) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h.answer(w, r, route); err != nil {
			writeError(w, err)
		}
	})
}

// answer gives an answer while the caller has a seat.
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
	if route.cost == costly {
		// A caller who reads slowly must not keep the seat. Servers with a timeout of their own do not support this.
		control := http.NewResponseController(w)
		_ = control.SetWriteDeadline(now().Add(longest))
		defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
	}
	sight, err := newSight(r.Context(), caller, h.source.Resources(), h.source.Living)
	if err != nil {
		return err
	}
	return route.answer(w, r, sight)
}

// refusal is an error with a status code, which the caller is told.
type refusal struct {
	code int
	says string
}

func (e *refusal) Error() string { return e.says }

func writeError(w http.ResponseWriter, err error) {
	text := escape.Line(err.Error()) // curl prints it on a terminal
	told, isRefusal := errors.AsType[*refusal](err)
	switch {
	case errors.Is(err, ErrUnauthenticated):
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, text, http.StatusUnauthorized)
	case errors.Is(err, ErrComponent):
		http.Error(w, text, http.StatusForbidden)
	case isRefusal:
		if told.code == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, text, told.code)
	default:
		http.Error(w, text, http.StatusBadGateway) // the API server did not answer a question about the caller
	}
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
		return writeJSON(w, Graph{Graph: picture, Unread: s.Unread()})
	}
}

var errNotKnown = &refusal{http.StatusNotFound, "nothing is known of such an object, or you may not list it"}

func component(l insight.Looker, uids ...ownership.UID) insight.Graph {
	if len(uids) == 0 {
		return l.Whole()
	}
	return l.Around(uids...)
}

// records answers with the records of all objects, or of those that are named.
func (h *handler) records(w http.ResponseWriter, r *http.Request, s *Sight) error {
	wanted, err := h.recordsWanted(r, s)
	if err != nil {
		return err
	}
	list := RecordList{Items: []collector.Record{}}
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
	return writeJSON(w, list)
}

func (h *handler) status(w http.ResponseWriter, r *http.Request, s *Sight) error {
	status, err := h.source.Status(r.Context(), s)
	if err != nil {
		return err
	}
	return writeJSON(w, status)
}
