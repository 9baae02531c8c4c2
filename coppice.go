// Package coppice is garbage collection for Kubernetes-style APIs, as a library.
//
// There are two controllers, for any server that speaks the Kubernetes API. Nothing has
// to be installed on it.
//
//   - [Collector] is the garbage collector: it watches the metadata of all objects and does
//     what their owner references ask for. It deletes dependents whose owners are gone, and
//     completes foreground and orphan deletions.
//   - [NamespaceController] deletes the contents of terminating namespaces and then finalizes
//     them, for servers where nothing else does.
//
// Each is made from a rest.Config and runs until its context ends. [Controllers] runs both
// in one process. The rules that they keep are in docs/semantics.md.
//
// The state of a collector can be read at any time: [Collector.Status] and
// [Collector.Records], the ownership graph with [Collector.WriteGraph], Prometheus metrics
// with [Collector.Metrics], and all of that over HTTP with [Collector.Handler].
//
// The identity of a collector's rest.Config needs the verbs get, list, watch, delete and
// patch on all resources, and create on events. Of most objects it reads metadata only. A
// second collector on the same server is harmless but useless.
package coppice

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	light "github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/collect/cluster"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

var (
	// ErrAlreadyStarted is the error of a second Run of the same controller.
	ErrAlreadyStarted = light.ErrAlreadyStarted
	// ErrNotSynced is the error of Ready while a controller has not read the state of the server.
	ErrNotSynced = light.ErrNotSynced
	// ErrGraphTooLarge is the error of WriteGraph for a graph that is too large to draw.
	ErrGraphTooLarge = insight.ErrTooLarge
)

// Collector is the garbage collector of one API server. Create one with New. It wraps the Collector of package
// collector and adds its metrics, graph and HTTP API.
type Collector struct {
	light   *light.Collector
	metrics *metrics.Set
	gone    listeners
}

// New returns a collector for the server of config. It sends no request, and does not change or
// keep config.
//
// Requests are not rate-limited on the client side unless config sets a limit: the collector adapts
// to the capacity of the server.
func New(config *rest.Config, options Options) (*Collector, error) {
	c := &Collector{}
	c.metrics = metrics.New(c.reading)
	config = rest.CopyConfig(config)
	config.Wrap(c.metrics.Transport)
	var err error
	if c.light, err = light.New(config, options); err != nil {
		return nil, err
	}
	c.inside().Sink = sink{c.inside().Sink, c.inside().Collector.View, &c.gone}
	return c, nil
}

// inside returns the internal parts of the collector.
func (c *Collector) inside() *cluster.Cluster { return c.light.Cluster() }

// DeletionRequest is a client's DELETE of an object.
type DeletionRequest struct {
	// Request identifies the request: all objects of a deletecollection have the same one.
	Request string
	UID     UID
	// User sends the request, with the program Agent.
	User, Agent string
	// Policy is the propagation policy; empty if the request sets none.
	Policy metav1.DeletionPropagation
}

// Requested tells the collector which user requests a deletion, which no watch event contains. An API server
// in the same process may call it before the object changes; the deletions that the API reports then name
// the user. It does not affect collection. It may be called concurrently, and before Run.
func (c *Collector) Requested(r DeletionRequest) {
	c.inside().Stories.Requested(story.Request{
		Key: r.Request, UID: ownership.UID(r.UID), By: story.By{User: r.User, Agent: r.Agent}, Policy: string(r.Policy),
	})
}

// Run collects garbage until ctx ends, and returns when everything that it started has
// ended. It waits for a server that cannot be reached. A second call returns
// ErrAlreadyStarted.
func (c *Collector) Run(ctx context.Context) error { return c.light.Run(ctx) }

// Synced reports whether the collector has read all objects and has begun to collect.
func (c *Collector) Synced() bool { return c.light.Synced() }

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c *Collector) WaitForSync(ctx context.Context) error { return c.light.WaitForSync(ctx) }

// Ready returns nil when the collector is synced, and otherwise an error that wraps ErrNotSynced
// and gives the reason.
func (c *Collector) Ready() error { return c.light.Ready() }

// Status returns the state of the collector.
func (c *Collector) Status() Status { return c.light.Status() }

// Records returns the last decisions that changed something on the server, oldest first.
// With Options.ObserveOnly they are decisions that would have changed something.
func (c *Collector) Records() []Record { return c.light.Records() }

// Resume resumes the deletions of a kind that the breaker has paused. It reports whether
// they were paused.
func (c *Collector) Resume(kind schema.GroupKind) bool { return c.light.Resume(kind) }

// Backlog returns the number of objects in a namespace that are queued.
func (c *Collector) Backlog(namespace string) int { return c.inside().Collector.Backlog(namespace) }
