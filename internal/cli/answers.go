package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/explain"
	"github.com/coppice-dev/coppice/internal/web/api"
)

// previewFormatsOfAPI are those that need no more than a report.
func previewFormatsOfAPI() []string { return []string{"text", "json", "yaml", "name"} }

// previewFromAPI asks a running collector what a deletion would do. It knows objects by name.
func previewFromAPI(c *cobra.Command, f *previewFlags, policy metav1.DeletionPropagation, args []string, s Streams) (foretold, error) {
	switch {
	case f.targets.isFiles() || f.targets.selector != "" || f.targets.all:
		return foretold{}, usageError{errors.New("a collector at --address is asked about objects by name: TYPE/NAME")}
	case f.order != "":
		return foretold{}, usageError{errors.New("--namespace-deletion-order: the collector at --address knows its own: leave out one of the two")}
	case !slices.Contains(previewFormatsOfAPI(), f.output):
		return foretold{}, usageError{fmt.Errorf("--output %s needs the whole cluster: leave out --address, or choose one of %s", f.output, strings.Join(previewFormatsOfAPI(), ", "))}
	}
	asker, err := (&askFlags{cluster: f.cluster, address: f.address}).asker()
	if err != nil {
		return foretold{}, err
	}
	query, err := asker.query(args)
	if err != nil {
		return foretold{}, err
	}
	query.Set("propagationPolicy", string(policy))
	query.Set("assumeReleased", fmt.Sprint(f.released))
	result := foretold{policy: policy}
	if err := asker.get(c.Context(), api.Preview, query, &result.report); err != nil {
		return foretold{}, err
	}
	sayLeftOut(s.Err, result.report.Unread)
	return result, nil
}

// explainFromAPI asks the collector at --address why objects are still there, and reports whether it could
// tell: it knows nothing of what is gone, and answers only users with a token. How a pause of its breaker is
// ended, who has read the cluster says better.
func explainFromAPI(c *cobra.Command, f *explainFlags, args []string, s Streams) (told bool, err error) {
	if f.address == "" || f.watch || len(f.auditLogs) > 0 {
		return false, nil
	}
	if f.all {
		return explainAllFromAPI(c, f, s)
	}
	answer, ok := askToExplain(c, f, args)
	if !ok {
		return false, nil
	}
	one := said{items: make([]any, 0, len(answer.Items))}
	for n := range answer.Items {
		x := &answer.Items[n]
		if slices.ContainsFunc(x.Leaves(), func(w *explain.Wait) bool { return w.On == explain.OnBreaker }) {
			return false, nil
		}
		one.items = append(one.items, x)
		one.text += x.Text(time.Now()) //nolint:forbidigo // ages are those at the time at which a user asks
	}
	return true, one.print(s.Out, f.output)
}

// explainAllFromAPI does the same for all deletions that are under way.
func explainAllFromAPI(c *cobra.Command, f *explainFlags, s Streams) (told bool, err error) {
	answer, ok := askForDeletions(c, f)
	if !ok || slices.ContainsFunc(answer.Items, func(g explain.Group) bool { return g.Leaf.On == explain.OnBreaker }) {
		return false, nil
	}
	sayLeftOut(s.Err, answer.Unread)
	return true, saidOfAll(answer.Items, time.Now()).print(s.Out, f.output) //nolint:forbidigo // as above
}

// askForDeletions returns what the collector says of all deletions, if it does.
func askForDeletions(c *cobra.Command, f *explainFlags) (answer api.DeletionList, ok bool) {
	asker, err := (&askFlags{cluster: f.cluster, address: f.address}).asker()
	if err != nil {
		return answer, false
	}
	err = asker.get(c.Context(), api.Deletions, nil, &answer)
	return answer, err == nil
}

// askToExplain returns what the collector explains, if it does. Otherwise the cluster is read, which has
// better words for what is wrong.
func askToExplain(c *cobra.Command, f *explainFlags, args []string) (answer api.Explanations, ok bool) {
	asker, err := (&askFlags{cluster: f.cluster, address: f.address}).asker()
	if err != nil {
		return answer, false
	}
	query, err := asker.query(args)
	if err != nil {
		return answer, false
	}
	query["uid"] = f.uids
	err = asker.get(c.Context(), api.Explain, query, &answer)
	return answer, err == nil
}
