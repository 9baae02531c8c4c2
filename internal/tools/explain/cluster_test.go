package explain_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// now is the time of the inventory in the scenarios.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// cluster is a cluster that lines of text describe.
type cluster struct {
	t         testing.TB
	inventory inventory.Inventory

	workloads map[ownership.UID]inventory.Workload
	leases    map[ownership.UID]inventory.Lease
	rules     map[string][]rbacv1.PolicyRule // by NAMESPACE/ACCOUNT
	bindings  []rbacv1.ClusterRoleBinding
	nodes     map[string]inventory.Node
	volumes   map[string]inventory.Volume
	classes   map[string][]inventory.ClassUser
	webhooks  []inventory.Webhook
	bodies    map[ownership.UID]*unstructured.Unstructured
	events    map[ownership.UID][]inventory.Event
	policies  []inventory.Policy
	hasJudge  bool // expressions are evaluated, by policyJudge
	collector *explain.Collector
	isCoppice bool             // the API server lists its controllers as a component
	unread    map[string]error // details that cannot be read, by word: workload, lease, rules, node, webhooks
}

func newCluster(t testing.TB) *cluster {
	w := &cluster{
		t: t, workloads: map[ownership.UID]inventory.Workload{}, leases: map[ownership.UID]inventory.Lease{},
		rules: map[string][]rbacv1.PolicyRule{}, nodes: map[string]inventory.Node{},
		volumes: map[string]inventory.Volume{}, classes: map[string][]inventory.ClassUser{}, events: map[ownership.UID][]inventory.Event{},
		bodies: map[ownership.UID]*unstructured.Unstructured{}, unread: map[string]error{},
	}
	w.inventory.Read = now
	w.inventory.Namespaces = map[ownership.UID]*corev1.Namespace{}
	w.inventory.Pods = map[ownership.UID]*inventory.Pod{}
	for _, kind := range []string{"Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Pod"} {
		w.resource(kind, "a/b")
	}
	return w
}

func uidOf(kind, name string) string { return kind + "/" + name }

func nameOnly(path string) string { return path[strings.LastIndex(path, "/")+1:] }

// resource returns the resource of a kind; a new one is namespaced if the path of its first object is.
func (w *cluster) resource(text, path string) *inventory.Resource {
	kind, group, _ := strings.Cut(text, ".")
	for _, r := range w.inventory.Resources {
		if r.Kind == kind && r.Group == group {
			return r
		}
	}
	r := &inventory.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(kind) + "s"},
		Kind:                 kind, Namespaced: strings.Contains(path, "/"), Deletable: true,
	}
	w.inventory.Resources = append(w.inventory.Resources, r)
	return r
}

// line adds a line to the cluster. A line that begins with a capital letter is an object:
//
//	<Kind>.<group> [<namespace>/]<name> [deleted=<age>] [grace=<duration>] [finalizers=<f>,…]
//	    [protect=<mode>] [by=<manager>:<age>:<finalizer>,…] [owner=<apiVersion>:<Kind>:<name>[:blocking]] [<label>=<value>]
//
// A Deployment, StatefulSet or DaemonSet also has replicas, ready, unready (for how long), account and
// image; a Lease renewed and holder; a Pod node, claim and phase; a Namespace spec (its finalizers) and
// condition=<type>:<age>:<message>; a PersistentVolume bound=<namespace>/<name>[:deleting];
// a PersistentVolumeClaim class=<name>; a VolumeAttributesClass user=<namespace>/<name>; a Node
// notready, unreported or outofservice. Other lines are
//
//	refused <Kind>.<group> [<namespace>/]<name> <age> <by> <refuser> <binding> <words>
//	event <Kind>.<group> [<namespace>/]<name> <age> <reason> <message>
//	policy <name> <operation> <resource>.<group> <user or *> <words>
//	judge, without which no policy is evaluated
//	may <namespace>/<account> <verb> <resource>.<group>
//	webhook <name> <namespace>/<service> endpoints=<n> <operation> <resource>.<group> [selective|open]
//	coppice up
//	unread [<resource>].<group> <why>
//	undetailed <what> <why>
//
// Underscores stand for spaces.
func (w *cluster) line(f []string) {
	switch f[0] {
	case "may":
		if w.rules[f[1]] == nil {
			w.bindings = append(w.bindings, rbacv1.ClusterRoleBinding{
				RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: f[1]},
				Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: strings.Split(f[1], "/")[0], Name: nameOnly(f[1])}},
			})
		}
		resource, group, _ := strings.Cut(f[3], ".")
		w.rules[f[1]] = append(w.rules[f[1]], rbacv1.PolicyRule{Verbs: []string{f[2]}, APIGroups: []string{group}, Resources: []string{resource}})
	case "refused":
		if w.collector == nil {
			w.collector = explain.NewCollector("this collector")
			w.collector.Collects, w.collector.Empties = true, true
		}
		w.collector.Refused[ownership.UID(uidOf(f[1], nameOnly(f[2])))] = explain.Refused{
			Refusal: refusal.Refusal{By: refusal.By(f[4]), Name: strings.Trim(f[5], "-"), Binding: strings.Trim(f[6], "-"), Message: spaced(f[7])}, Since: w.ago(f[3]),
		}
	case "event":
		uid := ownership.UID(uidOf(f[1], nameOnly(f[2])))
		w.events[uid] = append(w.events[uid], inventory.Event{Reason: f[4], Message: spaced(f[5]), First: w.ago(f[3]), Last: w.ago(f[3])})
	case "policy":
		w.policy(f[1:])
	case "judge":
		w.hasJudge = true
	case "webhook":
		w.webhook(f[1:])
	case "coppice":
		w.isCoppice = true
	case "unread":
		resource, group, _ := strings.Cut(f[1], ".")
		w.inventory.Unread = append(w.inventory.Unread, inventory.Unread{
			Resource: schema.GroupVersionResource{Group: group, Resource: resource}, Why: spaced(f[2]),
		})
	case "undetailed":
		w.unread[f[1]] = errors.New(spaced(f[2]))
	default:
		w.object(f)
	}
}

