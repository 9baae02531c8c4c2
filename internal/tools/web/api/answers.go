package api

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/answer"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// Explanations is the answer of explain.
type Explanations struct {
	Items []explain.Explanation `json:"items"`
}

// DeletionList is the answer about all pending deletions.
type DeletionList struct {
	Items []explain.Group `json:"items"`
	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// preview answers with the effects of a DELETE of the named objects.
func (h *handler) preview(w http.ResponseWriter, r *http.Request, s *Sight) error {
	query := r.URL.Query()
	policy := metav1.DeletionPropagation(query.Get("propagationPolicy"))
	switch policy {
	case "", metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan:
	default:
		return &refusal{http.StatusBadRequest, fmt.Sprintf("propagationPolicy %q is unknown: choose Background, Foreground or Orphan, or leave it out", policy)}
	}
	uids, neighborhood, err := h.neighborhood(r, s)
	if err != nil {
		return err
	}
	requests := preview.RequestsOf(uids, policy)
	prediction := neighborhood.Preview(r.Context(), requests, query.Get("assumeReleased") == "true")
	report := prediction.Report(neighborhood.Inventory)
	report.Unconfirmed = h.source.Limits().Excess(report.Closure(h.source.Limits()))
	return h.writeJSON(w, report)
}

// explain answers why the named objects still exist.
func (h *handler) explain(w http.ResponseWriter, r *http.Request, s *Sight) error {
	uids, neighborhood, err := h.neighborhood(r, s)
	if err != nil {
		return err
	}
	list, size := Explanations{Items: []explain.Explanation{}}, new(size)
	err = neighborhood.Explain(r.Context(), uids, func(x explain.Explanation) error {
		list.Items = append(list.Items, x)
		return element(size, x, "    ", "") // an error if together they are too large
	})
	if err != nil {
		return err
	}
	return h.writeJSON(w, list)
}

// deletions answers why objects that are being deleted still exist, for all that the caller may list.
func (h *handler) deletions(w http.ResponseWriter, r *http.Request, s *Sight) error {
	uids, err := h.deleting(r.Context(), s)
	if err != nil {
		return err
	}
	list := DeletionList{Items: []explain.Group{}, Unread: s.Unread()}
	if len(uids) == 0 {
		return h.writeJSON(w, list)
	}
	neighborhood, err := h.source.Neighborhood(r.Context(), s.caller.Config, uids)
	if err != nil {
		return err
	}
	if neighborhood, err = s.visiblePart(r.Context(), neighborhood, uids); err != nil {
		return err
	}
	for _, u := range neighborhood.Inventory.Unread {
		if !u.Forbidden {
			list.Unread = append(list.Unread, u.String())
		}
	}
	list.Items = neighborhood.Deletions(r.Context())
	return h.writeJSON(w, list)
}

// deleting returns the objects that are being deleted and that the caller may list.
func (h *handler) deleting(ctx context.Context, s *Sight) ([]ownership.UID, error) {
	return h.visible(ctx, s, (*ownership.Graph).Deleting)
}

// visible returns the objects that a function selects from the graph and that the caller may list.
func (h *handler) visible(ctx context.Context, s *Sight, of func(*ownership.Graph, ownership.Cursor) ([]ownership.UID, ownership.Cursor)) ([]ownership.UID, error) {
	var uids []ownership.UID
	var places []ownership.Location
	for some := range slices.Chunk(ownership.All(h.source.View, of), ownership.Piece) {
		h.source.View(func(g *ownership.Graph) {
			for _, uid := range some {
				if kind, namespace, observed := g.Place(uid); observed {
					uids, places = append(uids, uid), append(places, ownership.Location{Kind: kind, Namespace: namespace})
				}
			}
		})
	}
	seen := make([]ownership.UID, 0, len(uids))
	for n, uid := range uids {
		sees, err := s.Sees(ctx, places[n].Kind, places[n].Namespace)
		if err != nil {
			return nil, err
		}
		if sees {
			seen = append(seen, uid)
		}
	}
	return seen, nil
}

// neighborhood reads the neighborhood of the objects in a request, as far as the caller may list them.
func (h *handler) neighborhood(r *http.Request, s *Sight) ([]ownership.UID, *answer.Cluster, error) {
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
	neighborhood, err := h.source.Neighborhood(r.Context(), s.caller.Config, uids)
	if err != nil {
		return nil, nil, err
	}
	if neighborhood, err = s.visiblePart(r.Context(), neighborhood, uids); err != nil {
		return nil, nil, err
	}
	for _, uid := range uids {
		if neighborhood.Inventory.Object(uid) == nil {
			return nil, nil, notKnown(uid)
		}
	}
	return uids, neighborhood, nil
}

func notKnown(uid ownership.UID) error {
	return &refusal{http.StatusNotFound, fmt.Sprintf("object %s is unknown, or you may not list it", ownership.Excerpt(string(uid), mostUID))}
}

// mostUID bounds the part of a UID that an error repeats, in bytes.
const mostUID = 128

// mostScopes bounds the namespaces in which rights are checked resource by resource. If the objects of a request are in
// more namespaces, only rights in all namespaces count.
const mostScopes = 8

// visiblePart returns the part that the caller may list. Its Unread has the other resources. Unread depends on the
// rights of the caller and on the objects of the request, not on the objects that exist.
func (s *Sight) visiblePart(ctx context.Context, a *answer.Cluster, uids []ownership.UID) (*answer.Cluster, error) {
	if s.all {
		return a, nil
	}
	seen := *a
	seen.Inventory = &inventory.Inventory{
		Read: a.Inventory.Read, Resources: a.Inventory.Resources,
		Namespaces: a.Inventory.Namespaces, Pods: a.Inventory.Pods,
	}
	for _, o := range a.Inventory.Objects {
		sees, err := s.Sees(ctx, o.Kind, o.Namespace)
		if err != nil {
			return nil, err
		}
		if sees {
			seen.Inventory.Objects = append(seen.Inventory.Objects, o)
		}
	}
	var err error
	if seen.Inventory.Unread, err = s.unreadAround(ctx, a.Inventory, namespacesOf(a.Inventory, uids)); err != nil {
		return nil, err
	}
	seen.Inventory.Index()
	seen.Collector = a.Collector.SeenBy(func(uid ownership.UID) bool { return seen.Inventory.Object(uid) != nil }, Withheld)
	return &seen, nil
}

// Withheld replaces an error of the API server, because the error may name objects that the caller may not list. For
// example, the server names a stored object that it cannot decode, and fails to list its resource.
const Withheld = "it cannot be read; users with the right to list all its objects see the reason"

// namespacesOf returns the namespaces of objects, and the names of objects that are namespaces. It returns an empty
// name for other cluster-scoped objects, and only an empty name if there are more than mostScopes.
func namespacesOf(inv *inventory.Inventory, uids []ownership.UID) []string {
	var all []string
	for _, uid := range uids {
		o := inv.Object(uid)
		switch {
		case o == nil:
		case o.Kind == (ownership.Kind{Kind: "Namespace"}):
			all = append(all, o.Name)
		default:
			all = append(all, o.Namespace)
		}
	}
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > mostScopes {
		return []string{""}
	}
	return all
}

// unreadAround returns the resources that the caller may not list in some namespaces, and the resources that could not
// be read for another reason. A refusal of the server reveals that an object exists, so it counts only if the caller
// may list the resource; so does a failure in one namespace. A failure in all namespaces counts without the server's
// words.
func (s *Sight) unreadAround(ctx context.Context, inv *inventory.Inventory, namespaces []string) ([]inventory.Unread, error) {
	const why = "objects that you may not list are left out"
	hidden, err := s.hidden(ctx, namespaces)
	if err != nil {
		return nil, err
	}
	var all []inventory.Unread
	for _, u := range inv.Unread {
		seen := u.Resource.Resource == "" // discovery did not answer for a group
		if !seen {
			if seen, err = s.mayResource(ctx, u.Resource.GroupResource(), u.Namespace); err != nil {
				return nil, err
			}
		}
		switch {
		case !seen && (u.Forbidden || u.Namespace != ""):
			continue
		case u.Forbidden:
			u.Why = why
		case !seen:
			u.Why = Withheld
		}
		all = append(all, u)
	}
	for _, r := range inv.Resources {
		u := inventory.Unread{Resource: r.GroupVersionResource, Why: why, Forbidden: true}
		if !slices.Contains(hidden, r.GroupResource()) {
			u.Except = namespaces
		}
		if !s.answers[scope{r.GroupResource(), ""}] {
			all = append(all, u)
		}
	}
	return all, nil
}
