package inventory

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/coppice-dev/coppice/internal/rules/apiservice"
	"github.com/coppice-dev/coppice/internal/rules/builtin"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// Fact is a fact as it was read, or the reason why it is unknown.
type Fact[T any] struct {
	Value T
	// Unread is the reason why the fact is unknown; empty for a fact that was read.
	Unread string
}

// FactOf returns a fact, or the error of the read.
func FactOf[T any](value T, err error) Fact[T] {
	if err != nil {
		return Fact[T]{Unread: err.Error()}
	}
	return Fact[T]{Value: value}
}

// Facts are facts about a cluster beyond the metadata of its objects. A decision takes them from here, and does no
// I/O. A fact that is not here counts as unread, and becomes one of the needs: the caller reads the needs, and decides
// again (ask, read, decide). The facts are not safe for concurrent use.
type Facts struct {
	// Workloads, Leases and Protections are those of objects, by uid.
	Workloads   map[ownership.UID]Fact[Workload]
	Leases      map[ownership.UID]Fact[Lease]
	Protections map[ownership.UID]Fact[Protection]
	// Nodes and Volumes have names; Budgets are the PodDisruptionBudgets of a namespace, or of all for an empty name.
	Nodes   map[string]Fact[Node]
	Volumes map[string]Fact[Volume]
	Budgets map[string]Fact[[]policyv1.PodDisruptionBudget]
	// Classes are the objects that name a VolumeAttributesClass, by its name.
	Classes map[string]Fact[[]ClassUser]
	// Tokens are the token Secrets of ServiceAccounts, by namespace.
	Tokens map[string]Fact[[]Token]
	// Outages are those of group versions that do not answer.
	Outages map[string]Fact[apiservice.Outage]
	// Definitions are those of CustomResourceDefinitions, by uid.
	Definitions map[ownership.UID]Fact[Definition]
	// Bodies are whole objects, by uid: the expressions of policies and webhooks read them.
	Bodies map[ownership.UID]Fact[*unstructured.Unstructured]
	// Events are the warnings about objects, by uid, the latest first.
	Events map[ownership.UID]Fact[[]Event]
	// These concern the whole cluster; nil before they are read. RepeatedReplaces is true if a repeated DELETE replaces
	// the policy, as on every API server but ours (R19). Controllers is true if the controllers of workloads run in the
	// process of the API server.
	Roles            *Fact[*Roles]
	Webhooks         *Fact[[]Webhook]
	Policies         *Fact[[]Policy]
	Deleters         *Fact[Deleters]
	RepeatedReplaces *Fact[bool]
	Controllers      *Fact[bool]

	needs  Needs
	misses int
	closed bool
}

// Needs are facts that a decision needs, and that are not read yet.
type Needs struct {
	Workloads, Leases, Protections, Bodies, Definitions, Events map[ownership.UID]*Object
	Nodes, Volumes, Classes, Budgets, Tokens, Outages           map[string]bool

	Roles, Webhooks, Policies, Deleters, RepeatedReplaces, Controllers bool
}

// NewFacts returns facts that have nothing read.
func NewFacts() *Facts {
	return &Facts{
		Workloads: map[ownership.UID]Fact[Workload]{}, Leases: map[ownership.UID]Fact[Lease]{}, Protections: map[ownership.UID]Fact[Protection]{},
		Nodes: map[string]Fact[Node]{}, Volumes: map[string]Fact[Volume]{}, Budgets: map[string]Fact[[]policyv1.PodDisruptionBudget]{},
		Outages: map[string]Fact[apiservice.Outage]{}, Classes: map[string]Fact[[]ClassUser]{}, Definitions: map[ownership.UID]Fact[Definition]{},
		Tokens: map[string]Fact[[]Token]{},
		Bodies: map[ownership.UID]Fact[*unstructured.Unstructured]{}, Events: map[ownership.UID]Fact[[]Event]{},
		needs: newNeeds(),
	}
}

