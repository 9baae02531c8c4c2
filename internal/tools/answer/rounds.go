package answer

import (
	"context"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// FactReader reads facts beyond metadata: reader.Facts does, from the cluster.
type FactReader interface {
	// Read adds the needed facts. A fact that cannot be read is added with the reason.
	Read(ctx context.Context, needs inventory.Needs, facts *inventory.Facts)
}

// mostRounds bounds the rounds of one decision. Most decisions take a handful: workloads, then roles, then Leases and
// webhooks.
const mostRounds = 32

// decide makes a decision, reads the facts that it needed, and makes it again, until it needs no more. The decision is
// pure: it takes facts from a value, and the same facts give the same decision. After mostRounds, the rest counts as
// unread.
func decide[T any](ctx context.Context, r FactReader, facts *inventory.Facts, decision func() T) T {
	for range mostRounds {
		result := decision()
		needs := facts.Needs()
		if needs.IsEmpty() {
			return result
		}
		r.Read(ctx, needs, facts)
	}
	facts.Close()
	return decision()
}
