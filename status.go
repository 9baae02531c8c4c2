package coppice

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/collector"
	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/metrics"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// Status is how a collector is doing at one moment.
type Status struct {
	// Synced tells whether what there is was read, and is collected.
	Synced bool `json:"synced"`
	// Resources are what it watches, ordered by kind.
	Resources []ResourceStatus `json:"resources"`
	// CollectorStatus is what it knows, what it has to do, and what it did.
	CollectorStatus
}

type (
	// CollectorStatus is what a collector knows, what it has to do, and what it did.
	CollectorStatus = collector.Status
	// Record is one decision that changed something on the server, and what it rests on.
	Record = collector.Record
	// Breaker says how much may be deleted of one kind before somebody has to look
	// at it. The zero value lets everything pass.
	Breaker = collector.Breaker
)

// ResourceStatus is how one resource is watched.
type ResourceStatus struct {
	Kind     string `json:"kind"`     // ReplicaSet.apps
	Resource string `json:"resource"` // replicasets.apps
	Version  string `json:"version"`  // v1
	// State is waiting, synced or failing; Since is when that began.
	State string    `json:"state"`
	Since time.Time `json:"since"`
	Error string    `json:"error,omitempty"`
	// Complete tells whether it was ever read as a whole. If not, objects of it may be unknown.
	Complete bool `json:"complete"`
	// Leaving tells that the server does not name the resource any more.
	Leaving  bool   `json:"leaving,omitempty"`
	Revision string `json:"revision,omitempty"`
}

// Status tells how the collector is doing.
func (c *Collector) Status() Status {
	s := Status{Synced: c.Synced(), Resources: []ResourceStatus{}}
	if c.collector == nil {
		return s
	}
	s.CollectorStatus = c.collector.Status()
	for _, m := range c.feed.Status() {
		s.Resources = append(s.Resources, resourceStatus(m))
	}
	return s
}

// Records are the last decisions that changed something on the server, oldest first.
// With Options.ObserveOnly they are those that would have.
func (c *Collector) Records() []Record {
	if c.collector == nil {
		return []Record{}
	}
	return c.collector.Records()
}

// Backlog is how many objects of a namespace wait for the collector to look at them.
func (c *Collector) Backlog(namespace string) int {
	if c.collector == nil {
		return 0
	}
	return c.collector.Backlog(namespace)
}

// Resume lets the deletions of a kind, such as ReplicaSet.apps, go on that the
// breaker has paused. It returns false when they were not paused.
func (c *Collector) Resume(kind string) bool {
	name, group, _ := strings.Cut(kind, ".")
	return c.collector != nil && c.collector.Resume(ownership.Kind{Group: group, Kind: name})
}

func resourceStatus(m feed.MonitorStatus) ResourceStatus {
	r := ResourceStatus{
		Kind: m.Kind.String(), Resource: m.Resource.GroupResource().String(), Version: m.Resource.Version,
		State: m.State.String(), Since: m.Since,
		Complete: m.Complete, Leaving: m.Leaving, Revision: m.Revision,
	}
	if m.Err != nil {
		r.Error = m.Err.Error()
	}
	return r
}

// Ready returns nil when the collector has read what there is and collects, else why not.
func (c *Collector) Ready() error {
	if c.Synced() {
		return nil
	}
	if c.feed == nil {
		return errors.New("not running")
	}
	waiting := 0
	monitors := c.feed.Status()
	for _, m := range monitors {
		if m.State == feed.Waiting {
			waiting++
		}
	}
	if len(monitors) == 0 {
		return errors.New("the server's resources are not known yet")
	}
	return fmt.Errorf("%d of %d resources are not read yet", waiting, len(monitors))
}

// reading is what the metrics are made from.
func (c *Collector) reading() metrics.Reading {
	if c.collector == nil {
		return metrics.Reading{Synced: c.Synced()}
	}
	return metrics.Reading{Synced: c.Synced(), Monitors: c.feed.Status(), Collector: c.collector.Status()}
}
