package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/verdict"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// prompt is the time that control plane components may take for a step before the delay is suspicious.
const prompt = time.Minute

// direct returns the waits of an object without those of other objects: a wait for another object is open (via), and
// has neither a state nor waits until chain.go or causes.go follows it.
func (e *Explainer) direct(o *inventory.Object) []Wait {
	if o.Phase == ownership.Active {
		return []Wait{e.active(o)}
	}
	return e.terminating(o)
}

// via returns an open wait for another object.
func (e *Explainer) via(on On, o *inventory.Object, says string) Wait {
	ref := refOf(o)
	w := Wait{On: on, Object: &ref, Says: says}
	if o.Phase != ownership.Active {
		since := requested(o)
		w.Since = &since
	}
	return w
}

// active explains an object without a request to delete it.
func (e *Explainer) active(o *inventory.Object) Wait {
	if ns := e.home(o); ns != nil && isTerminating(ns) {
		return e.unswept(o, ns)
	}
	if crd := e.definition(o); crd != nil && isTerminating(crd) {
		return e.undefined(o, crd)
	}
	facts, ok := verdict.Gather(e.graph, o.UID)
	if !ok {
		return Wait{On: OnUnread, State: Unknown, Says: "the object is not in the ownership graph"}
	}
	decision := verdict.Decide(facts)
	switch d := decision.(type) {
	case verdict.Keep:
		if w, ok := e.abandoned(o); ok {
			return w
		}
		return Wait{On: OnRequest, State: Kept, Says: "it is not being deleted; the collector keeps it: " + d.Reason}
	case verdict.Park:
		return e.parked(d)
	case verdict.Verify:
		return Wait{
			On: OnUnread, State: Unknown, Says: "it is unknown whether its owners exist: " + claims(d.Claims),
			Next: []Step{{"check whether its owners exist", get(o)}},
		}
	case verdict.Delete:
		if w, protected := e.protected(o); protected {
			return w
		}
	case verdict.Reread, verdict.Detach, verdict.Unblock, verdict.Await, verdict.Disown, verdict.RemoveFinalizer:
	}
	return e.collector(o, "the collector has the next step: "+decision.String(), nextOf(o, decision, time.Time{}))
}

// nextOf returns the request of the collector about the object of a decision; none for a decision about other objects.
func nextOf(o *inventory.Object, decision verdict.Decision, since time.Time) request {
	switch d := decision.(type) {
	case verdict.Delete:
		return deletes(preview.ByCollector, metav1.DeletionPropagation(d.Propagation), since)
	case verdict.Detach:
		return detaches(o, d.Remaining, since)
	case verdict.RemoveFinalizer:
		return releases(preview.ByCollector, o, d.Finalizer, since)
	case verdict.Unblock:
		return detaches(o, d.Owners, since)
	case verdict.Keep, verdict.Park, verdict.Verify, verdict.Reread, verdict.Await, verdict.Disown:
	}
	return request{since: since}
}

// home returns the namespace of an object, or nil.
func (e *Explainer) home(o *inventory.Object) *inventory.Object {
	r := e.Inventory.Resource(ownership.Kind{Kind: "Namespace"})
	if r == nil || o.Namespace == "" {
		return nil
	}
	return e.Inventory.Named(r, "", o.Namespace)
}

