package reader

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// mostOutages bounds the group versions of which a question reads why they do not answer.
const mostOutages = 100

var errTooManyOutages = errors.New("too many groups of the API do not answer")

// readOutages adds why group versions do not answer.
func (r *Facts) readOutages(ctx context.Context, groupVersions map[string]bool, known map[string]inventory.Fact[apiservice.Outage]) {
	for _, groupVersion := range slices.Sorted(maps.Keys(groupVersions)) {
		if len(known) >= mostOutages {
			known[groupVersion] = inventory.Fact[apiservice.Outage]{Unread: errTooManyOutages.Error()}
			continue
		}
		known[groupVersion] = inventory.FactOf(r.outage(ctx, groupVersion))
	}
}

// outage reads the APIService of a group version that does not answer.
func (r *Facts) outage(ctx context.Context, groupVersion string) (apiservice.Outage, error) {
	body, err := r.client.CoreV1().RESTClient().Get().AbsPath(apiservice.PathOf(groupVersion)).SetHeader("Accept", "application/json").Do(ctx).Raw()
	if err != nil {
		return apiservice.Outage{}, ignoreNotFound(err)
	}
	return apiservice.Read(body)
}
