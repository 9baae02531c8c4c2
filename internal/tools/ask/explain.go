package ask

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// Existence asks why objects still exist, or why they are gone.
type Existence struct {
	Objects Objects
	// All asks about all objects that are being deleted; In confines that to a namespace and the objects in it.
	All bool
	In  string
	// AuditLogs are files with audit logs of the API server, the oldest first.
	AuditLogs []string
	// Watch asks for an answer to compare the next one with. The cluster is read for it, each time.
	Watch bool
	// Before is the inventory of the answer before, if there is one.
	Before *inventory.Inventory
}

// Explanations is the answer to Existence.
type Explanations struct {
	Objects []explain.Explanation // of objects that exist
	Groups  []explain.Group       // of All
	Deleted []history.Explanation // of objects that are gone
	// Gone names the objects that do not exist. An answer after the first one has no Deleted.
	Gone []string
	// Unread lists the resources whose objects may be missing.
	Unread []string
	// Now is the time of the answer.
	Now time.Time
	// Inventory is the part of the cluster that was read; nil for an answer of a collector.
	Inventory *inventory.Inventory
}

// Explain explains why objects still exist, or why they are gone. If an object is gone for an unknown reason, the error is
// a GoneError; with Before, only if no object at all is found. The answer has Unread even with an error.
func (s *Sources) Explain(ctx context.Context, q Existence) (Explanations, error) {
	if !q.Watch && len(q.AuditLogs) == 0 && q.In == "" {
		if answer, ok := s.explainFromCollector(ctx, q); ok {
			return answer, nil
		}
	}
	return s.explainFromCluster(ctx, q)
}

// explainFromCollector asks a running collector, and reports whether it could explain the objects: a collector does not
// know deleted objects, and answers only users with a token. If the breaker has paused deletions, it reports false:
// an explanation from the cluster says better how to resume them.
func (s *Sources) explainFromCollector(ctx context.Context, q Existence) (answer Explanations, ok bool) {
	c, err := s.findCollector(ctx)
	if c == nil || err != nil {
		return Explanations{}, false
	}
	answer.Now = s.Now()
	if q.All {
		var list api.DeletionList
		err := c.Get(ctx, api.Deletions, nil, &list)
		isPaused := slices.ContainsFunc(list.Items, func(g explain.Group) bool { return g.Leaf.On == explain.OnBreaker })
		answer.Groups, answer.Unread = list.Items, list.Unread
		return answer, err == nil && !isPaused
	}
	query, err := c.query(q.Objects)
	if err != nil {
		return Explanations{}, false
	}
	var list api.Explanations
	if err := c.Get(ctx, api.Explain, query, &list); err != nil {
		return Explanations{}, false
	}
	isPaused := slices.ContainsFunc(list.Items, func(x explain.Explanation) bool {
		return slices.ContainsFunc(x.Leaves(), func(w *explain.Wait) bool { return w.On == explain.OnBreaker })
	})
	answer.Objects = list.Items
	return answer, !isPaused
}

// explainFromCluster reads the cluster, and the diagnostics of the collector.
func (s *Sources) explainFromCluster(ctx context.Context, q Existence) (answer Explanations, err error) {
	args := q.Objects.Args
	switch {
	case len(q.Objects.UIDs) > 0:
		args = nil // the objects may be in any namespace
	case q.In != "":
		args = []string{"namespaces/" + q.In}
	}
	var missing []history.Target
	n, err := s.neighborhood(ctx, args, func(inv *inventory.Inventory, _ io.Writer) (uids []ownership.UID, err error) {
		if q.In != "" {
			return deletedIn(inv, q.In), nil
		}
		uids, missing, err = q.Objects.find(inv, s.Namespace)
		return uids, err
	})
	if err != nil {
		return Explanations{}, err
	}
	collector, err := s.diagnostics(ctx)
	if err != nil {
		return Explanations{}, err
	}
	if n.Collector, err = collector.state(ctx); err != nil {
		return Explanations{}, err
	}
	n.Before = q.Before
	answer = Explanations{Unread: inventory.TextsOf(n.Inventory.Unread), Now: n.Now, Inventory: n.Inventory}
	switch {
	case q.In != "":
		answer.Groups = n.DeletionsIn(ctx, q.In)
	case q.All:
		answer.Groups = n.Deletions(ctx)
	default:
		_ = n.Explain(ctx, n.uids, func(x explain.Explanation) error { // which returns no error
			answer.Objects = append(answer.Objects, x)
			return nil
		})
	}
	for _, t := range missing {
		answer.Gone = append(answer.Gone, nameOf(n.Inventory, t))
	}
	if q.Before == nil && len(missing) > 0 {
		answer.Deleted, err = s.explainDeleted(ctx, n.Inventory, q.AuditLogs, collector, missing)
	}
	return answer, err
}

// deletedIn returns the objects in a namespace that are being deleted.
func deletedIn(inv *inventory.Inventory, namespace string) (uids []ownership.UID) {
	for _, o := range inv.Objects {
		if o.Namespace == namespace && o.Phase != ownership.Active {
			uids = append(uids, o.UID)
		}
	}
	return uids
}

// find returns the named objects of an inventory, and the named objects that do not exist.
func (o Objects) find(inv *inventory.Inventory, namespace string) (uids []ownership.UID, missing []history.Target, err error) {
	for _, uid := range o.UIDs {
		if inv.Object(ownership.UID(uid)) != nil {
			uids = append(uids, ownership.UID(uid))
		} else {
			missing = append(missing, history.Target{UID: ownership.UID(uid)})
		}
	}
	selectors, err := inv.ParseSelectors(o.Args, namespace)
	if err != nil {
		return nil, nil, InvalidError{err}
	}
	for _, selector := range selectors {
		existing := selector
		existing.Names = slices.DeleteFunc(slices.Clone(selector.Names), func(named string) bool {
			isGone := inv.Named(selector.Resource, selector.Namespace, named) == nil && inv.Complete(selector.Resource, selector.Namespace)
			if isGone {
				missing = append(missing, history.Target{Kind: selector.Resource.OwnerKind(), Namespace: selector.Namespace, Name: named})
			}
			return isGone
		})
		if len(existing.Names) < len(selector.Names) && len(existing.Names) == 0 {
			continue // an empty list of names selects all objects
		}
		objects, err := inv.Select(existing)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			uids = append(uids, o.UID)
		}
	}
	if len(o.Args) > 0 && len(uids)+len(missing) == 0 {
		return nil, nil, &GoneError{strings.Join(o.Args, " ")}
	}
	return uids, missing, nil
}

// GoneError is the error for an object that does not exist.
type GoneError struct {
	// Object names it.
	Object string
}

func (e *GoneError) Error() string {
	return e.Object + " does not exist, and the reason is unknown: " +
		"the API server's audit log (--audit-log), or the records and stories of a running collector (--address), may have it"
}

// nameOf names a deleted object.
func nameOf(inv *inventory.Inventory, t history.Target) string {
	if r := inv.Resource(t.Kind); r != nil && t.Name != "" {
		return r.GroupResource().String() + "/" + t.Name
	}
	return "the object with uid " + string(t.UID)
}
