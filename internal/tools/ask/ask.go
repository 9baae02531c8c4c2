// Package ask asks questions about deletions for commands. A question has two sources: a running collector, which
// answers from memory, and the cluster, which this process reads.
//
// The main flow: Preview, Explain and Graph ask the collector first. A Collector is a client of its API (collector.go,
// stories.go, records.go); diagnostics reads a collector without a token (diagnostics.go). If no collector can answer,
// these methods read the parts of the cluster that the question needs (cluster.go), and package answer decides, as it
// does in the collector. A command formats the answer, and does not know its source.
package ask

import (
	"context"
	"time"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

// NoCollector is the Address for questions to the cluster only.
const NoCollector = "none"

// Sources are the sources of answers: a cluster, and the collector that works in it.
type Sources struct {
	// Config is the client configuration for the cluster. A collector gets its credentials, too.
	Config *rest.Config
	// Namespace is the namespace of named objects; empty for all namespaces.
	Namespace string
	// Address is the URL of a collector, or NoCollector. An empty address stands for the API server, if it is one of
	// "coppice up": that server answers for its own collector.
	Address string
	// Progress, if set, is called while the cluster is read, and with isDone at the end.
	Progress func(p reader.Progress, isDone bool)
	// Now is the clock.
	Now func() time.Time
}

// isNamed reports whether the user has named a collector: then its error is the answer to most questions.
func (s *Sources) isNamed() bool { return s.Address != "" && s.Address != NoCollector }

// Collector returns a client of the collector at the address, or of the API server if the address is empty.
func (s *Sources) Collector() (*Collector, error) {
	return newCollector(s.Config, s.Address, s.Namespace)
}

// apiServer returns a client of the API server. It answers as a collector if it is one of "coppice up".
func (s *Sources) apiServer() (*Collector, error) { return newCollector(s.Config, "", s.Namespace) }

// findCollector returns a client of the collector; nil without a collector.
func (s *Sources) findCollector(ctx context.Context) (*Collector, error) {
	if s.Address == NoCollector {
		return nil, nil // no collector
	}
	c, err := s.Collector()
	if err != nil || s.isNamed() || c.IsCoppice(ctx) {
		return c, err
	}
	return nil, nil // no collector
}

// Objects names the objects of a question.
type Objects struct {
	Args []string // TYPE/NAME …, or TYPE NAME …, or TYPE
	UIDs []string
}

// IsEmpty reports whether no object is named.
func (o Objects) IsEmpty() bool { return len(o.Args)+len(o.UIDs) == 0 }

// InvalidError is the error for an invalid question: a name, an address or an order that cannot be right.
type InvalidError struct{ error }

func (e InvalidError) Unwrap() error { return e.error }

// Named returns the objects of an inventory that arguments name, in a namespace.
func Named(inv *inventory.Inventory, args []string, namespace string) ([]ownership.UID, error) {
	selectors, err := inv.ParseSelectors(args, namespace)
	if err != nil {
		return nil, InvalidError{err}
	}
	var uids []ownership.UID
	for _, selector := range selectors {
		objects, err := inv.Select(selector)
		if err != nil {
			return nil, err
		}
		for _, o := range objects {
			uids = append(uids, o.UID)
		}
	}
	return uids, nil
}
