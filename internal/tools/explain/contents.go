package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// namespace explains the finalizers in spec.finalizers of a namespace.
func (e *Explainer) namespace(o *inventory.Object) []Wait {
	ns := e.Inventory.Namespaces[o.UID]
	if ns == nil {
		return []Wait{{On: OnUnread, State: Unknown, Says: "the namespace's spec.finalizers were not read"}}
	}
	var waits []Wait
	for _, f := range ns.Spec.Finalizers[:min(len(ns.Spec.Finalizers), mostFinalizers)] {
		if f == corev1.FinalizerKubernetes {
			waits = append(waits, e.contents(o, ns)...)
			continue
		}
		w := e.foreign(o, string(f))
		w.Finalizer = string(f)
		waits = append(waits, w)
	}
	if more := len(ns.Spec.Finalizers) - mostFinalizers; more > 0 {
		waits = append(waits, Wait{On: OnFinalizer, State: Unknown, Says: "and " + counted(more, "more finalizer") + " in its spec, which explain did not look at"})
	}
	return waits
}

// contents explains a namespace by its remaining contents, and by the conditions of the namespace controller.
func (e *Explainer) contents(o *inventory.Object, ns *corev1.Namespace) []Wait {
	var waits []Wait
	if w, ok := e.undiscovered(ns); ok {
		waits = append(waits, w)
	}
	var contents []Wait
	for _, content := range e.inNamespace(o.Name) {
		if content.Resource != nil && !content.Resource.Deletable {
			continue // it disappears with its server, and no namespace waits for it
		}
		contents = append(contents, e.via(OnContent, content, refOf(content).String()+" is left"))
	}
	if len(contents) > 0 {
		waits = append(waits, e.remaining(o, contents))
	}
	// The waits of protected objects above already have the message about protection.
	if c := condition(ns, corev1.NamespaceDeletionContentFailure); c != nil && (len(contents) == 0 || !strings.Contains(c.Message, protection.Label)) {
		waits = append(waits, e.contentFailure(o, c))
	}
	for _, text := range unseenTogether(e.unreadIn(o.Name)) {
		waits = append(waits, Wait{On: OnUnread, State: Unknown, Says: "there may be more in the namespace: " + text})
	}
	if len(waits) == 0 {
		waits = append(waits, e.builtin(o, OnController, string(corev1.FinalizerKubernetes),
			"nothing was seen in the namespace any longer; the namespace controller removes its finalizer", requested(o)))
	}
	return waits
}

// unreadIn returns the unread resources that may have objects in a namespace.
func (e *Explainer) unreadIn(namespace string) []inventory.Unread {
	isElsewhere := func(u inventory.Unread) bool {
		isClusterScoped := slices.ContainsFunc(e.Inventory.Resources, func(r *inventory.Resource) bool {
			return !r.Namespaced && r.GroupResource() == u.Resource.GroupResource()
		})
		return u.Resource.Resource == "" || isClusterScoped || !concerns(u, namespace)
	}
	return slices.DeleteFunc(slices.Clone(e.Inventory.Unread), isElsewhere)
}

// remaining groups the remaining contents of a namespace. If they have become fewer since an earlier inventory, the
// deletion makes progress.
func (e *Explainer) remaining(o *inventory.Object, contents []Wait) Wait {
	count := len(contents)
	w := Wait{On: OnContent, Says: "the namespace still has " + counted(count, "object"), Waits: contents}
	if before := e.countBefore(o.Name); before > count {
		w.Says += fmt.Sprintf(", %d fewer than %s ago", before-count, e.age(e.Before.Read))
		w.progresses = true
	}
	return w
}

// settle changes waits for a controller from Unknown to Slow: the controller is now seen to work.
func settle(w *Wait) {
	for n := range w.Waits {
		settle(&w.Waits[n])
	}
	if len(w.Waits) > 0 {
		w.State = worst(w.Waits)
		return
	}
	w.State = settled(w)
}

// settled returns the state of a wait without waits of its own, after its controller is seen to work.
func settled(w *Wait) State {
	if w.State == Unknown && (w.On == OnController || w.On == OnCollector) {
		return Slow
	}
	return w.State
}

// undiscovered explains a namespace that waits for a group of the API whose objects are unknown. The condition may be
// older than the group's return.
func (e *Explainer) undiscovered(ns *corev1.Namespace) (Wait, bool) {
	var groups []string
	for _, u := range e.Inventory.Unread {
		if u.Resource.Resource == "" {
			groups = append(groups, unseen(u))
		}
	}
	slices.Sort(groups)
	c := condition(ns, corev1.NamespaceDeletionDiscoveryFailure)
	if c == nil {
		c = condition(ns, corev1.NamespaceDeletionGVParsingFailure)
	}
	w := Wait{On: OnDiscovery, State: Unknown, Next: []Step{{"find the APIService that is not available, and the reason", "kubectl get apiservices"}}}
	switch {
	case c == nil && len(groups) == 0:
		return Wait{}, false
	case c == nil:
		w.Says = "the contents of the namespace are unknown: " + strings.Join(groups, ", ")
		return w, true
	}
	since := c.LastTransitionTime.Time
	w.Since = &since
	switch {
	case len(groups) == 0:
		w.Says = "the namespace controller could not discover all groups, which answer now: " + c.Message
	case e.Now.Sub(since) < prompt:
		w.Says = "a group of the API does not answer: " + strings.Join(groups, ", ")
	default:
		w.State = Stuck
		w.Says = fmt.Sprintf("a group of the API has not answered for %s: %s", e.age(since), strings.Join(groups, ", "))
	}
	return w, true
}

// contentFailure explains a DELETE of the namespace controller that failed.
func (e *Explainer) contentFailure(o *inventory.Object, c *corev1.NamespaceCondition) Wait {
	return e.failure(o, "the namespace controller could not delete all contents: ", c.Message, c.LastTransitionTime.Time)
}

// failure explains a condition of an object: a controller failed to delete what depends on it.
func (e *Explainer) failure(o *inventory.Object, says, message string, since time.Time) Wait {
	w := Wait{On: OnController, State: Unknown, Since: &since, Says: says + message}
	if r, ok := refusal.In(message); ok {
		refused := e.refusal(o, Refused{r, since})
		w.On, w.State, w.Next = refused.On, refused.State, refused.Next
	}
	return w
}

// failedIn explains an object in a namespace whose controller could not delete all. The condition may name the object.
func (e *Explainer) failedIn(o, ns *inventory.Object) (Wait, bool) {
	namespace := e.Inventory.Namespaces[ns.UID]
	if namespace == nil || o.Resource == nil {
		return Wait{}, false
	}
	c := condition(namespace, corev1.NamespaceDeletionContentFailure)
	if c == nil {
		return Wait{}, false
	}
	// The server names the object, or our namespace controller does.
	for _, name := range []string{fmt.Sprintf("%s %q is forbidden: ", o.Resource.GroupResource(), o.Name), fmt.Sprintf("delete %s %s: ", o.Resource.GroupResource(), o.Name)} {
		if _, text, named := strings.Cut(c.Message, name); named {
			if r, ok := refusal.In(text); ok {
				return e.remembered(o, Refused{r, c.LastTransitionTime.Time}), true
			}
		}
	}
	if r, ok := refusal.In(c.Message); ok && r.By == refusal.ByConversion && r.Name == o.Kind.String() {
		return e.refusal(o, Refused{r, c.LastTransitionTime.Time}), true // of any object of the kind
	}
	w := e.contentFailure(ns, c)
	w.State = Unknown
	w.Says = "it is not being deleted yet; " + w.Says
	return w, true
}
