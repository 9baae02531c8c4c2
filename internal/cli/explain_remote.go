package cli

import (
	"context"
	"slices"
	"time"

	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// explainFromCollector asks a running collector why objects still exist, and reports whether the collector could explain
// it: a collector does not know deleted objects, and answers only users with a token. If the breaker has paused
// deletions, it reports false: an explanation from the cluster says better how to resume them.
func explainFromCollector(ctx context.Context, f *explainFlags, args []string, s Streams) (answered bool, err error) {
	if f.watch || len(f.auditLogs) > 0 {
		return false, nil
	}
	client, err := (&collectorFlags{cluster: f.cluster, address: f.address}).collector(ctx)
	if client == nil {
		return false, err
	}
	now := time.Now()
	if f.all {
		deletions, ok := client.deletions(ctx)
		if !ok {
			return false, nil
		}
		printLeftOut(s.Err, deletions.Unread)
		result := explainedGroups(deletions.Items, now)
		return true, result.print(s.Out, f.output)
	}
	explanations, ok := client.explain(ctx, f.uids, args)
	if !ok {
		return false, nil
	}
	result := explained{items: make([]any, 0, len(explanations))}
	for n := range explanations {
		result.add(&explanations[n], now)
	}
	return true, result.print(s.Out, f.output)
}

// explain returns the collector's explanations of the named objects. ok is false if it has none, or if its breaker
// has paused deletions.
func (c *collectorClient) explain(ctx context.Context, uids, args []string) (items []explain.Explanation, ok bool) {
	query, err := c.query(args)
	if err != nil {
		return nil, false
	}
	query["uid"] = uids
	var answer api.Explanations
	if err := c.get(ctx, api.Explain, query, &answer); err != nil {
		return nil, false
	}
	isPaused := slices.ContainsFunc(answer.Items, func(x explain.Explanation) bool {
		return slices.ContainsFunc(x.Leaves(), func(w *explain.Wait) bool { return w.On == explain.OnBreaker })
	})
	return answer.Items, !isPaused
}

// deletions returns the collector's explanations of all deletions. ok is false if it has none, or if its breaker has
// paused deletions.
func (c *collectorClient) deletions(ctx context.Context) (answer api.DeletionList, ok bool) {
	err := c.get(ctx, api.Deletions, nil, &answer)
	isPaused := slices.ContainsFunc(answer.Items, func(g explain.Group) bool { return g.Leaf.On == explain.OnBreaker })
	return answer, err == nil && !isPaused
}
