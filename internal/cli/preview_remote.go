package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// mostAsked is the largest number of objects that a request may name: about as many as fit into its header.
const mostAsked = 20_000

// previewFromCollector asks a running collector what a deletion would do. settled reports whether the caller uses the
// result, errors included: always if the user has named the collector, otherwise only if the collector has returned
// a preview. If it is false, the caller reads the cluster.
func previewFromCollector(c *cobra.Command, f *previewFlags, policy metav1.DeletionPropagation, args []string, s Streams) (result prediction, settled bool, err error) {
	var notes strings.Builder
	result, err = f.askForPreview(c.Context(), policy, args, &notes)
	settled = f.address != "" && f.address != noCollector || err == nil && result.report.Digest != ""
	if settled {
		_, _ = io.WriteString(s.Err, notes.String())
	}
	return result, settled, err
}

// askForPreview asks the collector, if there is one. It writes notes for the user to w.
func (f *previewFlags) askForPreview(ctx context.Context, policy metav1.DeletionPropagation, args []string, w io.Writer) (prediction, error) {
	client, err := (&collectorFlags{cluster: f.cluster, address: f.address}).collector(ctx)
	if err != nil || client == nil {
		return prediction{}, err
	}
	if f.order != "" {
		return prediction{}, usageError{errors.New("--namespace-deletion-order: the collector at --address uses its own order: leave out one of the two flags")}
	}
	query, err := f.query(client, args, w)
	if err != nil {
		return prediction{}, err
	}
	query.Set("propagationPolicy", string(policy))
	query.Set("assumeReleased", fmt.Sprint(f.released))
	result := prediction{policy: policy}
	if err := client.get(ctx, api.Preview, query, &result.report); err != nil {
		return prediction{}, err
	}
	printLeftOut(w, result.report.Unread)
	return result, nil
}

// query names the objects that would be deleted. The collector resolves names; manifests, labels and --all are
// resolved here.
func (f *previewFlags) query(a *collectorClient, args []string, w io.Writer) (url.Values, error) {
	if !f.targets.isFiles() && f.targets.selector == "" && !f.targets.all {
		return a.query(args)
	}
	uids, err := f.targets.find(&f.cluster, args, w)
	switch {
	case err != nil:
		return nil, err
	case len(uids) == 0:
		return nil, errors.New("no objects found")
	case len(uids) > mostAsked:
		return nil, fmt.Errorf("a collector answers for at most %d objects at once, not %d: --address %s reads the whole cluster instead", mostAsked, len(uids), noCollector)
	}
	return url.Values{"uid": uids}, nil
}
