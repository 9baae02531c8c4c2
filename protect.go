package coppice

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/coppice-dev/coppice/internal/collect/protected/others"
	"github.com/coppice-dev/coppice/internal/collect/protected/webhook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
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
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("coppice: make a client for metadata: %w", err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("coppice: make a client for discovery: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("coppice: make a client: %w", err)
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("coppice: ask the server who the collector is: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle(webhook.Path, webhook.Handler{
		Collector: self.Status.UserInfo.Username, Reviews: client.AuthorizationV1().SubjectAccessReviews(),
		Now: time.Now, //nolint:forbidigo // only which advice users get depends on it
		Checker: func(ctx context.Context) protection.Checker {
			return webhook.Checker(ctx, client.AdmissionregistrationV1().ValidatingWebhookConfigurations())
		},
		Others: others.Lookup{
			Mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discover)), Metadata: objects,
			Carried: func(_ context.Context, finalizer string) (bool, error) {
				if c.Collector == nil {
					return false, errNoCollector
				}
				return c.Collector.Carries(finalizer)
			},
		},
	})
	return mux, nil
}

// Carries reports whether any object that the collector has observed has a finalizer. It is an error if
// none has and the collector has not observed everything.
func (c *Collector) Carries(finalizer string) (carried bool, err error) {
	c.inside().Collector.View(func(g *ownership.Graph) { carried = g.Carries(finalizer) })
	if carried {
		return true, nil
	}
	if !c.Synced() {
		return false, errors.New("the collector has not read everything yet")
	}
	if unread := c.unread(); len(unread) > 0 {
		return false, fmt.Errorf("the collector could not read all, for example %s", unread[0])
	}
	return false, nil
}
