package recyclebin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/undo"
)

// Path is where the bin answers: GET with ?name= and ?namespace= tells what is kept, without what objects
// contain; with ?uid=, which may be repeated, it has the whole object, and all that went with it.
const Path = "/coppice/v1/deleted"

// List is the answer.
type List struct {
	Items []Item `json:"items"`
	// Unread says of which resources something was left out that the caller may not get.
	Unread []string `json:"unread,omitempty"`
	// Off says why nothing is kept at all, where that is so.
	Off string `json:"off,omitempty"`
}

// Off answers where there is no bin, and says so.
func Off(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, List{Items: []Item{}, Off: why}) })
}

func write(w http.ResponseWriter, answer List) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

// Handler answers callers whom the API server has authenticated, about what they may get.
func (b *Bin) Handler(authorize authorizer.Authorizer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, known := request.UserFrom(r.Context())
		switch {
		case !known:
			http.Error(w, "not authenticated", http.StatusUnauthorized)
			return
		case r.Method != http.MethodGet:
			http.Error(w, "only GET", http.StatusMethodNotAllowed)
			return
		}
		s := &sight{ctx: r.Context(), who: who, authorize: authorize, answers: map[right]bool{}}
		answer, err := b.answer(s, r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if r.URL.Query().Has("uid") && len(answer.Items) == 0 {
			http.Error(w, "nothing is kept of such an object, or you may not get it", http.StatusNotFound)
			return
		}
		write(w, answer)
	})
}

// answer collects what was asked for and the caller may get. Nobody is asked about the caller while the database
// is read: a write may have to wait for that.
func (b *Bin) answer(s *sight, r *http.Request) (List, error) {
	query := r.URL.Query()
	list := List{Items: []Item{}}
	if !query.Has("uid") {
		found, err := b.named(query)
		if err != nil {
			return List{}, err
		}
		// Who only lists is not told that there is more.
		list.Items, err = s.only(found)
		return list, err
	}
	wanted, err := b.wanted(s, query["uid"])
	if err != nil || len(wanted) == 0 {
		return List{}, err
	}
	whole, err := b.whole(wanted)
	if err != nil {
		return List{}, err
	}
	list.Items, err = s.only(whole)
	list.Unread = s.unread
	return list, err
}

// named returns what has a name, without what it contains.
func (b *Bin) named(query url.Values) (found []Item, err error) {
	err = b.each(func(i *Item, _ func() (*unstructured.Unstructured, error)) error {
		if (!query.Has("name") || i.Name == query.Get("name")) && (!query.Has("namespace") || i.Namespace == query.Get("namespace")) {
			found = append(found, *i)
		}
		return nil
	})
	return found, err
}

// whole returns the objects of UIDs with what they contain.
func (b *Bin) whole(wanted map[types.UID]bool) (found []Item, err error) {
	err = b.each(func(i *Item, body func() (*unstructured.Unstructured, error)) (err error) {
		if !wanted[i.UID] {
			return nil
		}
		item := *i
		item.Object, err = body()
		found = append(found, item)
		return err
	})
	return found, err
}

// wanted returns the UIDs of objects that the caller may get, out of some, and of all that went with these.
func (b *Bin) wanted(s *sight, uids []string) (map[types.UID]bool, error) {
	all, err := b.named(nil)
	if err != nil {
		return nil, err
	}
	asked := map[types.UID]bool{}
	for _, uid := range uids {
		asked[types.UID(uid)] = true
	}
	var kept []undo.Kept
	var roots []types.UID
	for n := range all {
		i := &all[n]
		kept = append(kept, i.Kept())
		if !asked[i.UID] {
			continue
		}
		sees, err := s.sees(i)
		if err != nil {
			return nil, err
		}
		if sees {
			roots = append(roots, i.UID)
		}
	}
	wanted := map[types.UID]bool{}
	for _, k := range undo.Closure(kept, roots...) {
		wanted[k.UID()] = true
	}
	return wanted, nil
}

// Kept returns an item as package undo takes it. Without the whole object, it has what Closure looks at.
func (i *Item) Kept() undo.Kept {
	o := i.Object
	if o == nil {
		o = &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(schema.GroupVersionKind{Group: i.Group, Version: i.Version, Kind: i.Kind})
		o.SetNamespace(i.Namespace)
		o.SetName(i.Name)
		o.SetUID(i.UID)
		o.SetOwnerReferences(i.Owners)
		o.SetDeletionTimestamp(i.DeletionTimestamp)
		o.SetDeletionGracePeriodSeconds(i.Grace)
	}
	return undo.Kept{
		Resource: schema.GroupVersionResource{Group: i.Group, Version: i.Version, Resource: i.Resource},
		Object:   o, Finalizers: slices.Concat([]string{}, i.Finalizers), Revision: i.Revision, Removed: i.Removed,
	}
}

// sight is what a caller may get, for one request.
type sight struct {
	ctx       context.Context //nolint:containedctx // of the one request that it is for
	who       user.Info
	authorize authorizer.Authorizer
	answers   map[right]bool
	unread    []string
}

// right is the right to get an object.
type right struct{ group, resource, namespace, name string }

// only returns the items that the caller may get.
func (s *sight) only(found []Item) ([]Item, error) {
	seen := []Item{}
	for n := range found {
		sees, err := s.sees(&found[n])
		if err != nil {
			return nil, err
		}
		if sees {
			seen = append(seen, found[n])
		}
	}
	return seen, nil
}

// sees reports whether the caller may get an object, were it there.
func (s *sight) sees(i *Item) (bool, error) {
	all := right{i.Group, i.Resource, i.Namespace, ""}
	for _, r := range []right{all, {i.Group, i.Resource, i.Namespace, i.Name}} {
		allowed, known := s.answers[r]
		if !known {
			decision, _, err := s.authorize.Authorize(s.ctx, authorizer.AttributesRecord{
				User: s.who, Verb: "get", Namespace: r.namespace, Name: r.name, ResourceRequest: true,
				APIGroup: r.group, APIVersion: "*", Resource: r.resource,
			})
			if err != nil && decision != authorizer.DecisionAllow {
				return false, fmt.Errorf("find out what the user may get: %w", err)
			}
			allowed = decision == authorizer.DecisionAllow
			s.answers[r] = allowed
		}
		if allowed {
			return true, nil
		}
	}
	if what := (schema.GroupResource{Group: i.Group, Resource: i.Resource}).String() + ": what you may not get is left out"; !slices.Contains(s.unread, what) {
		s.unread = append(s.unread, what)
	}
	return false, nil
}
