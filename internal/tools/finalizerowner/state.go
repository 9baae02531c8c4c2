package finalizerowner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// startup is how long a controller may be without a ready replica before it counts as not ready: a rollout or a node
// drain takes some time.
const startup = 10 * time.Minute

// recent is the maximum age of a write that proves that a controller, in the cluster or outside of it, exists.
const recent = 5 * time.Minute

// judge sets the state of a candidate.
func (x *Index) judge(c *candidate, o *inventory.Object) {
	c.state = Unknown
	if x.facts == nil {
		c.evidence = append(c.evidence, "its replicas were not read")
		return
	}
	workload := x.facts.Workload(c.object)
	w := workload.Value
	switch {
	case workload.Unread != "":
		c.evidence = append(c.evidence, "its replicas could not be read: "+workload.Unread)
	case w.Replicas == 0 && c.object.Kind.Kind != "DaemonSet":
		c.state = ScaledToZero
		c.evidence = append(c.evidence, "it is scaled to 0")
	case w.Ready > 0:
		c.state = Alive
		c.evidence = append(c.evidence, fmt.Sprintf("ready replicas: %d of %d", w.Ready, w.Replicas))
		x.judgeRights(c, w, o)
		x.judgeStay(c)
	case !w.UnreadySince.IsZero() && x.now.Sub(w.UnreadySince) > startup:
		c.state, c.since = NotReady, w.UnreadySince
		c.evidence = append(c.evidence, fmt.Sprintf("no replica of %d has been ready for %s", w.Replicas, duration.HumanDuration(x.now.Sub(w.UnreadySince))))
	default:
		c.evidence = append(c.evidence, fmt.Sprintf("no replica of %d is ready now", w.Replicas))
	}
}

// judgeStay finds a controller that will disappear: it or its namespace is being deleted.
func (x *Index) judgeStay(c *candidate) {
	switch {
	case c.state != Alive:
	case c.object.Phase != ownership.Active:
		c.state = Leaving
		c.evidence = append(c.evidence, "it is being deleted itself")
	default:
		if ns := x.namespace(c.object.Namespace); ns != nil && ns.Phase != ownership.Active {
			c.state = Leaving
			c.evidence = append(c.evidence, fmt.Sprintf("its namespace %s is being deleted", ns.Name))
		}
	}
}

func (x *Index) namespace(name string) *inventory.Object {
	r := x.inventory.Resource(ownership.Kind{Kind: "Namespace"})
	if r == nil {
		return nil
	}
	return x.inventory.Named(r, "", name)
}

// judgeRights checks whether RBAC allows the controller to update the object.
func (x *Index) judgeRights(c *candidate, w inventory.Workload, o *inventory.Object) {
	if w.ServiceAccount == "" || o.Resource == nil {
		return
	}
	account := types.NamespacedName{Namespace: c.object.Namespace, Name: w.ServiceAccount}
	rules, unread := x.rules(account, o.Namespace)
	if unread != "" {
		c.evidence = append(c.evidence, fmt.Sprintf("the rights of %s could not be read: %s", account, unread))
		return
	}
	if mayUpdate(rules, o) {
		return
	}
	// A match by a name like the finalizer's may be the wrong controller.
	c.state = Unknown
	if c.confidence == High {
		c.state = Forbidden
	}
	c.evidence = append(c.evidence, fmt.Sprintf("no role lets its service account %s update %s", account, o.Resource.GroupResource()))
}

// mayUpdate reports whether rules suffice to remove a finalizer.
func mayUpdate(rules []rbacv1.PolicyRule, o *inventory.Object) bool {
	return slices.ContainsFunc([]string{"update", "patch"}, func(verb string) bool {
		ok, _ := validation.Covers(rules, []rbacv1.PolicyRule{{
			Verbs: []string{verb}, APIGroups: []string{o.Resource.Group}, Resources: []string{o.Resource.Resource}, ResourceNames: []string{o.Name},
		}})
		return ok
	})
}

