package reader

import (
	"context"
	"slices"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// readMore reads the objects that a confined reading lacks, according to the options. These lists may show objects
// elsewhere that claim an owner here; then it reads everything.
func (r *reader) readMore(ctx context.Context, listable []*inventory.Resource, undiscovered []inventory.Unread) error {
	for r.result.Within != nil && r.options.Lacks != nil {
		r.result.Index()
		lack := r.options.Lacks(r.result)
		more := listable
		switch {
		case lack.All:
			r.result.Within, r.result.Beyond, r.result.Everywhere = nil, false, nil
			r.result.Objects, r.result.Pods, r.result.Unread = nil, nil, slices.Clone(undiscovered)
		case len(lack.Everywhere) > 0:
			more = slices.DeleteFunc(slices.Clone(listable), func(l *inventory.Resource) bool {
				return !slices.Contains(lack.Everywhere, l.OwnerKind())
			})
			r.result.Everywhere = append(r.result.Everywhere, lack.Everywhere...)
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
