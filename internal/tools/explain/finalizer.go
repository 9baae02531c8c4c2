package explain

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// crdCleanup holds a CustomResourceDefinition until its instances are gone.
const crdCleanup = "customresourcecleanup.apiextensions.k8s.io"

// finalizer explains why a finalizer is still there.
func (e *Explainer) finalizer(o *inventory.Object, finalizer string) Wait {
	var w Wait
	switch finalizer {
	case ownership.FinalizerForeground, ownership.FinalizerOrphan:
		w = e.ours(o)
	case crdCleanup:
		w = e.instances(o)
	case inuse.PVCProtection:
		w = e.claimUsers(o)
	case inuse.PVProtection:
		w = e.boundClaim(o)
	case inuse.VACProtection:
		w = e.classUsers(o)
	default:
		w = e.foreign(o, finalizer)
	}
	w.Finalizer = finalizer
	return w
}

// foreign explains a finalizer that another controller removes.
func (e *Explainer) foreign(o *inventory.Object, finalizer string) Wait {
	a, since := e.servedBy.Of(o, finalizer), requested(o)
	if a.Since != nil && a.Since.After(since) {
		since = *a.Since
	}
	w := Wait{On: OnFinalizer, ServedBy: &a, State: e.stateOf(a, requested(o)), Since: &since, Next: e.next(o, a)}
	who := a.Controller
	if who == "" {
		who = "an unknown controller"
	}
	switch a.State {
	case finalizerowner.Gone:
		w.Says = fmt.Sprintf("finalizer %s: nobody serves it", finalizer)
	case finalizerowner.ScaledToZero:
		w.Says = fmt.Sprintf("finalizer %s: %s serves it, and is scaled to 0", finalizer, who)
	case finalizerowner.NotReady:
		w.Says = fmt.Sprintf("finalizer %s: %s serves it, and is not ready", finalizer, who)
	case finalizerowner.Silent:
		w.Says = fmt.Sprintf("finalizer %s: %s serves it, and does not renew its Lease", finalizer, who)
	case finalizerowner.Forbidden:
		w.Says = fmt.Sprintf("finalizer %s: %s serves it, and may not update the object", finalizer, who)
	case finalizerowner.Leaving:
		w.Says = fmt.Sprintf("finalizer %s: %s serves it, and is itself being deleted", finalizer, who)
	case finalizerowner.Alive, finalizerowner.Unknown:
		w.Says = fmt.Sprintf("finalizer %s: to be removed by %s", finalizer, who)
	}
	switch {
	case a.State.Fails(), finalizer == crdCleanup: // which the API server removes with the status
	case finalizerowner.IsBuiltIn(finalizer):
		next := releases(preview.RemoverOf(finalizer), o, finalizer, requested(o))
		if refused, ok := e.unreported(o, next); ok {
			return refused
		}
		return e.undecided(w, o, next)
	default:
		if hook, blocked := e.webhook(o, "UPDATE"); blocked {
			return hook
		}
	}
	return w
}

// ours explains a finalizer of the collector by the collector's decision.
func (e *Explainer) ours(o *inventory.Object) Wait {
	facts, ok := verdict.Gather(e.graph, o.UID)
	if !ok {
		return Wait{On: OnUnread, State: Unknown, Says: "the object is not in the ownership graph"}
	}
	decision := verdict.Decide(facts)
	switch d := decision.(type) {
	case verdict.Await:
		return e.dependents(o)
	case verdict.Unblock:
		return e.collector(o, fmt.Sprintf("%d objects in foreground deletion block each other; the collector breaks the cycle", len(d.Cycle)), nextOf(o, d, requested(o)))
	case verdict.Disown:
		if w, ok := e.undetached(o, d); ok {
			return w
		}
		return e.collector(o, "the collector detaches "+counted(len(d.Dependents), "dependent"), nextOf(o, d, requested(o)))
	case verdict.RemoveFinalizer:
		return e.collector(o, "nothing blocks its deletion any longer; the collector removes its finalizer", nextOf(o, d, requested(o)))
	case verdict.Verify:
		return e.collector(o, "the collector verifies what may be dependents: "+claims(d.Claims), nextOf(o, d, requested(o)))
	case verdict.Keep, verdict.Reread, verdict.Park, verdict.Detach, verdict.Delete:
	}
	return e.collector(o, "the collector has the next step: "+decision.String(), nextOf(o, decision, requested(o)))
}

// dependents returns the dependents that block a foreground deletion, all of them: Gather returns only some, and
// another one may be the stuck one.
func (e *Explainer) dependents(o *inventory.Object) Wait {
	var waits []Wait
	seen := map[ownership.UID]bool{}
	for uid := range e.graph.Blocking(o.UID) {
		dependent := e.Inventory.Object(uid)
		if dependent == nil || seen[uid] {
			continue
		}
		seen[uid] = true
		waits = append(waits, e.via(OnDependent, dependent, refOf(dependent).String()+" blocks the deletion of its owner"))
	}
	if len(waits) == 0 {
		return Wait{On: OnUnread, State: Unknown, Says: "dependents that were not read block its deletion"}
	}
	return Wait{On: OnDependent, Says: "foreground deletion waits for " + counted(len(waits), "dependent"), Waits: waits}
}

// instances explains a CustomResourceDefinition by its remaining instances.
func (e *Explainer) instances(o *inventory.Object) Wait {
	resource, apiGroup, _ := strings.Cut(o.Name, ".")
	var waits []Wait
	for _, i := range e.ofResource(schema.GroupResource{Group: apiGroup, Resource: resource}) {
		if i.UID != o.UID {
			waits = append(waits, e.via(OnInstance, i, refOf(i).String()+" is left"))
		}
	}
	if len(waits) > 0 {
		return Wait{On: OnInstance, Says: "the kind that it defines still has " + counted(len(waits), "instance"), Waits: waits}
	}
	if w, failed := e.instanceFailure(o); failed {
		return w
	}
	if u := e.unreadOf(apiGroup, resource, ""); len(u) > 0 {
		return Wait{On: OnUnread, State: Unknown, Says: "it is unknown whether instances remain: " + unseen(u[0])}
	}
	return e.foreign(o, crdCleanup)
}

// instanceFailure explains a CustomResourceDefinition whose instances the API server could not list or delete.
func (e *Explainer) instanceFailure(crd *inventory.Object) (Wait, bool) {
	if e.Facts == nil {
		return Wait{}, false
	}
	body := e.Facts.Body(crd).Value
	if body == nil {
		return Wait{}, false
	}
	conditions, _, _ := unstructured.NestedSlice(body.Object, "status", "conditions")
	for _, c := range conditions {
		condition, ok := c.(map[string]any)
		if !ok || condition["type"] != "Terminating" || condition["status"] != "True" || condition["reason"] != instanceDeletionFailed {
			continue
		}
		message, _, _ := unstructured.NestedString(condition, "message")
		text, _, _ := unstructured.NestedString(condition, "lastTransitionTime")
		since, err := time.Parse(time.RFC3339, text)
		if err != nil {
			since = requested(crd)
		}
		return e.failure(crd, "the API server could not delete the instances of "+refOf(crd).String()+": ", message, since), true
	}
	return Wait{}, false
}

// instanceDeletionFailed is the reason of the condition Terminating of a CustomResourceDefinition whose instances
// cannot be listed or deleted.
const instanceDeletionFailed = "InstanceDeletionFailed"