// nobody returns the answer when no workload matches: a Lease or a recent write may still prove that a controller
// runs elsewhere.
func (x *Index) nobody(o *inventory.Object, finalizer string, clues []clue, evidence []string) Answer {
	if a, ok := x.freshLease(o, finalizer, clues); ok {
		a.Evidence = slices.Concat(evidence, a.Evidence)
		return a
	}
	a := Answer{Finalizer: finalizer, State: Unknown, Confidence: Low, Evidence: evidence}
	for _, c := range clues {
		if at, ok := x.wrote[c.name]; ok && c.isManager && x.now.Sub(at) < recent {
			a.State, a.Controller = Alive, c.name
			a.Evidence = append(a.Evidence, fmt.Sprintf("no workload has that name, but %s wrote an object %s ago", c.name, duration.HumanDuration(x.now.Sub(at))))
			return a
		}
	}
	if missed := x.missed(); len(missed) > 0 {
		a.Evidence = append(a.Evidence, "its controller may be of a kind that could not be read: "+strings.Join(missed, ", "))
		return a
	}
	if pod := x.pod(clues); pod != "" {
		a.State, a.Controller = Alive, pod
		a.Evidence = append(a.Evidence, "no workload has that name, but a ready pod does: "+pod)
		return a
	}
	if x.facts == nil {
		a.Evidence = append(a.Evidence, "no workload has that name; the details of workloads were not read")
		return a
	}
	a.Evidence = append(a.Evidence, "no Deployment, StatefulSet, DaemonSet or pod in the cluster matches")
	for _, lease := range x.leases {
		if !matchLease(lease, o, finalizer, clues) {
			continue
		}
		if state, since, says := x.leaseState(lease); state == Silent {
			a.State, a.Confidence, a.Since = Gone, High, &since
			a.Evidence = append(a.Evidence, says)
			return a
		}
	}
	if says := x.doubt(o, finalizer, clues); says != "" {
		a.Evidence = append(a.Evidence, says)
		return a
	}
	a.State, a.Confidence = Gone, Medium
	return a
}

// doubt returns the reason why a controller may exist without a trace: if no field manager has a name of its own, it
// may be any program that may update all objects, and some parts of Kubernetes are not workloads.
func (x *Index) doubt(o *inventory.Object, finalizer string, clues []clue) string {
	if slices.ContainsFunc(clues, func(c clue) bool { return c.isManager }) {
		return ""
	}
	domain, _, _ := strings.Cut(finalizer, "/")
	if strings.HasSuffix(domain, "kubernetes.io") || strings.HasSuffix(domain, "k8s.io") {
		return "the finalizer is in a domain of Kubernetes, parts of which may run outside of the cluster"
	}
	if o.Resource == nil {
		return ""
	}
	for _, w := range x.workloads {
		workload := x.facts.Workload(w)
		if d := workload.Value; workload.Unread != "" || d.ServiceAccount == "" || d.Replicas == 0 {
			continue
		}
		rules, unread := x.rules(types.NamespacedName{Namespace: w.Namespace, Name: workload.Value.ServiceAccount}, o.Namespace)
		if unread != "" || mayUpdate(rules, o) {
			return fmt.Sprintf("%s %s/%s may update it, like everything, and may be the controller", w.Kind, w.Namespace, w.Name)
		}
	}
	return ""
}

// missed returns the kinds of workloads, pods and Leases that were not read completely.
func (x *Index) missed() []string {
	var missed []string
	for _, kind := range append(inventory.WorkloadKinds(), inventory.PodKind(), inventory.LeaseKind()) {
		r := x.inventory.Resource(kind)
		if slices.ContainsFunc(x.inventory.Unread, func(u inventory.Unread) bool {
			return u.Resource.Group == kind.Group && (u.Resource.Resource == "" || r != nil && u.Resource.Resource == r.Resource)
		}) {
			missed = append(missed, kind.String())
		}
	}
	return missed
}

// pod returns a ready pod that matches a clue, or "".
func (x *Index) pod(clues []clue) string {
	for _, o := range x.inventory.Objects {
		pod := x.inventory.Pods[o.UID]
		if pod == nil || o.Phase != ownership.Active || !pod.IsServing() {
			continue
		}
		for _, c := range clues {
			if isNamed(o, c.name) || c.isManager && strings.HasPrefix(o.Name, c.name+"-") {
				return "Pod " + o.Namespace + "/" + o.Name
			}
		}
	}
	return ""
}

// freshLease finds a Lease that proves that the controller works.
func (x *Index) freshLease(o *inventory.Object, finalizer string, clues []clue) (Answer, bool) {
	for _, lease := range x.leases {
		if !matchLease(lease, o, finalizer, clues) {
			continue
		}
		if state, _, says := x.leaseState(lease); state == Alive {
			return Answer{
				Finalizer: finalizer, Controller: "the holder of Lease " + lease.Namespace + "/" + lease.Name,
				State: Alive, Confidence: Medium, Evidence: []string{says},
			}, true
		}
	}
	return Answer{}, false
}

// matchLease reports whether a Lease may belong to the controller: by its name, or by a domain at the end of its
// name, as kubebuilder names Leases.
func matchLease(lease, o *inventory.Object, finalizer string, clues []clue) bool {
	for _, c := range clues {
		if lease.Name == c.name || c.isManager && (isAlike(lease.Name, c.name) || isAlike(c.name, lease.Name)) {
			return true
		}
	}
	domain, _, _ := strings.Cut(finalizer, "/")
	_, suffix, ok := strings.Cut(lease.Name, ".")
	return ok && strings.Contains(suffix, ".") && (suffix == o.Kind.Group || suffix == domain || strings.HasSuffix(domain, "."+suffix))
}
