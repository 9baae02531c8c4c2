package audit

import (
	"fmt"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// leftover finds an object whose namespace does not exist.
func (c *checker) leftover(o *inventory.Object) {
	namespaces := c.inv.Resource(ownership.Kind{Kind: "Namespace"})
	if o.Namespace == "" || namespaces == nil || !c.inv.Complete(namespaces, "") || c.tooNew(o) {
		return
	}
	if c.inv.Named(namespaces, "", o.Namespace) == nil {
		c.found(NamespaceGone, o, -1, "The namespace "+o.Namespace+" does not exist.")
	}
}

// terminating finds an object whose deletion takes too long, counted from the end of its grace period.
func (c *checker) terminating(o *inventory.Object) {
	if o.Phase == ownership.Active || c.inv.Read.Sub(o.Deadline()) < c.long {
		return
	}
	waits := "has no finalizers"
	if len(o.Finalizers) > 0 {
		waits = "has the finalizers " + strings.Join(o.Finalizers, ", ")
	}
	if n := c.inv.Namespaces[o.UID]; n != nil {
		for _, condition := range n.Status.Conditions {
			if condition.Status == "True" {
				waits += "; " + strings.TrimSuffix(condition.Message, ".")
			}
		}
	}
	since := c.inv.Read.Sub(o.Deadline()).Round(time.Second)
	c.found(TerminatingLong, o, -1, fmt.Sprintf("It should have been gone %s ago, and %s.", since, waits))
}

// mark is a label that a controller sets on objects that it owns.
type mark struct {
	label string
	// domain is the end of the label's value; empty for any value.
	domain string
}

// marks returns the labels that controllers of Kubernetes set on objects of a kind that they own. An object with such a
// label and no controller has lost its controller, or was released on purpose.
func marks(kind ownership.Kind) []mark {
	switch kind {
	case ownership.Kind{Kind: "Pod"}:
		return []mark{
			{label: "pod-template-hash"},
			{label: "controller-revision-hash"},
			{label: "statefulset.kubernetes.io/pod-name"},
			{label: "batch.kubernetes.io/controller-uid"},
		}
	case ownership.Kind{Group: "apps", Kind: "ReplicaSet"}:
		return []mark{{label: "pod-template-hash"}}
	case ownership.Kind{Group: "apps", Kind: "ControllerRevision"}:
		return []mark{{label: "controller-revision-hash"}, {label: "controller.kubernetes.io/hash"}}
	case ownership.Kind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		return []mark{{"endpointslice.kubernetes.io/managed-by", "-controller.k8s.io"}} // others make slices without owners
	default:
		return nil
	}
}

// managedBy is the label by which tools and controllers mark the objects that they manage.
const managedBy = "app.kubernetes.io/managed-by"

// managed identifies the objects of a kind in a namespace that have the same value of managedBy.
type managed struct {
	kind          ownership.Kind
	namespace, by string
}

// countManaged records the groups of objects in which at least one has a controller. Objects of a tool that
// sets no owners, such as Helm, have not lost an owner.
func (c *checker) countManaged() {
	c.managed = make(map[managed]bool)
	for _, o := range c.inv.Objects {
		if by := o.Labels.Get(managedBy); by != "" && hasController(o) {
			c.managed[managed{o.Kind, o.Namespace, by}] = true
		}
	}
}

// looksOwned finds an object without owners whose labels suggest that it had one.
func (c *checker) looksOwned(o *inventory.Object) {
	if len(o.Owners) > 0 || o.Phase != ownership.Active {
		return
	}
	for _, m := range marks(o.Kind) {
		if value, ok := o.Labels.Lookup(m.label); ok && strings.HasSuffix(value, m.domain) {
			c.found(LooksOwned, o, -1, fmt.Sprintf("It has the label %s=%s of a controller, and no owner.", m.label, value))
			return
		}
	}
	if by := o.Labels.Get(managedBy); by != "" && c.managed[managed{o.Kind, o.Namespace, by}] {
		c.found(LooksOwned, o, -1, fmt.Sprintf("It has no owner, unlike others of its kind and namespace that are managed by %s.", by))
	}
}

func hasController(o *inventory.Object) bool {
	for _, r := range o.Owners {
		if r.Controller == ownership.True {
			return true
		}
	}
	return false
}
