package api

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

const (
	// mostProtected bounds the number of objects in an answer: each takes a request.
	mostProtected = 200
	// readsAtOnce bounds the number of concurrent requests.
	readsAtOnce = 8
)

// ProtectedList is the answer about protected objects.
type ProtectedList struct {
	Items []ProtectedObject `json:"items"`
	// Defaults are the modes of resources whose objects have no label. Items has only objects with a label.
	Defaults []protection.Default `json:"defaults,omitempty"`
	// Confirm are the limits of deletions that need no confirmation, as "coppice up --confirm-deletions" takes them (R32).
	Confirm string `json:"confirm,omitempty"`
	// More is the number of further objects.
	More int `json:"more,omitempty"`
	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// ProtectedObject is an object that is protected (R28).
type ProtectedObject struct {
	explain.Ref

	Resource string   `json:"resource"` // "deployments.apps"
	Mode     string   `json:"mode"`     // the value of the label
	Outlives []string `json:"outlives,omitempty"`
	Invalid  string   `json:"invalid,omitempty"` // why it is protected as by always
	// Unchecked says why Outlives is not looked up: all of these objects count as existing.
	Unchecked string `json:"unchecked,omitempty"`
}

// protected answers with the protected objects that the caller may list. The graph has these objects; the labels and
// annotations are read as the caller.
func (h *handler) protected(w http.ResponseWriter, r *http.Request, s *Sight) error {
	uids, err := h.visible(r.Context(), s, (*ownership.Graph).Protected)
	if err != nil {
		return err
	}
	var seen []ownership.Object
	for some := range slices.Chunk(uids, ownership.Piece/4) {
		h.source.View(func(g *ownership.Graph) {
			for _, uid := range some {
				if o, observed := g.Object(uid); observed {
					seen = append(seen, o)
				}
			}
		})
	}
	slices.SortFunc(seen, func(a, b ownership.Object) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind.String(), b.Kind.String()), cmp.Compare(a.Name, b.Name))
	})
	answer := ProtectedList{Items: []ProtectedObject{}, Confirm: h.source.Limits().String(), More: max(0, len(seen)-mostProtected), Unread: s.Unread()}
	if defaults, err := h.source.Defaults(r.Context(), s.caller.Config); err == nil { // a caller without the right sees the labels only
		answer.Defaults = defaults.List()
	}
	read, err := h.readProtected(r.Context(), s, seen[:min(len(seen), mostProtected)])
	if err != nil {
		return err
	}
	for _, one := range read {
		if one.err != nil && !slices.Contains(answer.Unread, one.err.Error()) {
			answer.Unread = append(answer.Unread, one.err.Error())
		}
		if one.Mode != "" {
			answer.Items = append(answer.Items, one.ProtectedObject)
		}
	}
	return h.writeJSON(w, answer)
}

// readOne is an object as it was read; without a mode, it is no longer protected.
type readOne struct {
	ProtectedObject

	err error
}

// readProtected reads the protections of objects.
func (h *handler) readProtected(ctx context.Context, s *Sight, objects []ownership.Object) ([]readOne, error) {
	details, err := reader.NewFacts(s.caller.Config)
	if err != nil {
		return nil, err
	}
	checker := sync.OnceValues(func() (*protection.Checker, error) { return details.Checker(ctx) }) // few requests need it
	client, err := metadata.NewForConfig(s.caller.Config)
	if err != nil {
		return nil, fmt.Errorf("make a client for metadata: %w", err)
	}
	resources := map[ownership.Kind]schema.GroupVersionResource{}
	for _, r := range h.source.Resources() {
		resources[r.OwnerKind()] = r.GroupVersionResource
	}
	all := make([]readOne, len(objects))
	var reads errgroup.Group
	reads.SetLimit(readsAtOnce)
	for n := range objects {
		o, one := &objects[n], &all[n]
		resource := resources[o.Kind]
		one.Ref = explain.Ref{Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: o.UID}
		one.Resource = resource.GroupResource().String()
		reads.Go(func() error {
			m, err := client.Resource(resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
			switch {
			case apierrors.IsNotFound(err):
			case err != nil:
				one.err = fmt.Errorf("%s: %w", one.Ref, err)
			case ownership.UID(m.UID) == o.UID:
				one.err = one.fill(m, checker)
			}
			return nil
		})
	}
	_ = reads.Wait()
	return all, ctx.Err()
}

// fill fills in the protection of an object. It returns the error if the configuration of the checker cannot be read.
func (p *ProtectedObject) fill(m *metav1.PartialObjectMetadata, checkedBy func() (*protection.Checker, error)) error {
	how, _ := protection.Of(m)
	var err error
	if how.NeedsLookup() {
		var checker *protection.Checker
		if checker, err = checkedBy(); checker != nil {
			how = how.CheckedBy(*checker, m)
		}
	}
	p.Mode, p.Invalid, p.Unchecked = how.Label, how.Invalid, how.Unchecked
	for _, other := range how.Outlives {
		p.Outlives = append(p.Outlives, other.String())
	}
	return err
}
