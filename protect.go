package coppice

import (
	"context"
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/protected"
)

// ProtectionHandler returns a validating admission webhook that refuses to delete protected objects (R28), for servers
// other than ours; it is served below /protect, with TLS. The handler looks up the objects that a protected object
// outlives with config's own rights, if the user of the review may read them; for this check, config's user needs the
// right to create SubjectAccessReviews. Config's user must also be able to read the ValidatingWebhookConfiguration
// coppice-protect, which calls the handler: protections older than this configuration are not looked up. The carriers
// of a finalizer come from the collector's observations: without a collector, or before it has observed everything,
// they are not known, and the deletion is refused. The handler trusts the user name in a review: serve it only to API
// servers that authenticate themselves. The user of config, whose name is read once, counts as a collector.
func (c Controllers) ProtectionHandler(ctx context.Context, config *rest.Config) (http.Handler, error) {
	handler, err := protected.NewHandler(ctx, config, c.inside().Carries)
	if err != nil {
		return nil, fmt.Errorf("coppice: %w", err)
	}
	return handler, nil
}