func spaced(s string) string { return strings.ReplaceAll(s, "_", " ") }

// policy adds a policy that denies an operation to a user, or to all.
func (w *cluster) policy(f []string) {
	resource, group, _ := strings.Cut(f[2], ".")
	p := inventory.Policy{}
	p.Name, p.Annotations = f[0], map[string]string{"user": f[3], "words": spaced(f[4])}
	p.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(f[1])},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, Resources: []string{resource}},
		},
	}}}
	w.policies = append(w.policies, p)
}

// policyJudge evaluates the policies of a cluster. Webhooks that answer decide.
type policyJudge struct{}

// Decide implements preview.Judge.
func (policyJudge) Decide(d preview.Review) (j preview.Judgement) {
	for _, p := range d.Policies {
		if user := p.Annotations["user"]; user == "*" || user == d.User.Username {
			j.Refusal = &refusal.Refusal{By: refusal.ByPolicy, Name: p.Name, Binding: p.Name, Message: p.Annotations["words"]}
		}
	}
	for i := range d.Webhooks {
		j.Deciders = append(j.Deciders, d.Webhooks[i].String())
	}
	return j
}

func (w *cluster) webhook(f []string) {
	resource, group, _ := strings.Cut(f[4], ".")
	endpoints, err := strconv.Atoi(strings.TrimPrefix(f[2], "endpoints="))
	if err != nil {
		w.t.Fatal(err)
	}
	var conditions []admissionregistrationv1.MatchCondition
	if slices.Contains(f, "selective") {
		conditions = append(conditions, admissionregistrationv1.MatchCondition{Name: "some", Expression: "true"})
	}
	w.webhooks = append(w.webhooks, inventory.Webhook{
		Configuration: "ValidatingWebhookConfiguration " + f[0], Name: f[0], Endpoints: endpoints,
		Service:     types.NamespacedName{Namespace: strings.Split(f[1], "/")[0], Name: nameOnly(f[1])},
		FailsClosed: !slices.Contains(f, "open"), Conditions: conditions,
		Rules: []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationType(f[3])},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, Resources: []string{resource}},
		}},
	})
}

