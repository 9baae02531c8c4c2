package collector

import (
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// Options are the options of a collector. The zero value is usable.
type Options struct {
	// ObserveOnly makes the collector decide, log and record, but change nothing on the server.
	ObserveOnly bool
	// Breaker pauses the deletions of a kind when there are too many, until Resume is called.
	// Default: deletions are never paused.
	Breaker Breaker
	// Records is the number of changes that are kept for Collector.Records; negative for none.
	// Default: 10000.
	Records int
	// Workers is the number of objects that are processed concurrently. Default: 64.
	Workers int
	// Ignore lists resources whose objects are never collected, and whose deletions are not
	// observed. Nil means DefaultIgnore; an empty list ignores nothing.
	Ignore []schema.GroupResource
	// WrapMetadata, if set, is put around the client that reads metadata. A server in the same
	// process may answer lists and watches without requests. Gets, deletions and patches are always
	// requests.
	WrapMetadata func(metadata.Interface) metadata.Interface
	// Logger gets a line at level Info for each change that the collector makes to an
	// object, and at level Debug for each decision to change nothing. Default: no log.
	Logger *slog.Logger
}

// Breaker limits how many objects of one kind may be deleted before a person has to intervene. The
// zero value sets no limit.
type Breaker struct {
	// Share is the share of a kind's objects that may be deleted within Window: 0.1 is a tenth. 0
	// turns the breaker off.
	Share float64
	// Window is the time over which deletions are counted. Default: one minute.
	Window time.Duration
	// Min is the number of deletions of a kind within Window that are always allowed. Default: 100.
	Min int
}

// DefaultIgnore returns the resources that are ignored unless Options.Ignore is set: the Events of
// both groups. There are many of them, and they own nothing.
func DefaultIgnore() []schema.GroupResource {
	return []schema.GroupResource{{Resource: "events"}, {Group: "events.k8s.io", Resource: "events"}}
}

// completed returns the options with their defaults.
func (o Options) completed() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ignore == nil {
		o.Ignore = DefaultIgnore()
	}
	if o.WrapMetadata == nil {
		o.WrapMetadata = func(client metadata.Interface) metadata.Interface { return client }
	}
	return o
}
