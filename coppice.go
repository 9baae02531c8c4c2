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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/metrics"
)

var (
	// ErrAlreadyStarted is the error of a second Run of the same controller.
	ErrAlreadyStarted = collector.ErrAlreadyStarted
	// ErrNotSynced is the error of Ready while a controller has not read the state of the server.
	ErrNotSynced = collector.ErrNotSynced
	// ErrGraphTooLarge is the error of WriteGraph for a graph that is too large to draw.
	ErrGraphTooLarge = insight.ErrTooLarge
)

// Collector is the garbage collector of one API server: the Collector of package collector, which documents Run, Ready,
// Status and its other methods, with metrics, pictures of the graph and handlers. Create one with New. It is safe for
// concurrent use.
type Collector struct {
	*collector.Collector

	metrics *metrics.Set
}

// New returns a collector for the server of config. It sends no request, and does not change or
// keep config.
//
// Requests are not rate-limited on the client side unless config sets a limit: the collector adapts
// to the capacity of the server.
func New(config *rest.Config, options Options) (*Collector, error) {
	c, set, err := metrics.NewCollector(config, options)
	if err != nil {
		return nil, err
	}
	return &Collector{c, set}, nil
}

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
	c.Parts().Stories.Requested(story.Request{
		Key: r.Request, UID: ownership.UID(r.UID), By: story.By{User: r.User, Agent: r.Agent}, Policy: string(r.Policy),
	})
}
