package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/feed"
)

// discoverer is a discovery client of any version of client-go.
type discoverer interface {
	ServerGroupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// discoveryOf adapts a discovery client to the feed. Discovery takes no context in client-go v0.36, which modules
// that require package collector may use.
func discoveryOf(client discoverer) feed.Discovery {
	if d, ok := client.(feed.Discovery); ok {
		return d
	}
	return withoutContext{client}
}

// withoutContext calls a client that cannot be interrupted; the client's timeout bounds how long Run waits for
// it.
type withoutContext struct{ discoverer }

// ServerGroupsAndResourcesWithContext implements feed.Discovery.
func (d withoutContext) ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	return d.ServerGroupsAndResources()
}
