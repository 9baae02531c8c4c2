package cli

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// reading is the cluster as it was read once, and an outline of its explanation.
type reading struct {
	inventory *inventory.Inventory
	outline   string
}

// explainOnce reads the cluster, and prints an explanation if its outline differs from the earlier one.
func explainOnce(ctx context.Context, f explainFlags, args []string, earlier *reading, s Streams) (*reading, error) {
	named := args
	if len(f.uids) > 0 {
		named = nil // they may be in any namespace
	}
	var missing []history.Target
	q, err := f.cluster.ask(ctx, s, named, func(inv *inventory.Inventory, _ io.Writer) (uids []ownership.UID, err error) {
		uids, missing, err = objectsToExplain(inv, &f, args)
		return uids, err
	})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 && earlier != nil {
		return nil, &goneError{nameOf(q.Inventory, missing[0])}
	}
	collector, err := f.findCollector(ctx, q.config)
	if err != nil {
		return nil, err
	}
	if q.Collector, err = collector.state(ctx); err != nil {
		return nil, err
	}
	if earlier != nil {
		q.Before = earlier.inventory
	} else {
		printUnread(s.Err, q.Inventory.Unread)
	}
	result := explainObjects(ctx, q)
	if f.all {
		result = explainedGroups(q.Deletions(ctx), q.Now)
	}
	if len(missing) > 0 {
		if err := result.addDeleted(ctx, q.Inventory, &f, collector, missing); err != nil {
			return nil, err
		}
	}
	if earlier == nil || earlier.outline != result.outline {
		err = result.print(s.Out, f.output)
	}
	return &reading{q.Inventory, result.outline}, err
}

// objectsToExplain returns the objects that flags and arguments name, and the named objects that do not exist.
func objectsToExplain(inv *inventory.Inventory, f *explainFlags, args []string) (uids []ownership.UID, missing []history.Target, err error) {
	for _, uid := range f.uids {
		if inv.Object(ownership.UID(uid)) != nil {
			uids = append(uids, ownership.UID(uid))
		} else {
			missing = append(missing, history.Target{UID: ownership.UID(uid)})
		}
	}
	namespace, err := f.cluster.namespace()
	if err != nil {
		return nil, nil, err
	}
	selectors, err := inv.ParseSelectors(args, namespace)
	if err != nil {
		return nil, nil, usageError{err}
	}
	for _, selector := range selectors {
		here := selector
		here.Names = slices.DeleteFunc(slices.Clone(selector.Names), func(named string) bool {
			isGone := inv.Named(selector.Resource, selector.Namespace, named) == nil && inv.Complete(selector.Resource, selector.Namespace)
			if isGone {
				missing = append(missing, history.Target{Kind: selector.Resource.OwnerKind(), Namespace: selector.Namespace, Name: named})
			}
			return isGone
		})
		if len(here.Names) < len(selector.Names) && len(here.Names) == 0 {
			continue // an empty list of names selects all objects
		}
		objects, err := inv.Select(here)
		if err != nil {
			return nil, nil, err
		}
		for _, o := range objects {
			uids = append(uids, o.UID)
		}
	}
	if len(args) > 0 && len(uids)+len(missing) == 0 {
		return nil, nil, &goneError{strings.Join(args, " ")}
	}
	return uids, missing, nil
}

// nameOf names a deleted object.
func nameOf(inv *inventory.Inventory, t history.Target) string {
	if r := inv.Resource(t.Kind); r != nil && t.Name != "" {
		return r.GroupResource().String() + "/" + t.Name
	}
	return "the object with uid " + string(t.UID)
}