// definition returns the CustomResourceDefinition of an object's kind, or nil.
func (e *Explainer) definition(o *inventory.Object) *inventory.Object {
	r := e.Inventory.Resource(ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"})
	if r == nil || o.Resource == nil {
		return nil
	}
	return e.Inventory.Named(r, "", o.Resource.GroupResource().String())
}

// isTerminating reports whether a namespace or a definition is being deleted: then its contents are deleted
// regardless of their owners.
func isTerminating(o *inventory.Object) bool { return o.Phase != ownership.Active }

// undefined explains an instance of a CustomResourceDefinition that is being deleted, before the instance itself is.
func (e *Explainer) undefined(o, crd *inventory.Object) Wait {
	if w, protected := e.protected(o); protected {
		return w
	}
	if w, refused := e.refused(o); refused {
		return w
	}
	if w, failed := e.instanceFailure(crd); failed {
		return w
	}
	w := e.builtin(o, OnController, crdCleanup, "it is not being deleted yet; the API server deletes the instances of "+refOf(crd).String(), requested(crd))
	if w.State == Slow && e.Now.Sub(requested(crd)) > prompt {
		w.State = Unknown
	}
	return w
}

// unswept explains an object in a namespace that is being deleted, before the object itself is.
func (e *Explainer) unswept(o, ns *inventory.Object) Wait {
	if w, protected := e.protected(o); protected {
		return w
	}
	if w, refused := e.refused(o); refused {
		return w
	}
	next := deletes(preview.ByNamespaceController, metav1.DeletePropagationBackground, requested(ns))
	if w, refused := e.unreported(o, next); refused {
		return w
	}
	if w, failed := e.failedIn(o, ns); failed {
		return w
	}
	w := e.builtin(o, OnController, "kubernetes", "it is not being deleted yet; the namespace controller deletes the contents of namespace "+ns.Name, requested(ns))
	return e.undecided(w, o, next)
}

// parked explains an object that the collector keeps because no API serves the kind of an owner.
func (e *Explainer) parked(d verdict.Park) Wait {
	w := Wait{
		On: OnOwnerKind, State: Stuck, Says: "no API serves the kind of an owner, so it is unknown whether the owner exists: " + kinds(d.Kinds),
		Next: []Step{{"find the API that should serve it", "kubectl api-resources --api-group=" + escape.Shell(d.Kinds[0].Group)}},
	}
	for _, k := range d.Kinds {
		if u := e.unreadOf(k.Group, "", ""); len(u) > 0 {
			w.State, w.On = Unknown, OnDiscovery
			w.Says += "; " + unseen(u[0])
		}
	}
	return w
}

// unreadOf returns the entries of Unread for a resource, or for its whole group.
func (e *Explainer) unreadOf(group, resource, namespace string) []inventory.Unread {
	var found []inventory.Unread
	for _, u := range e.Inventory.Unread {
		if u.Resource.Group == group && (u.Resource.Resource == "" || u.Resource.Resource == resource) && concerns(u, namespace) {
			found = append(found, u)
		}
	}
	return found
}

// concerns reports whether an unread resource may have objects in a namespace, or in any namespace if it is empty.
func concerns(u inventory.Unread, namespace string) bool {
	if namespace == "" {
		return true
	}
	return u.Namespace == namespace || u.Namespace == "" && !slices.Contains(u.Except, namespace)
}

// terminating explains an object whose deletion was requested.
func (e *Explainer) terminating(o *inventory.Object) []Wait {
	var waits []Wait
	if w, ok := e.grace(o); ok {
		waits = append(waits, w)
	}
	if o.Kind == (ownership.Kind{Kind: "Namespace"}) {
		waits = append(waits, e.namespace(o)...)
	}
	some, more := lookedAt(o.Finalizers)
	for _, f := range some {
		if f == ownership.FinalizerForeground && o.Phase == ownership.Orphaning {
			continue // orphan has priority, and the collector removes both
		}
		waits = append(waits, e.finalizer(o, f))
	}
	if more > 0 {
		waits = append(waits, Wait{
			On: OnFinalizer, State: Unknown, Says: "and " + counted(more, "more finalizer") + ", which explain did not look at",
			Next: []Step{{"look at its finalizers", get(o)}},
		})
	}
	if len(waits) > 0 {
		return waits
	}
	if w, ok := e.abandoned(o); ok {
		return []Wait{w}
	}
	since := requested(o)
	w := Wait{
		On: OnServer, State: Slow, Since: &since, Says: "nothing holds it any longer; the API server removes it",
		Next: []Step{{"wait", waitFor(o)}},
	}
	if e.Now.Sub(o.Deadline()) > prompt {
		w.State = Unknown
		w.Next = []Step{{"look at it again: it may be gone", get(o)}}
	}
	return []Wait{w}
}

// builtin returns a wait for a controller of Kubernetes that serves a finalizer; since is the time at which it could
// begin.
func (e *Explainer) builtin(o *inventory.Object, on On, finalizer, says string, since time.Time) Wait {
	a := e.servedBy.Of(o, finalizer)
	w := Wait{On: on, Says: says, ServedBy: &a, State: e.stateOf(a, since), Next: e.next(o, a)}
	if !since.IsZero() {
		w.Since = &since
	}
	return w
}

// collector explains an object by the next request of the collector about it.
func (e *Explainer) collector(o *inventory.Object, says string, next request) Wait {
	if w, ok := e.restrained(o); ok {
		return w
	}
	if next.operation != "" {
		if w, refused := e.unreported(o, next); refused {
			return w
		}
	}
	w := e.builtin(o, OnCollector, ownership.FinalizerForeground, says, next.since)
	if next.operation == "" {
		return w
	}
	return e.undecided(w, o, next)
}

// stateOf returns the state of a wait for a controller. If a control plane does not publish whether its controllers
// run, they get the time that a step takes.
func (e *Explainer) stateOf(a finalizerowner.Answer, since time.Time) State {
	switch {
	case a.Confidence == finalizerowner.Low:
		return Unknown
	case a.State.Fails():
		return Stuck
	case a.State.Works():
		return Slow
	case !since.IsZero() && e.Now.Sub(since) < prompt:
		return Slow
	}
	return Unknown
}

func (e *Explainer) age(t time.Time) string { return duration.HumanDuration(e.Now.Sub(t)) }

func kinds(all []ownership.Kind) string {
	return listed(all, ownership.Kind.String)
}

func claims(all []ownership.Claim) string {
	return listed(all, ownership.Claim.String)
}

// listed returns the names of the first elements, and counts the others.
func listed[T any](all []T, name func(T) string) string {
	names := make([]string, 0, mostListed+1)
	for _, one := range all[:min(len(all), mostListed)] {
		names = append(names, ownership.Excerpt(name(one), mostName))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// condition returns the condition of a namespace if it reports a problem.
func condition(ns *corev1.Namespace, kind corev1.NamespaceConditionType) *corev1.NamespaceCondition {
	for n := range ns.Status.Conditions {
		if c := &ns.Status.Conditions[n]; c.Type == kind && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}