func newNeeds() Needs {
	return Needs{
		Workloads: map[ownership.UID]*Object{}, Leases: map[ownership.UID]*Object{}, Protections: map[ownership.UID]*Object{}, Bodies: map[ownership.UID]*Object{},
		Definitions: map[ownership.UID]*Object{}, Events: map[ownership.UID]*Object{},
		Nodes: map[string]bool{}, Volumes: map[string]bool{}, Classes: map[string]bool{}, Budgets: map[string]bool{}, Tokens: map[string]bool{},
		Outages: map[string]bool{},
	}
}

// IsEmpty reports whether nothing is needed.
func (n *Needs) IsEmpty() bool {
	return len(n.Workloads)+len(n.Leases)+len(n.Protections)+len(n.Bodies)+len(n.Definitions)+len(n.Events)+
		len(n.Nodes)+len(n.Volumes)+len(n.Classes)+len(n.Budgets)+len(n.Tokens)+len(n.Outages) == 0 &&
		!n.Roles && !n.Webhooks && !n.Policies && !n.Deleters && !n.RepeatedReplaces && !n.Controllers
}

// Misses returns how often a decision has needed a fact that was not read: an answer between two equal numbers is
// final. Nil facts miss nothing: the caller reads only metadata.
func (f *Facts) Misses() int {
	if f == nil {
		return 0
	}
	return f.misses
}

// Needs returns the facts that decisions have needed since the last call, and that are not read.
func (f *Facts) Needs() Needs {
	needs := f.needs
	f.needs = newNeeds()
	return needs
}

// Close makes unread facts count as unread for good: decisions need no more facts.
func (f *Facts) Close() { f.closed = true }

// notRead is why a need counts as unread.
const notRead = "it was not read"

// Workload returns the workload of a Deployment, StatefulSet or DaemonSet.
func (f *Facts) Workload(o *Object) Fact[Workload] {
	return find(f, f.Workloads, o.UID, func() { f.needs.Workloads[o.UID] = o })
}

// Lease returns the fields of a Lease.
func (f *Facts) Lease(o *Object) Fact[Lease] {
	return find(f, f.Leases, o.UID, func() { f.needs.Leases[o.UID] = o })
}

// Protection returns how the server protects an object that is marked as protected (R28).
func (f *Facts) Protection(o *Object) Fact[Protection] {
	return find(f, f.Protections, o.UID, func() { f.needs.Protections[o.UID] = o })
}

// Node returns the state of the node with a name.
func (f *Facts) Node(name string) Fact[Node] {
	return find(f, f.Nodes, name, func() { f.needs.Nodes[name] = true })
}

// Volume returns the PersistentVolume with a name.
func (f *Facts) Volume(name string) Fact[Volume] {
	return find(f, f.Volumes, name, func() { f.needs.Volumes[name] = true })
}

// UsersOfClass returns the objects that name a VolumeAttributesClass.
func (f *Facts) UsersOfClass(name string) Fact[[]ClassUser] {
	return find(f, f.Classes, name, func() { f.needs.Classes[name] = true })
}

// BudgetsOf returns the PodDisruptionBudgets of a namespace, or of all namespaces if it is empty.
func (f *Facts) BudgetsOf(namespace string) Fact[[]policyv1.PodDisruptionBudget] {
	return find(f, f.Budgets, namespace, func() { f.needs.Budgets[namespace] = true })
}

// TokensIn returns the token Secrets in a namespace.
func (f *Facts) TokensIn(namespace string) Fact[[]Token] {
	return find(f, f.Tokens, namespace, func() { f.needs.Tokens[namespace] = true })
}

// Outage returns why a group version does not answer.
func (f *Facts) Outage(groupVersion string) Fact[apiservice.Outage] {
	return find(f, f.Outages, groupVersion, func() { f.needs.Outages[groupVersion] = true })
}

// AllRoles returns the RBAC roles of the cluster, and their bindings.
func (f *Facts) AllRoles() Fact[*Roles] { return whole(f, f.Roles, &f.needs.Roles) }

// AllWebhooks returns the admission webhooks of the cluster.
func (f *Facts) AllWebhooks() Fact[[]Webhook] { return whole(f, f.Webhooks, &f.needs.Webhooks) }

// AllPolicies returns the ValidatingAdmissionPolicies of the cluster that have bindings.
func (f *Facts) AllPolicies() Fact[[]Policy] { return whole(f, f.Policies, &f.needs.Policies) }

