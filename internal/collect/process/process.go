// Package process runs the controllers of package collect that share a process: the collector and the namespace
// controller (Controllers), until all work is finished (Settle), and in one of several processes at a time (Lease).
//
// Lease.Run acquires a Lease, works while it holds it, and releases it when the work has ended, so that two processes
// never work at the same time. Role reports which one leads. The election itself is client-go's leaderelection; this
// package makes sure that the Lease outlives the work.
package process

import (
	"cmp"
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
)

// Controllers are a collector and a namespace controller that run in one process. Either may be
// nil. They are faster together than in two processes: the collector, which watches all objects,
// notifies the namespace controller at once of objects that are gone from a terminating namespace, and
// of changes of policies and webhooks.
type Controllers struct {
	Collector  *collector.Collector
	Namespaces *namespaces.Controller
	// Definitions, if set, reports the definitions whose instances the server cannot delete.
	Definitions Refusing
	// Program and Also are in the Status: the program, and further controllers in this process.
	Program string
	Also    []string
	// Others, if set, returns the unfinished work of other controllers in this process on
	// terminating objects; Settle waits for them too.
	Others func(deleted []report.HeldObject) (unfinished []string)
}

// Refusing is a part of the server that deletes objects and keeps the refusals.
type Refusing interface {
	// Run works until ctx ends.
	Run(ctx context.Context) error
	// RecordIn records the refusals in stories, too, until stop is called.
	RecordIn(stories *storybook.Book) (stop func())
	// Refused returns the refused objects, and their number by kind and refuser.
	Refused() ([]report.RefusedObject, []report.RefusedCount)
}

// Run runs the controllers until ctx ends or one of them fails, and returns when both have
// ended.
func (c Controllers) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.Observe(ctx) })
	group.Go(func() error { return c.Lead(ctx) })
	return group.Wait()
}

// Observe keeps the knowledge of the controllers up to date until ctx ends or one of them fails. They change nothing. A
// second call is an error.
func (c Controllers) Observe(ctx context.Context) error {
	if c.Collector == nil && c.Namespaces == nil {
		return errors.New("there is no controller to run")
	}
	group, ctx := errgroup.WithContext(ctx)
	if c.Namespaces != nil {
		group.Go(func() error { return c.Namespaces.Observe(ctx) })
	}
	if c.Collector != nil {
		group.Go(func() error { return c.Collector.Observe(ctx) })
	}
	return group.Wait()
}

// Lead makes the controllers work from what Observe has observed, which goes on meanwhile, until ctx ends or one of them
// fails. It returns when all their requests have ended. It may be called again after it has returned.
func (c Controllers) Lead(ctx context.Context) error {
	if c.Collector != nil && c.Namespaces != nil {
		parts := c.Collector.Parts()
		defer parts.Engine.OnRemoval(c.Namespaces.Changed)()
		defer parts.Engine.OnRefuserChange(c.Namespaces.RefusersChanged)()
		defer c.Namespaces.RecordIn(parts.Stories)()
	}
	if c.Collector != nil && c.Definitions != nil {
		defer c.Definitions.RecordIn(c.Collector.Parts().Stories)()
	}
	group, ctx := errgroup.WithContext(ctx)
	if c.Namespaces != nil {
		group.Go(func() error { return c.Namespaces.Lead(ctx) })
	}
	if c.Collector != nil {
		group.Go(func() error { return c.Collector.Lead(ctx) })
	}
	if c.Definitions != nil {
		group.Go(func() error { return c.Definitions.Run(ctx) })
	}
	return group.Wait()
}

// WaitForObserved waits until Observe has read everything that it can read. It returns the error of ctx if that ends first.
func (c Controllers) WaitForObserved(ctx context.Context) error {
	var ofCollector, ofNamespaces error
	if c.Collector != nil {
		ofCollector = c.Collector.WaitForObserved(ctx)
	}
	if c.Namespaces != nil {
		ofNamespaces = c.Namespaces.WaitForObserved(ctx)
	}
	return cmp.Or(ofCollector, ofNamespaces)
}

