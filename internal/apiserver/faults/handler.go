package faults

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/rules/anomaly"
	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Path is the path of the faults. GET returns a State. POST replaces the plan with the text in the body, in the form that
// ParsePlan reads; an empty body ends all faults.
const Path = "/coppice/v1/faults"

// mostBody bounds a plan, in bytes.
const mostBody = 64 << 10

// State is the answer.
type State struct {
	// Plan is the current plan in the form that ParsePlan reads; empty: no faults.
	Plan string `json:"plan"`
	// Happened has the latest faults, the oldest first: at most 4096.
	Happened []Happened `json:"happened"`
	// Anomalies are the requests with which clients have acted on old states, the oldest first: at most 256. MoreAnomalies
	// counts those that came after them.
	Anomalies     []Anomaly `json:"anomalies"`
	MoreAnomalies int       `json:"moreAnomalies,omitempty"`
}

// Anomaly is a request with which a client has acted on an old state.
type Anomaly struct {
	Time      time.Time `json:"time"`
	Kind      string    `json:"kind"`
	User      string    `json:"user"`
	Client    string    `json:"client"`
	Resource  string    `json:"resource"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name,omitempty"`
	Text      string    `json:"text"`
}

// Happened is a request with its faults.
type Happened struct {
	Time        time.Time `json:"time"`
	Fault       string    `json:"fault"`
	User        string    `json:"user"`
	Client      string    `json:"client"`
	Verb        string    `json:"verb"`
	Resource    string    `json:"resource"`
	Subresource string    `json:"subresource,omitempty"`
	Namespace   string    `json:"namespace,omitempty"`
	Name        string    `json:"name,omitempty"`
}

// Handler returns a handler of authenticated requests. Only users with the right to post to Path may see or replace the
// plan. If refused is not empty, it is the answer to each POST: the reason for which this server has no faults.
func (i *Injector) Handler(authorize authorizer.Authorizer, refused string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if err := i.handle(w, r, authorize, refused); err != nil {
			i.refuse(w, r, err)
			return
		}
		i.write(w)
	})
}

// handle carries out a request. An error has a Status, whose message kubectl shows.
func (i *Injector) handle(w http.ResponseWriter, r *http.Request, authorize authorizer.Authorizer, refused string) error {
	switch may, err := mayPost(r, authorize); {
	case err != nil:
		return apierrors.NewInternalError(err)
	case !may:
		return apierrors.NewForbidden(schema.GroupResource{Resource: "faults"}, "", errors.New("you need the right to post to "+Path))
	case r.Method == http.MethodGet:
		return nil
	case r.Method != http.MethodPost:
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "faults"}, r.Method)
	case refused != "":
		return apierrors.NewForbidden(schema.GroupResource{Resource: "faults"}, "", errors.New(refused))
	}
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostBody))
	if err != nil {
		return apierrors.NewRequestEntityTooLargeError(err.Error())
	}
	plan, err := ParsePlan(string(text))
	if err != nil {
		return apierrors.NewBadRequest(escape.Line(err.Error()))
	}
	i.Set(plan)
	return nil
}

// mayPost reports whether the user may post to Path. The role of the tools lets its users get all paths beside it.
func mayPost(r *http.Request, authorize authorizer.Authorizer) (bool, error) {
	who, ok := request.UserFrom(r.Context())
	if !ok {
		return false, errors.New("the request is not authenticated")
	}
	decision, _, err := authorize.Authorize(r.Context(), authorizer.AttributesRecord{User: who, Verb: "post", Path: Path})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	return false, err
}

func (i *Injector) write(w http.ResponseWriter) {
	state := State{Happened: []Happened{}, Anomalies: []Anomaly{}}
	if plan := i.Plan(); len(plan.Faults) > 0 {
		state.Plan = plan.String()
	}
	for _, e := range i.journal.all() {
		state.Happened = append(state.Happened, Happened{
			Time: e.Time, Fault: e.String(), User: e.Request.User, Client: e.Request.Client, Verb: e.Request.Verb,
			Resource: e.Request.Resource, Subresource: e.Request.Subresource, Namespace: e.Request.Namespace, Name: e.Request.Name,
		})
	}
	i.witness.with(func(d *anomaly.Detector) {
		var found []anomaly.Anomaly
		found, state.MoreAnomalies = d.Found()
		for _, a := range found {
			state.Anomalies = append(state.Anomalies, Anomaly{
				Time: a.Time, Kind: string(a.Kind), User: a.Client.User, Client: a.Client.Program,
				Resource: a.Object.Resource, Namespace: a.Object.Namespace, Name: a.Object.Name, Text: a.Text,
			})
		}
	})
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(state) // a client that has disconnected retries
}
