package reader

import (
	"context"
	"slices"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// readMissing reads the objects that a confined reading does not have, according to the options. These lists may show
// objects elsewhere that claim an owner here; then it reads everything.
func (r *reader) readMissing(ctx context.Context, listable []*inventory.Resource, undiscovered []inventory.Unread) error {
	for r.result.Within != nil && r.options.Missing != nil {
		r.result.Index()
		missing := r.options.Missing(r.result)
		more := listable
		switch {
		case missing.All:
			r.result.Within, r.result.Beyond, r.result.Everywhere = nil, false, nil
			r.result.Objects, r.result.Pods, r.result.Unread = nil, nil, slices.Clone(undiscovered)
		case len(missing.Everywhere) > 0:
			more = slices.DeleteFunc(slices.Clone(listable), func(l *inventory.Resource) bool {
				return !slices.Contains(missing.Everywhere, l.OwnerKind())
			})
			r.result.Everywhere = append(r.result.Everywhere, missing.Everywhere...)
			r.result.Objects = slices.DeleteFunc(r.result.Objects, func(o *inventory.Object) bool { return slices.Contains(more, o.Resource) })
			r.result.Unread = slices.DeleteFunc(r.result.Unread, func(u inventory.Unread) bool {
				return slices.ContainsFunc(more, func(l *inventory.Resource) bool { return l.GroupVersionResource == u.Resource })
			})
		default:
			return nil
		}
		if err := r.readAll(ctx, more); err != nil {
			return err
		}
	}
	return nil
}