// AllDeleters returns the users whose DELETEs a preview plays.
func (f *Facts) AllDeleters() Fact[Deleters] { return whole(f, f.Deleters, &f.needs.Deleters) }

// Body returns a whole object.
func (f *Facts) Body(o *Object) Fact[*unstructured.Unstructured] {
	return find(f, f.Bodies, o.UID, func() { f.needs.Bodies[o.UID] = o })
}

// Definition returns what a CustomResourceDefinition says about the versions of its instances.
func (f *Facts) Definition(o *Object) Fact[Definition] {
	return find(f, f.Definitions, o.UID, func() { f.needs.Definitions[o.UID] = o })
}

// EventsAbout returns the warnings about an object.
func (f *Facts) EventsAbout(o *Object) Fact[[]Event] {
	return find(f, f.Events, o.UID, func() { f.needs.Events[o.UID] = o })
}

// IsOurs reports whether coppice up runs the server; false if it is unknown.
func (f *Facts) IsOurs() bool {
	replaces := whole(f, f.RepeatedReplaces, &f.needs.RepeatedReplaces)
	return replaces.Unread == "" && !replaces.Value
}

// Replaces returns whether a repeated DELETE replaces the policy; false if it is unknown.
func (f *Facts) Replaces() bool {
	return whole(f, f.RepeatedReplaces, &f.needs.RepeatedReplaces).Value
}

// RunControllers reports whether the controllers of workloads are known to run in the process of the API server. Nil
// facts know nothing.
func (f *Facts) RunControllers() bool {
	return f != nil && whole(f, f.Controllers, &f.needs.Controllers).Value
}

// find returns a known fact, or notes that it is needed.
func find[K comparable, T any](f *Facts, known map[K]Fact[T], key K, need func()) Fact[T] {
	fact, isKnown := known[key]
	if !isKnown {
		if !f.closed {
			need()
			f.misses++
		}
		return Fact[T]{Unread: notRead}
	}
	return fact
}

// whole is find for a fact about the whole cluster.
func whole[T any](f *Facts, known *Fact[T], need *bool) Fact[T] {
	if known == nil {
		if !f.closed {
			*need = true
			f.misses++
		}
		return Fact[T]{Unread: notRead}
	}
	return *known
}

// Event is a warning about an object.
type Event struct {
	Reason, Message string
	First, Last     time.Time
}

// Workload has the relevant fields of a Deployment, StatefulSet or DaemonSet beyond its metadata.
type Workload struct {
	Replicas, Ready int32
	// UnreadySince is when the last replica became unready; zero if unknown.
	UnreadySince   time.Time
	ServiceAccount string
	// Images are the images of its containers.
	Images []string
}

// Lease has the relevant fields of a Lease beyond its metadata.
type Lease struct {
	Holder   string
	Renewed  time.Time
	Duration time.Duration
}

// Node is the part of a node that matters to its pods.
type Node struct {
	builtin.NodeState

	// Since is the last transition time of Ready, or the creation of a node without one. HasNotReported is true for a node
	// without that condition.
	Since          time.Time
	HasNotReported bool
}

// Volume is a PersistentVolume, and the claim with the name in its claimRef; nil if no claim has the name.
type Volume struct {
	Volume *corev1.PersistentVolume
	Claim  *corev1.PersistentVolumeClaim
}

// ClassUser is a PersistentVolume or a PersistentVolumeClaim that names a VolumeAttributesClass.
type ClassUser struct {
	UID                   ownership.UID
	Kind, Namespace, Name string
	Deleting              bool
}

// Token is a Secret with the token of a ServiceAccount.
type Token struct {
	Secret  ownership.UID
	Account string
	// AccountUID is empty if the Secret names none.
	AccountUID ownership.UID
}

// Protection is how the server protects an object that is marked as protected (R28).
type Protection struct {
	protection.Protection

	// Enforced is false if the server deletes the object like any other.
	Enforced bool
	// Remaining are the outlived objects that still exist or could not be checked. IsPart means that the server may know
	// others, of kinds that the user may not list.
	Remaining []protection.Remaining
	IsPart    bool
}
