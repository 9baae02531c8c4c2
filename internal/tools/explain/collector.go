package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// Collector is the status of a running collector.
type Collector struct {
	// Where names the source of the status, as "the collector at http://127.0.0.1:10270".
	Where string
	// Program runs it, and Controllers are further controllers of Kubernetes in that program, by their names in
	// kube-controller-manager.
	Program     string
	Controllers []string
	// Collects and Empties report whether its garbage collector and its namespace controller work.
	Collects, Empties bool
	// Held are the owners that wait at its barrier, Paused the kinds whose deletions its breaker has paused.
	Held   map[ownership.UID]Held
	Paused map[ownership.Kind]time.Time
	// Refused are the objects that the server refuses to delete or to change. MoreRefused means that there are others.
	Refused     map[ownership.UID]Refused
	MoreRefused bool
	// Resume is the command that resumes the deletions of the kind that is appended to it; it may be empty.
	Resume string
}

// NewCollector returns a collector with an unknown status; where is its source.
func NewCollector(where string) *Collector {
	return &Collector{Where: where, Program: "Coppice", Held: make(map[ownership.UID]Held), Paused: make(map[ownership.Kind]time.Time), Refused: make(map[ownership.UID]Refused)}
}

// Pause adds a kind, such as "Deployment.apps", whose deletions are paused.
func (c *Collector) Pause(kind string, since time.Time) {
	gk := schema.ParseGroupKind(kind)
	c.Paused[ownership.Kind{Group: gk.Group, Kind: gk.Kind}] = since
}

// SeenBy returns a copy for a reader who sees some of the objects: it has the refusals of these, and a text replaces the
// reasons why kinds cannot be read.
func (c *Collector) SeenBy(sees func(ownership.UID) bool, instead string) *Collector {
	if c == nil {
		return nil
	}
	seen := *c
	seen.Held = make(map[ownership.UID]Held, len(c.Held))
	for uid, held := range c.Held {
		held.Unread = slices.Clone(held.Unread)
		for n := range held.Unread {
			held.Unread[n].Why = instead
		}
		seen.Held[uid] = held
	}
	seen.Refused = maps.Clone(c.Refused)
	maps.DeleteFunc(seen.Refused, func(uid ownership.UID, _ Refused) bool { return !sees(uid) })
	return &seen
}

// Held is an owner whose deletion waits for the proof that the collector has missed no dependent.
type Held struct {
	Since time.Time
	// Unread are the kinds and groups that cannot be read; none before the first attempt has ended.
	Unread []HeldBy
}

// HeldBy is a kind or a group that cannot be read, and the reason.
type HeldBy struct{ What, Why string }

// String returns the kind and the reason.
func (h HeldBy) String() string { return h.What + ": " + h.Why }

// unread joins the kinds that cannot be read.
func (h Held) unread() string {
	texts := make([]string, len(h.Unread))
	for n, one := range h.Unread {
		texts[n] = one.String()
	}
	return strings.Join(texts, "; ")
}

// The names of controllers in kube-controller-manager.
const garbageCollector, namespaceController = "garbage-collector-controller", "namespace-controller"

// believe uses the collector's status as evidence, because a control plane may have no Leases.
func (e *Explainer) believe() {
	if e.Collector == nil {
		return
	}
	c := e.Collector
	e.servedBy.Saw(c.Program, c.Where+" says that it runs this controller", c.Controllers...)
	if c.Collects {
		e.servedBy.Saw(c.Program, c.Where+" says that it works", garbageCollector)
	}
	if c.Empties {
		e.servedBy.Saw(c.Program, c.Where+" says that its namespace controller works", namespaceController)
	}
}

// restrained explains an object whose next step the server refuses, or the collector delays on purpose.
func (e *Explainer) restrained(o *inventory.Object) (Wait, bool) {
	if e.Collector == nil {
		return Wait{}, false
	}
	if w, ok := e.refused(o); ok {
		return w, true
	}
	if held, ok := e.Collector.Held[o.UID]; ok && o.Phase != ownership.Active {
		w := Wait{
			On: OnBarrier, State: Slow, Since: &held.Since,
			Says: "the collector proves that no dependent was missed before it removes its finalizer",
		}
		if len(held.Unread) > 0 {
			w.State = Stuck
			w.Says = "the collector keeps its finalizer, because there may be dependents that it cannot read: " + held.unread()
			w.Next = []Step{{"make these kinds readable: restore their API, or allow the collector to list them", "kubectl get apiservices"}}
		}
		return w, true
	}
	if since, ok := e.Collector.Paused[o.Kind]; ok && o.Phase == ownership.Active {
		w := Wait{
			On: OnBreaker, State: Stuck, Since: &since,
			Says: fmt.Sprintf("%s has paused the deletions of %s, because there were too many", e.Collector.Where, o.Kind),
		}
		if e.Collector.Resume != "" {
			w.Next = []Step{{"look at its records, and resume the deletions if they were intended", e.Collector.Resume + o.Kind.String()}}
		}
		return w, true
	}
	return Wait{}, false
}
