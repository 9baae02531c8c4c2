package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// kube-controller-manager only logs that the server has refused a request. So if no running collector reports the
// refusals, the Events about the object and the policies and webhooks of the cluster are asked about the next step.

// request is a request of a controller: the next step of a deletion.
type request struct {
	operation admissionregistrationv1.OperationType
	// by is the controller; empty for one whose user is not known.
	by     preview.Actor
	policy metav1.DeletionPropagation // of a DELETE
	after  ownership.Object           // the metadata after an UPDATE
	since  time.Time                  // when the controller could begin; zero if unknown
}

// deletes returns the DELETE of a controller.
func deletes(by preview.Actor, policy metav1.DeletionPropagation, since time.Time) request {
	return request{operation: admissionregistrationv1.Delete, by: by, policy: policy, since: since}
}

// releases returns the UPDATE that removes a finalizer.
func releases(by preview.Actor, o *inventory.Object, finalizer string, since time.Time) request {
	after := o.Object
	after.Finalizers = slices.DeleteFunc(slices.Clone(o.Finalizers), func(f string) bool { return f == finalizer })
	return request{operation: admissionregistrationv1.Update, by: by, after: after, since: since}
}

// detaches returns the UPDATE of the collector after which an object has these references to owners.
func detaches(o *inventory.Object, owners []ownership.Reference, since time.Time) request {
	after := o.Object
	after.Owners = owners
	return request{operation: admissionregistrationv1.Update, by: preview.ByCollector, after: after, since: since}
}

// reports reports whether a running collector reports all refusals of a controller's requests.
func (e *Explainer) reports(by preview.Actor) bool {
	switch {
	case e.Collector == nil || e.Collector.MoreRefused:
		return false
	case by == preview.ByCollector:
		return e.Collector.Collects
	}
	return by == preview.ByNamespaceController && e.Collector.Empties
}

// unreported explains an object by a refusal of a request that no running collector reports.
func (e *Explainer) unreported(o *inventory.Object, r request) (Wait, bool) {
	w, isDead := e.webhook(o, r.operation)
	if isDead && w.State == Stuck {
		return w, true
	}
	if e.Facts == nil || o.Resource == nil || e.reports(r.by) {
		return Wait{}, false
	}
	judgement := e.foresee(o, r)
	if judgement.Refusal != nil {
		w := e.refusal(o, Refused{Refusal: *judgement.Refusal})
		w.Since, w.Says = nil, "the server would refuse it: "+judgement.Refusal.String()
		return w, true
	}
	if w, ok := e.inEvents(o, judgement); ok {
		return w, true
	}
	return w, isDead && e.Judge == nil
}

// patience is how old an Event may be: the collector repeats its Events after an hour, as long as the refusal lasts.
const patience = 70 * time.Minute

// reasonRefused is the reason of the collector's Events about refusals, and waitsFor begins the messages of those about
// owners that wait for a refused object.
const reasonRefused, waitsFor = "GarbageCollectionRefused", "its deletion waits for "

// inEvents explains an object by an Event that quotes a refusal. The judgement is about the request now, and no refusal.
func (e *Explainer) inEvents(o *inventory.Object, now preview.Judgement) (Wait, bool) {
	unread := e.unreadAdmission()
	isClear := e.Judge != nil && len(now.Deciders) == 0 && unread == ""
	for _, event := range e.Facts.EventsAbout(o).Value { // none if they could not be read
		r, ok := refusal.In(event.Message)
		if !ok || strings.HasPrefix(event.Message, waitsFor) || e.Now.Sub(event.Last) > patience {
			continue
		}
		if r.By == refusal.ByProtection && e.isUnprotected(o) {
			continue
		}
		w := e.refusal(o, Refused{r, event.First})
		w.Says = fmt.Sprintf("an Event, %s, %s ago, quotes the refusal of the server: %s", event.Reason, e.age(event.Last), r)
		if event.Reason != reasonRefused {
			w.State = Unknown // it may be about another request
		}
		switch isOfAdmission := r.By == refusal.ByPolicy || r.By == refusal.ByWebhook || r.By == refusal.ByUnreachableWebhook; {
		case isOfAdmission && unread != "":
			w.State = Unknown
			w.Says += "; whether it would refuse it now is unknown, because policies or webhooks could not be read: " + unread
		case isOfAdmission && isClear:
			w.State = Unknown
			w.Says += "; no policy and no webhook refuses it now"
			w.Next = []Step{{"look at it again: the controller tries again within minutes", get(o)}}
		}
		return w, true
	}
	return Wait{}, false
}