// Warm returns nil when all of the controllers have observed the server, so that they could lead now, and otherwise an
// error that gives the reason.
func (c Controllers) Warm() error {
	var ofCollector, ofNamespaces error
	if c.Collector != nil {
		ofCollector = c.Collector.Warm()
	}
	if c.Namespaces != nil {
		ofNamespaces = c.Namespaces.Warm()
	}
	return cmp.Or(ofCollector, ofNamespaces)
}

// Synced reports whether all of the controllers are synced.
func (c Controllers) Synced() bool {
	return (c.Collector == nil || c.Collector.Synced()) && (c.Namespaces == nil || c.Namespaces.Synced())
}

// WaitForSync waits until Synced. It returns the error of ctx if that ends first.
func (c Controllers) WaitForSync(ctx context.Context) error {
	var ofCollector, ofNamespaces error
	if c.Collector != nil {
		ofCollector = c.Collector.WaitForSync(ctx)
	}
	if c.Namespaces != nil {
		ofNamespaces = c.Namespaces.WaitForSync(ctx)
	}
	return cmp.Or(ofCollector, ofNamespaces)
}

// Ready returns nil when all of the controllers are synced, and otherwise an error that wraps
// collector.ErrNotSynced and gives the reason.
func (c Controllers) Ready() error {
	var ofCollector, ofNamespaces error
	if c.Collector != nil {
		ofCollector = c.Collector.Ready()
	}
	if c.Namespaces != nil {
		ofNamespaces = c.Namespaces.Ready()
	}
	return cmp.Or(ofCollector, ofNamespaces)
}

// Status returns the state of the collector, or an empty one without a collector. Synced and the refused objects are of
// all controllers.
func (c Controllers) Status() report.Status {
	status := report.Status{
		Resources: []report.ResourceStatus{}, Kinds: []report.KindStatus{}, Deletions: []report.DeletionStatus{},
		Barrier: []report.BarrierWait{}, Paused: []report.Pause{},
		Refused: []report.RefusedObject{}, RefusedCounts: []report.RefusedCount{},
	}
	if c.Collector != nil {
		status = c.Collector.Status()
	}
	if c.Namespaces != nil {
		objects, counts := c.Namespaces.Refused()
		addRefused(&status, objects, counts)
	}
	if c.Definitions != nil {
		objects, counts := c.Definitions.Refused()
		addRefused(&status, objects, counts)
	}
	status.Synced, status.Program, status.Controllers = c.Synced(), c.Program, c.names()
	return status
}

// addRefused adds refused objects to a status.
func addRefused(status *report.Status, objects []report.RefusedObject, counts []report.RefusedCount) {
	status.Refused, status.RefusedCounts = append(status.Refused, objects...), append(status.RefusedCounts, counts...)
}

// The names of the controllers in kube-controller-manager.
const (
	GarbageCollector    = "garbage-collector-controller"
	NamespaceController = "namespace-controller"
)

// names returns the names of the controllers in this process.
func (c Controllers) names() (all []string) {
	if c.Collector != nil {
		all = append(all, GarbageCollector)
	}
	if c.Namespaces != nil {
		all = append(all, NamespaceController)
	}
	return append(all, c.Also...)
}

// Resume resumes the deletions of a kind, such as "ReplicaSet.apps", that the breaker has paused. It reports whether
// they were paused.
func (c Controllers) Resume(kind string) bool {
	return c.Collector != nil && c.Collector.Resume(schema.ParseGroupKind(kind))
}

// Carries reports whether an object has a finalizer, as Collector.Carries does. It is an error if no collector works in
// this process.
func (c Controllers) Carries(finalizer string) (bool, error) {
	if c.Collector == nil {
		return false, ErrNoCollector
	}
	return c.Collector.Carries(finalizer)
}

// ErrNoCollector is the error of questions that a collector would have to answer.
var ErrNoCollector = errors.New("no collector works in this process")
