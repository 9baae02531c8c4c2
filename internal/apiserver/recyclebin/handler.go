package recyclebin

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// Path is the path of the bin. GET with ?name= and ?namespace= lists the metadata of kept objects. With ?uid=, which
// may be repeated, it returns the complete object, and all objects that were deleted with it, or have lost it as their
// owner. The answer has all objects that were removed before the request, or is 503 with Retry-After.
const Path = "/coppice/v1/deleted"

// List is the response.
type List struct {
	Items []Item `json:"items"`
	// Unread lists the resources with objects that the caller may not get, which are omitted.
	Unread []string `json:"unread,omitempty"`
	// Off is the reason why nothing is kept; empty if there is a bin.
	Off string `json:"off,omitempty"`
}

// Off returns the handler for a server without a bin.
func Off(why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { write(w, List{Items: []Item{}, Off: why}) })
}

func write(w http.ResponseWriter, answer List) {
	setHeaders(w)
	_ = json.NewEncoder(w).Encode(answer)
}

func setHeaders(w http.ResponseWriter) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
}

// Handler returns a handler of authenticated requests. It serves only objects that the user may get.
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
		s := &sight{ctx: r.Context(), who: who, authorize: authorize, living: b.living, answers: map[right]bool{}, namespaces: map[string]types.UID{}}
		out := &stream{w: w}
		err := b.catchUp(r.Context())
		if err == nil {
			err = b.answer(s, r.URL.Query(), out)
		}
		switch {
		case isBehind(err):
			w.Header().Set("Retry-After", "1")
			http.Error(w, escape.Line(err.Error()), http.StatusServiceUnavailable)
		case err != nil && out.begun:
			panic(http.ErrAbortHandler) // an incomplete response must not look complete
		case err != nil:
			http.Error(w, escape.Line(err.Error()), http.StatusInternalServerError)
		case r.URL.Query().Has("uid") && !out.begun:
			http.Error(w, "nothing is kept of such an object, or you may not get it", http.StatusNotFound)
		default:
			out.end(s.unread)
		}
	})
}

// answer writes the objects that match a query and that the caller may get, one by one. It decrypts other objects only
// if a right of the caller may depend on their names. It does not call the authorizer during a read transaction,
// because writes may wait for the transaction.
func (b *Bin) answer(s *sight, query url.Values, out *stream) error {
	if query.Has("uid") {
		return b.whole(s, query["uid"], out)
	}
	err := b.named(s, query, out)
	s.unread = nil // a list does not reveal that there are other objects
	if err == nil {
		out.begin()
	}
	return err
}

// named writes the metadata of the objects with a name.
func (b *Bin) named(s *sight, query url.Values, out *stream) error {
	keys, err := b.allowed(s, query)
	if err != nil {
		return err
	}
	for _, key := range keys {
		i, err := b.head(key)
		if err != nil {
			return err
		}
		if i == nil || query.Has("name") && i.Name != query.Get("name") {
			continue
		}
		if err := out.item(i); err != nil {
			return err
		}
	}
	return nil
}

// allowed returns the keys of the objects that may match a query and that the caller may get.
func (b *Bin) allowed(s *sight, query url.Values) (keys []uint64, err error) {
	name, seen := b.index.hash(query.Get("name")), map[*scope]bool{}
	for _, o := range b.young() {
		if o.stays || query.Has("name") && o.name != name || query.Has("namespace") && o.scope.namespace != query.Get("namespace") {
			continue
		}
		sees, known := seen[o.scope]
		if !known {
			if sees, err = s.sees(o.scope, query.Get("name")); err != nil {
				return nil, err
			}
			seen[o.scope] = sees
		}
		if sees {
			keys = append(keys, o.key)
		}
	}
	return keys, nil
}

// whole writes the complete objects with the given UIDs that the caller may get, and the objects that were deleted with
// them.
func (b *Bin) whole(s *sight, uids []string, out *stream) error {
	all := b.young()
	roots, err := b.roots(s, all, uids)
	if err != nil || len(roots) == 0 {
		return err
	}
	s.unread = nil // the response must not reveal that these are kept
	wanted, err := b.index.deletedWith(all, roots, b.head)
	if err != nil {
		return err
	}
	for _, o := range latest(all, roots, wanted) {
		i, err := b.seen(s, o)
		if err != nil {
			return err
		}
		if i == nil {
			continue
		}
		if i.Object, err = b.body(o.key); err != nil {
			return err
		}
		if i.Object != nil {
			if err := out.item(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// roots returns the objects with the given UIDs that the caller may get.
func (b *Bin) roots(s *sight, all []indexed, uids []string) (roots []indexed, err error) {
	requested := map[uint64]bool{}
	for _, uid := range uids {
		requested[b.index.hash(uid)] = true
	}
	for _, o := range all {
		if o.stays || !requested[o.uid] {
			continue
		}
		i, err := b.seen(s, &o)
		if err != nil {
			return nil, err
		}
		if i != nil && slices.Contains(uids, string(i.UID)) {
			roots = append(roots, o)
		}
	}
	return roots, nil
}

// seen returns the item of an object; nil if the caller may not get it, or the bin no longer has it.
func (b *Bin) seen(s *sight, o *indexed) (*Item, error) {
	sees, err := s.sees(o.scope, "")
	if err != nil {
		return nil, err
	}
	i, err := b.head(o.key)
	if err != nil || i == nil || sees {
		return i, err
	}
	if sees, err = s.sees(o.scope, i.Name); err != nil || !sees {
		return nil, err
	}
	return i, nil
}

// young returns the objects that have not exceeded the maximum age, the oldest first.
func (b *Bin) young() []indexed {
	all, oldest := b.index.entries(), b.clock.Now().Add(-b.bounds.Age)
	first := slices.IndexFunc(all, func(o indexed) bool { return !o.removed.Before(oldest) })
	if first < 0 {
		return nil
	}
	return all[first:]
}

// stream writes a List, item by item.
type stream struct {
	w     http.ResponseWriter
	begun bool
	items int
}

func (o *stream) begin() {
	if !o.begun {
		o.begun = true
		setHeaders(o.w)
		_, _ = io.WriteString(o.w, `{"items":[`)
	}
}

func (o *stream) item(i *Item) error {
	text, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encode an object: %w", err)
	}
	o.begin()
	if o.items++; o.items > 1 {
		text = append([]byte(","), text...)
	}
	if _, err := io.WriteString(o.w, escape.Text(string(text))); err != nil { // curl prints it on a terminal
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

func (o *stream) end(unread []string) {
	rest := "]"
	if len(unread) > 0 {
		text, _ := json.Marshal(unread) // of texts
		rest += `,"unread":` + string(text)
	}
	_, _ = io.WriteString(o.w, rest+"}\n")
}

// Kept converts an item for package undo. If the item has no object, the result has only the metadata that Closure
// reads.
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
		Stays: i.Stays, OrphansUnknown: i.OrphansUnknown,
	}
}
