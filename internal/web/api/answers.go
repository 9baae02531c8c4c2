package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/explain"
	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/namespaces"
	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/preview"
)

// Details reads what more than metadata is needed to foretell and explain deletions, as the caller.
type Details interface {
	explain.Details
	preview.Details
}

// Surroundings are the part of the cluster that a question about the deletion of some objects is about.
type Surroundings struct {
	Inventory *inventory.Inventory
	Details   Details
	// Collector is the state of the collector; nil if none works.
	Collector *explain.Collector
	// Order is the order in which the contents of namespaces are deleted.
	Order namespaces.Order
	Now   time.Time
}

// Explanations are the answer of explain.
type Explanations struct {
	Items []explain.Explanation `json:"items"`
}

// DeletionList is the answer about all deletions that are under way.
type DeletionList struct {
	Items []explain.Group `json:"items"`
	// Unread says what was left out.
	Unread []string `json:"unread,omitempty"`
}

// preview answers what a DELETE of the named objects would do.
func (h *handler) preview(w http.ResponseWriter, r *http.Request, s *Sight) error {
	query := r.URL.Query()
	policy := metav1.DeletionPropagation(query.Get("propagationPolicy"))
	switch policy {
	case "", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan:
	default:
		return &refusal{http.StatusBadRequest, fmt.Sprintf("propagationPolicy is %q: it is Background, Foreground, Orphan, or left out", policy)}
	}
	uids, around, err := h.around(r, s)
	if err != nil {
		return err
	}
	question := preview.Question{Now: around.Now, Order: around.Order, AssumeReleased: query.Get("assumeReleased") == "true"}
	for _, uid := range uids {
		question.Requests = append(question.Requests, preview.Request{UID: uid, Propagation: policy})
	}
	return writeJSON(w, preview.Foretell(around.Inventory, around.Details, question).Report(around.Inventory))
}

// explain answers why the named objects are still there.
func (h *handler) explain(w http.ResponseWriter, r *http.Request, s *Sight) error {
	uids, around, err := h.around(r, s)
	if err != nil {
		return err
	}
	explainer := explain.New(explain.Input{Inventory: around.Inventory, Details: around.Details, Collector: around.Collector, Now: around.Now})
	answer, size := Explanations{Items: []explain.Explanation{}}, &spool{}
	for _, uid := range uids {
		explanation, _ := explainer.Explain(uid)
		if err := element(size, explanation, "    ", ""); err != nil {
			return err // they would be too large together
		}
		answer.Items = append(answer.Items, explanation)
	}
	return writeJSON(w, answer)
}

// deletions answers what all objects wait for that are being deleted, as far as the caller may list them.
func (h *handler) deletions(w http.ResponseWriter, r *http.Request, s *Sight) error {
	uids, err := h.deleting(r.Context(), s)
	if err != nil {
		return err
	}
	answer := DeletionList{Items: []explain.Group{}, Unread: s.Unread()}
	if len(uids) == 0 {
		return writeJSON(w, answer)
	}
	around, err := h.source.Around(r.Context(), s.caller.Config, uids)
	if err != nil {
		return err //nolint:wrapcheck // says all of it
	}
	if around, err = s.surroundings(r.Context(), around); err != nil {
		return err
	}
	for _, u := range around.Inventory.Unread {
		answer.Unread = append(answer.Unread, u.String())
	}
	answer.Items = explain.New(explain.Input{
		Inventory: around.Inventory, Details: around.Details, Collector: around.Collector, Now: around.Now,
	}).All()
	return writeJSON(w, answer)
}

// deleting returns the objects that are being deleted and that the caller may list.
func (h *handler) deleting(ctx context.Context, s *Sight) ([]ownership.UID, error) {
	var objects []ownership.Object
	h.source.View(func(g *ownership.Graph) {
		for _, uid := range g.Deleting() {
			if o, observed := g.Object(uid); observed {
				objects = append(objects, o)
			}
		}
	})
	uids := make([]ownership.UID, 0, len(objects))
	for n := range objects {
		sees, err := s.Sees(ctx, objects[n].Kind, objects[n].Namespace)
		if err != nil {
			return nil, err
		}
		if sees {
			uids = append(uids, objects[n].UID)
		}
	}
	return uids, nil
}

// around reads the surroundings of the objects in a request, as far as the caller may list them.
func (h *handler) around(r *http.Request, s *Sight) ([]ownership.UID, *Surroundings, error) {
	uids, err := h.named(r, s)
	if err != nil {
		return nil, nil, err
	}
	if len(uids) == 0 {
		return nil, nil, &refusal{http.StatusBadRequest, "name an object: ?object=RESOURCE.GROUP/NAMESPACE/NAME or ?uid=UID"}
	}
	shown, err := h.shown(r.Context(), s, uids)
	if err != nil {
		return nil, nil, err
	}
	for _, uid := range uids {
		if !slices.Contains(shown, uid) {
			return nil, nil, notKnown(uid)
		}
	}
	around, err := h.source.Around(r.Context(), s.caller.Config, uids)
	if err != nil {
		return nil, nil, err //nolint:wrapcheck // says all of it
	}
	if around, err = s.surroundings(r.Context(), around); err != nil {
		return nil, nil, err
	}
	for _, uid := range uids {
		if around.Inventory.Object(uid) == nil {
			return nil, nil, notKnown(uid)
		}
	}
	return uids, around, nil
}

func notKnown(uid ownership.UID) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf("nothing is known of object %s, or you may not list it", ownership.Excerpt(string(uid), mostUID))}
}

// mostUID is how much of a UID is repeated in an error, in bytes.
const mostUID = 128

// surroundings returns the part of some that the caller may list. The rest counts as what could not be read.
func (s *Sight) surroundings(ctx context.Context, a *Surroundings) (*Surroundings, error) {
	if s.all {
		return a, nil
	}
	seen := *a
	seen.Inventory = &inventory.Inventory{
		Read: a.Inventory.Read, Resources: a.Inventory.Resources,
		Namespaces: a.Inventory.Namespaces, Pods: a.Inventory.Pods,
	}
	hidden := make(map[schema.GroupVersionResource]bool)
	hide := func(resource schema.GroupVersionResource) {
		if !hidden[resource] {
			hidden[resource] = true
			seen.Inventory.Unread = append(seen.Inventory.Unread, inventory.Unread{Resource: resource, Why: "what you may not list is left out", Forbidden: true})
		}
	}
	for _, u := range a.Inventory.Unread {
		if u.Forbidden {
			hide(u.Resource) // the server's refusal names what the collector knows, and the caller may not
		} else {
			seen.Inventory.Unread = append(seen.Inventory.Unread, u)
		}
	}
	for _, o := range a.Inventory.Objects {
		sees, err := s.Sees(ctx, o.Kind, o.Namespace)
		switch {
		case err != nil:
			return nil, err
		case sees:
			seen.Inventory.Objects = append(seen.Inventory.Objects, o)
		default:
			hide(o.Resource.GroupVersionResource)
		}
	}
	seen.Inventory.Index()
	return &seen, nil
}
