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
// contain; with ?uid= it has the whole object, and all that went with it.
const Path = "/coppice/v1/deleted"

// List is the answer.
type List struct {
	Items []Item `json:"items"`
	// Unread says of which resources something was left out that the caller may not get.
	Unread []string `json:"unread,omitempty"`
}

// Handler answers callers whom the API server has authenticated, about what they may get.
func (b *Bin) Handler(authorize authorizer.Authorizer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
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
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// answer collects what was asked for and the caller may get. Nobody is asked about the caller while the database
// is read: a write may have to wait for that.
func (b *Bin) answer(s *sight, r *http.Request) (List, error) {
	uid := types.UID(r.URL.Query().Get("uid"))
	found, err := b.wanted(r.URL.Query())
	if err != nil {
		return List{}, err
	}
	list, seesRoot := List{Items: []Item{}}, uid == ""
	for n := range found {
		sees, err := s.sees(&found[n])
		if err != nil {
			return List{}, err
		}
		if sees {
			seesRoot = seesRoot || found[n].UID == uid
			list.Items = append(list.Items, found[n])
		}
	}
	if !seesRoot {
		return List{}, nil
	}
	if uid != "" { // who only lists is not told that there is more
		list.Unread = s.unread
	}
	return list, nil
}

// wanted returns what was asked for: an object and all that went with it, whole, or what has a name.
func (b *Bin) wanted(query url.Values) (found []Item, err error) {
	uid := types.UID(query.Get("uid"))
	if uid == "" {
		err = b.each(func(i *Item, _ func() (*unstructured.Unstructured, error)) error {
			if (!query.Has("name") || i.Name == query.Get("name")) && (!query.Has("namespace") || i.Namespace == query.Get("namespace")) {
				found = append(found, *i)
			}
			return nil
		})
		return found, err
	}
	wanted, err := b.closure(uid)
	if err != nil {
		return nil, err
	}
	err = b.each(func(i *Item, body func() (*unstructured.Unstructured, error)) (err error) {
		if !wanted[i.UID] {
			return nil
		}
		whole := *i
		whole.Object, err = body()
		found = append(found, whole)
		return err
	})
	return found, err
}

// closure returns the UIDs of all that went with an object.
func (b *Bin) closure(root types.UID) (map[types.UID]bool, error) {
	var kept []undo.Kept
	err := b.each(func(i *Item, _ func() (*unstructured.Unstructured, error)) error {
		kept = append(kept, i.Kept())
		return nil
	})
	wanted := map[types.UID]bool{}
	for _, k := range undo.Closure(kept, root) {
		wanted[k.UID()] = true
	}
	return wanted, err
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