func (w *cluster) object(f []string) {
	r := w.resource(f[0], f[1])
	o := &inventory.Object{Resource: r, SetBy: &inventory.SetBy{}, Created: now.Add(-24 * time.Hour)}
	o.Kind, o.Name, o.UID = r.OwnerKind(), nameOnly(f[1]), ownership.UID(uidOf(f[0], nameOnly(f[1])))
	if r.Namespaced {
		o.Namespace = strings.Split(f[1], "/")[0]
	}
	o.ResourceVersion = strconv.Itoa(len(w.inventory.Objects) + 1)
	deleted := time.Time{}
	pod, ns := &inventory.Pod{Phase: corev1.PodRunning}, &corev1.Namespace{}
	if r.Kind == "Node" {
		w.nodes[o.Name] = inventory.Node{NodeState: builtin.NodeState{Exists: true, Ready: true}, Since: now.Add(-time.Hour)}
	}
	for _, field := range f[2:] {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "deleted":
			deleted = w.ago(value)
		case "grace":
			o.Grace = w.age(value)
		case "finalizers":
			o.Finalizers = strings.Split(value, ",")
		case "by":
			o.SetBy.Finalizers = append(o.SetBy.Finalizers, w.manager(value))
		case "owner":
			o.Owners = append(o.Owners, reference(value))
		case "node", "claim", "phase":
			setPod(pod, key, value)
		case "spec":
			for f := range strings.SplitSeq(value, ",") {
				ns.Spec.Finalizers = append(ns.Spec.Finalizers, corev1.FinalizerName(f))
			}
		case "condition":
			parts := strings.SplitN(value, ":", 3)
			ns.Status.Conditions = append(ns.Status.Conditions, corev1.NamespaceCondition{
				Type: corev1.NamespaceConditionType(parts[0]), Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(w.ago(parts[1])), Message: spaced(parts[2]),
			})
		case "failure": // of a CustomResourceDefinition
			age, message, _ := strings.Cut(value, ":")
			w.setBody(o.UID, []any{map[string]any{
				"type": "Terminating", "status": "True", "reason": "InstanceDeletionFailed", "message": spaced(message),
				"lastTransitionTime": w.ago(age).Format(time.RFC3339),
			}}, "status", "conditions")
		case "conversion": // the namespace of the service
			w.setBody(o.UID, value, "spec", "conversion", "webhook", "clientConfig", "service", "namespace")
		case "class": // of a PersistentVolumeClaim
			w.classes[value] = append(w.classes[value], inventory.ClassUser{UID: o.UID, Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name})
		case "user": // of a VolumeAttributesClass: a claim that is being deleted, and is not in the inventory
			namespace, name, _ := strings.Cut(value, "/")
			w.classes[o.Name] = append(w.classes[o.Name], inventory.ClassUser{
				UID: ownership.UID(uidOf("PersistentVolumeClaim", name)), Kind: "PersistentVolumeClaim", Namespace: namespace, Name: name, Deleting: true,
			})
		case "bound": // a PersistentVolume, to a claim
			w.volumes[o.Name] = bound(o, value)
		case "protect":
			o.Protected, o.Labels = true, append(o.Labels, inventory.Label{Name: protection.Label, Value: value})
		case "outofservice":
			w.nodes[o.Name] = inventory.Node{NodeState: builtin.NodeState{Exists: true, OutOfService: true}, Since: w.ago(value)}
		case "unreported": // the age of the node
			w.nodes[o.Name] = inventory.Node{NodeState: builtin.NodeState{Exists: true}, Since: w.ago(value), HasNotReported: true}
		case "notready":
			w.nodes[o.Name] = inventory.Node{NodeState: builtin.NodeState{Exists: true}, Since: w.ago(value)}
		default:
			if !w.detail(o.UID, key, value) {
				o.Labels = append(o.Labels, inventory.Label{Name: key, Value: value})
			}
		}
	}
	o.Phase = ownership.PhaseOf(!deleted.IsZero(), o.Finalizers)
	if !deleted.IsZero() {
		o.Due = deleted.Add(o.Grace).Unix()
	}
	switch r.Kind {
	case "Pod":
		w.inventory.Pods[o.UID] = pod
	case "Namespace":
		w.inventory.Namespaces[o.UID] = ns
	}
	w.inventory.Objects = append(w.inventory.Objects, o)
}

// setBody sets a field of a whole object.
func (w *cluster) setBody(uid ownership.UID, value any, path ...string) {
	if w.bodies[uid] == nil {
		w.bodies[uid] = &unstructured.Unstructured{Object: map[string]any{}}
	}
	if err := unstructured.SetNestedField(w.bodies[uid].Object, value, path...); err != nil {
		w.t.Fatal(err)
	}
}

// detail sets a detail of a workload or a Lease; it returns false for another key.
func (w *cluster) detail(uid ownership.UID, key, value string) bool {
	workload, lease := w.workloads[uid], w.leases[uid]
	switch key {
	case "replicas":
		workload.Replicas = w.number(value)
	case "ready":
		workload.Ready = w.number(value)
	case "unready":
		workload.UnreadySince = w.ago(value)
	case "account":
		workload.ServiceAccount = value
	case "image":
		workload.Images = append(workload.Images, value)
	case "renewed":
		lease.Renewed, lease.Duration = w.ago(value), 15*time.Second
	case "holder":
		lease.Holder = value
	default:
		return false
	}
	w.workloads[uid], w.leases[uid] = workload, lease
	return true
}

func (w *cluster) number(text string) int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		w.t.Fatal(err)
	}
	return int32(n)
}

func (w *cluster) age(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *cluster) ago(text string) time.Time { return now.Add(-w.age(text)) }

func (w *cluster) manager(text string) inventory.Manager {
	parts := strings.SplitN(text, ":", 3)
	m := inventory.Manager{Name: parts[0], Time: w.ago(parts[1])}
	if len(parts) == 3 {
		m.Finalizers = strings.Split(parts[2], ",")
	}
	return m
}

