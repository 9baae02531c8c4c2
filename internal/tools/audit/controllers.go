package audit

import (
	"fmt"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// unserved finds finalizers that no working controller will remove. The controller of a finalizer is inferred:
// an inference of low confidence is not a finding.
func (c *checker) unserved(o *inventory.Object) {
	if c.servedBy == nil {
		return
	}
	for _, f := range o.Finalizers {
		a := c.servedBy.Of(o, f)
		if !a.State.Fails() || a.Confidence == finalizerowner.Low {
			continue
		}
		who := "Nobody serves"
		switch a.State {
		case finalizerowner.ScaledToZero:
			who = a.Controller + ", which is scaled to 0, serves"
		case finalizerowner.NotReady:
			who = a.Controller + ", which is not ready, serves"
		case finalizerowner.Silent:
			who = a.Controller + ", which does not renew its Lease, serves"
		case finalizerowner.Forbidden:
			who = a.Controller + ", which may not update the object, serves"
		case finalizerowner.Gone, finalizerowner.Alive, finalizerowner.Leaving, finalizerowner.Unknown:
		}
		c.found(Unserved, o, -1, fmt.Sprintf("%s the finalizer %s: %s.", strings.ToUpper(who[:1])+who[1:], f, strings.Join(a.Evidence, "; ")))
		c.findings[len(c.findings)-1].Finalizer = f
	}
}

// unpermitted finds references with blockOwnerDeletion whose controller may not update the owner's
// finalizers: with the admission plug-in OwnerReferencesPermissionEnforcement, a server refuses the controller's
// next write of them. It checks only objects whose references were set by a single known workload.
func (c *checker) unpermitted(o *inventory.Object) {
	if c.permits == nil || o.SetBy == nil || len(o.SetBy.Owners) != 1 {
		return
	}
	for n, ref := range o.Owners {
		r := c.inv.Resource(ref.OwnerKind())
		if ref.BlockOwnerDeletion != ownership.True || r == nil {
			continue
		}
		account, known := c.permits.Denied(o.SetBy.Owners[0], r, o.Namespace, ref.Name)
		if known {
			c.found(Unpermitted, o, n, fmt.Sprintf("%s sets blockOwnerDeletion, and no role lets %s update %s/finalizers of %s.", o.SetBy.Owners[0], account, r.GroupResource(), nameOf(ref)))
		}
	}
}