// undecided adds to a wait for a controller who else decides about its request, as far as no running collector reports
// refusals.
func (e *Explainer) undecided(w Wait, o *inventory.Object, r request) Wait {
	isRecent := !r.since.IsZero() && e.Now.Sub(r.since) < prompt
	if w.State != Slow && w.State != Unknown || isRecent || e.Facts == nil || o.Resource == nil || e.reports(r.by) {
		return w
	}
	deciders := e.foresee(o, r).Deciders
	unread := e.unreadAdmission()
	if len(deciders) == 0 && unread == "" {
		return w
	}
	w.State = Unknown
	if unread != "" {
		w.Says += "; a policy or a webhook may refuse it, which could not be read: " + unread
	}
	w.Says += prefixed("; ", listed(deciders, func(d string) string {
		who, why, hasReason := strings.Cut(d, ": ")
		if !hasReason {
			return who + " decides"
		}
		return who + " decides: " + why
	}))
	w.Next = []Step{{"look whether the controller's request is denied: the audit log has the answers, and so has the controller's log", describe(o)}}
	return w
}

// unreadAdmission returns the reason why policies or webhooks could not be read; empty if all were.
func (e *Explainer) unreadAdmission() string {
	return cmp.Or(e.Facts.AllPolicies().Unread, e.Facts.AllWebhooks().Unread)
}

// prefixed returns a text after a prefix; empty for an empty text.
func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// foreseen identifies a request.
type foreseen struct {
	uid       ownership.UID
	operation admissionregistrationv1.OperationType
	by        preview.Actor
}

// foresee predicts the answer of admission to a request. The prediction is preliminary while facts are needed.
func (e *Explainer) foresee(o *inventory.Object, r request) preview.Judgement {
	key := foreseen{o.UID, r.operation, r.by}
	if known, ok := e.foreseen[key]; ok {
		return known
	}
	misses := e.Facts.Misses()
	judgement := e.judge(o, r)
	if e.Facts.Misses() == misses {
		if e.foreseen == nil {
			e.foreseen = map[foreseen]preview.Judgement{}
		}
		e.foreseen[key] = judgement
	}
	return judgement
}

func (e *Explainer) judge(o *inventory.Object, r request) preview.Judgement {
	review := preview.Matching(e.Facts, o.Resource, r.operation)
	if len(review.Policies)+len(review.Webhooks) == 0 {
		return preview.Judgement{}
	}
	review.Propagation = r.policy
	judge := e.Judge
	if r.by == "" {
		judge = nil
	} else if judge != nil {
		review.User = preview.UserOf(r.by, o, e.Inventory.Pods[o.UID], e.controllers())
	}
	namespace := e.home(o)
	if o.Kind == (ownership.Kind{Kind: "Namespace"}) {
		namespace = o
	}
	var update *preview.Update
	if r.operation == admissionregistrationv1.Update {
		update = &preview.Update{Before: o.Object, After: r.after}
		if o.Phase != ownership.Active {
			update.Deleted = o.Deadline()
		}
	}
	return review.Foresee(judge, e.Facts, o, namespace, update)
}

// controllers returns the users of the controllers.
func (e *Explainer) controllers() inventory.Deleters {
	if e.Facts.IsOurs() {
		return inventory.OurControllers()
	}
	return inventory.KubernetesControllers()
}
