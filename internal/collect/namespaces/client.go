package namespaces

import (
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/collect/lifecycle"
	"github.com/coppice-dev/coppice/internal/collect/pace"
)

// DefaultSettle is the Settle for servers that may still create objects in a namespace after its deletion has begun, as
// kube-apiserver does: their admission has let a creation pass before, and a webhook delays it. Upstream has the same delay.
const DefaultSettle = 5 * time.Second

// Options are the options of NewForConfig. The zero value is usable.
type Options struct {
	// DeletionOrder is the order in which contents are deleted, in stages. Default: DefaultStages.
	DeletionOrder [][]schema.GroupResource
	// Settle is the minimum time that a namespace is kept, see Config. Default: none, for a server that decides on a creation
	// and on the deletion of its namespace in one transaction, as ours does.
	Settle time.Duration
	// WrapMetadata, if set, is put around the client that lists contents by their metadata.
	WrapMetadata func(metadata.Interface) metadata.Interface
	// Logger gets a line at level Info for each change. Default: no log.
	Logger *slog.Logger
}

// NewForConfig returns a controller for the server of config. It sends no request, and does not change or keep config.
func NewForConfig(config *rest.Config, options Options) (*Controller, error) {
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	order, err := NewOrder(options.DeletionOrder)
	if err != nil {
		return nil, fmt.Errorf("DeletionOrder: %w", err)
	}
	config = lifecycle.Completed(config)
	config.Wrap(auditreason.MarkCascade)
	config.Wrap(pace.Conditional)
	contact := newContact(clock.RealClock{})
	config.Wrap(contact.wrap)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	contents, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make metadata client: %w", err)
	}
	// A DELETE that has waited for the rate limit does not wait for it again.
	unlimited := rest.CopyConfig(config)
	unlimited.QPS, unlimited.RateLimiter = -1, nil
	confirming, err := corev1client.NewForConfig(unlimited)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	if options.WrapMetadata != nil {
		contents = options.WrapMetadata(contents)
	}
	return New(Config{
		Client: client, Metadata: contents, Order: order, Settle: options.Settle, Logger: options.Logger,
		contact: contact, confirming: confirming.Namespaces(),
	})
}
