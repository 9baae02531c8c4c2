package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/collector"
	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/collect/process"
)

// Controllers are the controllers of a process, and their metrics.
type Controllers struct {
	process.Controllers

	Metrics []prometheus.Collector
}

// AddCollector adds a new collector, as collector.New returns it, and its metrics.
func (c *Controllers) AddCollector(config *rest.Config, options collector.Options) error {
	added, set, err := NewCollector(config, options)
	if err != nil {
		return err
	}
	c.Collector, c.Metrics = added, append(c.Metrics, set)
	return nil
}

// AddNamespaceController adds a new namespace controller, as namespaces.NewForConfig returns it, and its metrics.
func (c *Controllers) AddNamespaceController(config *rest.Config, options namespaces.Options) error {
	added, set, err := NewNamespaceController(config, options)
	if err != nil {
		return err
	}
	c.Namespaces, c.Metrics = added, append(c.Metrics, set)
	return nil
}

// AddDefinitions adds the controller that reports definitions whose instances the server cannot delete, and its metrics.
func (c *Controllers) AddDefinitions(d process.Refusing) {
	c.Definitions, c.Metrics = d, append(c.Metrics, ForDefinitions(func() []report.RefusedCount {
		_, counts := d.Refused()
		return counts
	}))
}

// NewCollector returns a collector and its metrics.
func NewCollector(config *rest.Config, options collector.Options) (*collector.Collector, *Set, error) {
	var c *collector.Collector
	set := New(func() report.Status { return c.Status() })
	config = rest.CopyConfig(config)
	config.Wrap(set.Transport)
	var err error
	if c, err = collector.New(config, options); err != nil {
		return nil, nil, err
	}
	return c, set, nil
}

// NewNamespaceController returns a namespace controller and its metrics.
func NewNamespaceController(config *rest.Config, options namespaces.Options) (*namespaces.Controller, *Set, error) {
	var c *namespaces.Controller
	set := ForNamespaces(func() bool { return c.Synced() }, func() []report.RefusedCount {
		_, counts := c.Refused()
		return counts
	})
	config = rest.CopyConfig(config)
	config.Wrap(set.Transport)
	var err error
	if c, err = namespaces.NewForConfig(config, options); err != nil {
		return nil, nil, err
	}
	return c, set, nil
}