func reference(text string) ownership.Reference {
	parts := strings.Split(text, ":")
	kind := parts[1]
	if group, _, ok := strings.Cut(parts[0], "/"); ok {
		kind += "." + group
	}
	r := ownership.Reference{APIVersion: parts[0], Kind: parts[1], Name: parts[2], UID: ownership.UID(uidOf(kind, parts[2]))}
	if len(parts) > 3 {
		r.BlockOwnerDeletion = ownership.True
	}
	return r
}

// bound returns a volume, bound to the claim NAMESPACE/NAME, which is being deleted if :deleting follows.
func bound(o *inventory.Object, claim string) inventory.Volume {
	claim, state, _ := strings.Cut(claim, ":")
	namespace, name, _ := strings.Cut(claim, "/")
	uid := types.UID(uidOf("PersistentVolumeClaim", name))
	v := inventory.Volume{
		Volume: &corev1.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Name: o.Name, UID: types.UID(o.UID)},
			Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: name, UID: uid}},
		},
		Claim: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: uid}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: o.Name},
		},
	}
	if state == "deleting" {
		v.Claim.DeletionTimestamp = &metav1.Time{Time: now}
	}
	return v
}

func setPod(pod *inventory.Pod, key, value string) {
	switch key {
	case "node":
		pod.Node = value
	case "phase":
		pod.Phase, pod.Ready = corev1.PodPhase(value), true
	case "claim":
		pod.Claims = append(pod.Claims, inventory.Claim{Name: value})
	}
}

func (w *cluster) explainer() *explain.Explainer {
	w.inventory.Index()
	in := explain.Input{Inventory: &w.inventory, Facts: w.facts(), Collector: w.collector, Now: now}
	if w.hasJudge {
		in.Judge = policyJudge{}
	}
	return explain.New(in)
}

func (w *cluster) explain(uid ownership.UID) explain.Explanation {
	w.t.Helper()
	x, ok := w.explainer().Explain(uid)
	if !ok {
		w.t.Fatalf("the cluster has no %s", uid)
	}
	return x
}

// facts returns all facts about the cluster.
func (w *cluster) facts() *inventory.Facts {
	facts := inventory.NewFacts()
	for name, users := range w.classes {
		facts.Classes[name] = inventory.FactOf(users, w.unread["volume"])
	}
	for name, volume := range w.volumes {
		facts.Volumes[name] = inventory.FactOf(volume, w.unread["volume"])
	}
	for name, node := range w.nodes {
		facts.Nodes[name] = inventory.FactOf(node, w.unread["node"])
	}
	for _, o := range w.inventory.Objects {
		facts.Workloads[o.UID] = inventory.FactOf(w.workloads[o.UID], w.unread["workload"])
		facts.Leases[o.UID] = inventory.FactOf(w.leases[o.UID], w.unread["lease"])
		if pod := w.inventory.Pods[o.UID]; pod != nil {
			facts.Nodes[pod.Node] = inventory.FactOf(w.nodes[pod.Node], w.unread["node"])
		}
		body := w.bodies[o.UID]
		if body == nil {
			body = &unstructured.Unstructured{Object: map[string]any{}}
		}
		facts.Bodies[o.UID] = inventory.FactOf(body, nil)
		facts.Events[o.UID] = inventory.FactOf(w.events[o.UID], w.unread["events"])
		if o.Protected {
			facts.Protections[o.UID] = inventory.Fact[inventory.Protection]{Value: w.protection(o)}
		}
	}
	facts.Roles = new(inventory.FactOf(&inventory.Roles{ClusterRoles: w.rules, ClusterBindings: w.bindings}, w.unread["rules"]))
	facts.Webhooks = new(inventory.FactOf(w.webhooks, w.unread["webhooks"]))
	facts.Controllers = &inventory.Fact[bool]{Value: w.isCoppice}
	facts.Policies = new(inventory.FactOf(w.policies, w.unread["policies"]))
	facts.RepeatedReplaces = &inventory.Fact[bool]{Value: true}
	return facts
}

// protection returns the protection of an object. Objects with the mode outlives outlive the ConfigMap shop/web, which is
// gone if it is unread; the list is unchecked if it is unread.
func (w *cluster) protection(o *inventory.Object) inventory.Protection {
	web := protection.Outlived{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop", Name: "web"}
	list, err := protection.FormatOutlives([]protection.Outlived{web})
	if err != nil {
		w.t.Fatal(err)
	}
	p := inventory.Protection{Protection: protection.New(o.Labels.Get(protection.Label), list), Enforced: true}
	if err := w.unread["outlived"]; err != nil {
		p.Unchecked = err.Error()
		return p
	}
	p.Enforced, p.IsPart = w.unread["protection"] == nil, w.unread["users"] != nil
	if w.unread["web"] == nil {
		p.Remaining = []protection.Remaining{{Outlived: web}}
	}
	return p
}
