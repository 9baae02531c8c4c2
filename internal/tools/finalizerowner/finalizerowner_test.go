package finalizerowner_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const cleanup = "shop.acme.io/cleanup"

// details are literals; objects that are not in them do not exist.
type details struct {
	workloads map[string]inventory.Workload // by name
	leases    map[string]inventory.Lease
	rules     map[string][]rbacv1.PolicyRule // by service account
	err       error
}

// about returns all facts about some objects.
func (d *details) about(objects []*inventory.Object) *inventory.Facts {
	if d == nil {
		return nil
	}
	facts, roles := inventory.NewFacts(), &inventory.Roles{ClusterRoles: map[string][]rbacv1.PolicyRule{}}
	for _, o := range objects {
		facts.Workloads[o.UID] = inventory.FactOf(d.workloads[o.Name], d.err)
		facts.Leases[o.UID] = inventory.FactOf(d.leases[o.Name], d.err)
	}
	for account, rules := range d.rules {
		roles.ClusterRoles[account] = rules
		roles.ClusterBindings = append(roles.ClusterBindings, rbacv1.ClusterRoleBinding{
			RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: account}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "ops", Name: account}},
		})
	}
	facts.Roles = new(inventory.FactOf(roles, d.err))
	return facts
}

var resources = map[string]*inventory.Resource{
	"Widget":      resource("shop.acme.io", "Widget"),
	"Deployment":  resource("apps", "Deployment"),
	"StatefulSet": resource("apps", "StatefulSet"),
	"DaemonSet":   resource("apps", "DaemonSet"),
	"Pod":         resource("", "Pod"),
	"Lease":       resource("coordination.k8s.io", "Lease"),
}

func resource(group, kind string) *inventory.Resource {
	return &inventory.Resource{
		GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: strings.ToLower(kind) + "s"},
		Kind:                 kind, Namespaced: true, Deletable: true,
	}
}

func object(kind, name string, managers ...inventory.Manager) *inventory.Object {
	r := resources[kind]
	return &inventory.Object{
		Object:   ownership.Object{UID: ownership.UID(kind + "/" + name), Kind: r.OwnerKind(), Namespace: "ops", Name: name},
		Resource: r, SetBy: &inventory.SetBy{Finalizers: managers},
	}
}

func setBy(name string) inventory.Manager {
	return inventory.Manager{Name: name, Time: now.Add(-24 * time.Hour), Finalizers: []string{cleanup}}
}

func index(d *details, objects ...*inventory.Object) *finalizerowner.Index {
	inv := &inventory.Inventory{Read: now, Objects: objects}
	for _, r := range resources {
		inv.Resources = append(inv.Resources, r)
	}
	inv.Index()
	return finalizerowner.New(inv, d.about(objects), now)
}

func update(resource, group string) []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{Verbs: []string{"update"}, APIGroups: []string{group}, Resources: []string{resource}}}
}

func TestControllerIsFoundByItsTraces(t *testing.T) {
	fresh := map[string]inventory.Lease{"shop-operator": {Holder: "pod_1", Renewed: now.Add(-5 * time.Second), Duration: 15 * time.Second}}
	running := map[string]inventory.Workload{"shop-operator": {Replicas: 1, Ready: 1}, "other": {Replicas: 1, Ready: 1, ServiceAccount: "sa"}}
	for _, test := range []struct {
		name       string
		manager    string
		others     []*inventory.Object
		details    *details
		state      finalizerowner.State
		confidence finalizerowner.Confidence
		controller string
		evidence   string // a part of one of the sentences
	}{
		{
			"by name", "shop-operator",
			[]*inventory.Object{object("Deployment", "shop-operator")},
			&details{workloads: running},
			finalizerowner.Alive, finalizerowner.High, "Deployment.apps ops/shop-operator", "ready replicas: 1 of 1",
		},
		{
			"by a longer name", "shop-operator-webhook",
			[]*inventory.Object{object("StatefulSet", "shop-operator")},
			&details{workloads: running},
			finalizerowner.Alive, finalizerowner.Medium, "StatefulSet.apps ops/shop-operator", "has a name like",
		},
		{
			"by a word of the finalizer", "manager",
			[]*inventory.Object{object("DaemonSet", "shop-operator")},
			&details{workloads: running},
			finalizerowner.Alive, finalizerowner.Low, "DaemonSet.apps ops/shop-operator", "a name that many controllers use",
		},
		{
			"by a role that names the resource", "manager",
			[]*inventory.Object{object("Deployment", "other")},
			&details{workloads: running, rules: map[string][]rbacv1.PolicyRule{"sa": update("widgets", "shop.acme.io")}},
			finalizerowner.Alive, finalizerowner.Medium, "Deployment.apps ops/other", "by a role that names them",
		},
		{
			"a role for everything is no trace", "manager",
			[]*inventory.Object{object("Deployment", "other")},
			&details{workloads: running, rules: map[string][]rbacv1.PolicyRule{"sa": update("*", "*")}},
			finalizerowner.Unknown, finalizerowner.Low, "", "may be the controller",
		},
		{
			"a role for everything is no doubt about a name", "gone",
			[]*inventory.Object{object("Deployment", "other")},
			&details{workloads: running, rules: map[string][]rbacv1.PolicyRule{"sa": update("*", "*")}},
			finalizerowner.Gone, finalizerowner.Medium, "", "no Deployment, StatefulSet, DaemonSet or pod",
		},
		{
			"without the right", "other",
			[]*inventory.Object{object("Deployment", "other")},
			&details{workloads: running, rules: map[string][]rbacv1.PolicyRule{"sa": update("gadgets", "shop.acme.io")}},
			finalizerowner.Forbidden, finalizerowner.High, "Deployment.apps ops/other", "no role lets its service account ops/sa update widgets.shop.acme.io",
		},
		{
			"only a Lease", "shop-operator",
			[]*inventory.Object{object("Lease", "shop-operator")},
			&details{leases: fresh},
			finalizerowner.Alive, finalizerowner.Medium, "the holder of Lease ops/shop-operator", "renewed 5s ago, by pod_1",
		},
		{
			"set by hand", "kubectl-edit", nil,
			&details{},
			finalizerowner.Gone, finalizerowner.Medium, "", "a tool and no controller",
		},
		{
			"a part of the control plane", "kube-controller-manager", nil,
			&details{},
			finalizerowner.Unknown, finalizerowner.High, "a controller of kube-controller-manager", "there is no Lease",
		},
		{
			"the replicas cannot be read", "shop-operator",
			[]*inventory.Object{object("Deployment", "shop-operator")},
			&details{err: errors.New("forbidden")},
			finalizerowner.Unknown, finalizerowner.High, "Deployment.apps ops/shop-operator", "could not be read: forbidden",
		},
		{
			"no details", "gone", nil, nil,
			finalizerowner.Unknown, finalizerowner.Low, "", "details of workloads were not read",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := object("Widget", "w", setBy(test.manager))
			a := index(test.details, append(test.others, o)...).Of(o, cleanup)
			if a.State != test.state || a.Confidence != test.confidence || a.Controller != test.controller {
				t.Errorf("%s, %s, by %q; want %s, %s, %q; evidence: %q", a.State, a.Confidence, a.Controller, test.state, test.confidence, test.controller, a.Evidence)
			}
			if !strings.Contains(strings.Join(a.Evidence, "\n"), test.evidence) {
				t.Errorf("the evidence is %q, want %q in it", a.Evidence, test.evidence)
			}
		})
	}
}

// A finalizer of Kubernetes is not looked up by name: a workload called "kubernetes" or "orphan" is unrelated.
func TestFinalizersOfKubernetesAreNotLookedUpByName(t *testing.T) {
	renewed := func(ago time.Duration) *details {
		return &details{leases: map[string]inventory.Lease{"kube-controller-manager": {Holder: "cp-1", Renewed: now.Add(-ago), Duration: 15 * time.Second}}}
	}
	lease := object("Lease", "kube-controller-manager")
	lease.Namespace = "kube-system"
	for _, test := range []struct {
		name, finalizer string
		details         *details
		want            finalizerowner.State
	}{
		{"renewed", "foregroundDeletion", renewed(3 * time.Second), finalizerowner.Alive},
		{"late, within patience", "orphan", renewed(time.Minute), finalizerowner.Alive},
		{"silent", "kubernetes.io/pvc-protection", renewed(time.Hour), finalizerowner.Silent},
		{"another component", "service.kubernetes.io/load-balancer-cleanup", renewed(time.Second), finalizerowner.Unknown},
		{"of the API server", "customresourcecleanup.apiextensions.k8s.io", renewed(time.Hour), finalizerowner.Alive},
		{"the Lease cannot be read", "kubernetes", &details{err: errors.New("forbidden")}, finalizerowner.Unknown},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := object("Widget", "w")
			a := index(test.details, o, lease, object("Deployment", "orphan"), object("Deployment", "kubernetes")).Of(o, test.finalizer)
			if a.State != test.want || a.Workload != "" {
				t.Errorf("%s by %s, want %s; evidence: %q", a.State, a.Controller, test.want, a.Evidence)
			}
		})
	}
}

// A finalizer has no controller only if all kinds that a controller may run as, or publish its state in, were read.
func TestNobodyNeedsAllToBeRead(t *testing.T) {
	o := object("Widget", "w", setBy("shop-operator"))
	for kind, r := range resources {
		inv := &inventory.Inventory{
			Read: now, Objects: []*inventory.Object{o},
			Unread: []inventory.Unread{{Resource: r.GroupVersionResource, Why: "forbidden", Forbidden: true}},
		}
		for _, r := range resources {
			inv.Resources = append(inv.Resources, r)
		}
		inv.Index()
		want := finalizerowner.Unknown
		if kind == "Widget" {
			want = finalizerowner.Gone
		}
		if a := finalizerowner.New(inv, (&details{}).about(inv.Objects), now).Of(o, cleanup); a.State != want {
			t.Errorf("without %ss: %s, want %s; evidence: %q", kind, a.State, want, a.Evidence)
		}
	}
}

// A controller of Kubernetes is named with the program that runs it: the one that says so, the holder of the Lease, ours
// on our server, and kube-controller-manager otherwise.
func TestControllersAreNamedWithTheirProgram(t *testing.T) {
	const tracking = "batch.kubernetes.io/job-tracking"
	leases := func(name string) *details {
		return &details{leases: map[string]inventory.Lease{name: {Holder: "one", Renewed: now, Duration: 15 * time.Second}}}
	}
	for _, test := range []struct {
		name, finalizer string
		lease           string
		isOurs          bool
		saw             []string // controllers of "coppice up"
		want            string
	}{
		{"nobody says anything", tracking, "", false, nil, "the Job controller of kube-controller-manager"},
		{"on our server", tracking, "", true, nil, "the Job controller of coppice up"},
		{"on our server, with another control plane", tracking, "kube-controller-manager", true, nil, "the Job controller of kube-controller-manager"},
		{"it says so", tracking, "", true, []string{"job-controller"}, "the Job controller of coppice up"},
		{"it says so of another", tracking, "kube-controller-manager", true, []string{"namespace-controller"}, "the Job controller of kube-controller-manager"},
		{"the Lease of a collector", "orphan", "coppice", false, nil, "the garbage collector of coppice collect"},
		{"the API server", "customresourcecleanup.apiextensions.k8s.io", "", true, nil, "the custom resource finalizer of coppice up"},
		{"another API server", "customresourcecleanup.apiextensions.k8s.io", "", false, nil, "the custom resource finalizer of kube-apiserver"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := object("Widget", "w")
			objects := []*inventory.Object{o}
			if test.lease != "" {
				lease := object("Lease", test.lease)
				lease.Namespace = "kube-system"
				objects = append(objects, lease)
			}
			inv := &inventory.Inventory{Read: now, Objects: objects}
			inv.Index()
			facts := leases(test.lease).about(objects)
			facts.RepeatedReplaces = &inventory.Fact[bool]{Value: !test.isOurs}
			x := finalizerowner.New(inv, facts, now)
			x.Saw("coppice up", "it says so", test.saw...)
			if a := x.Of(o, test.finalizer); a.Controller != test.want {
				t.Errorf("%s, want %s; evidence: %q", a.Controller, test.want, a.Evidence)
			}
		})
	}
}

// A finalizer in a template is not served by the controller that has made the object from it.
func TestControllersOfWorkloadsCopyFinalizers(t *testing.T) {
	for _, manager := range []string{"coppice", "kube-controller-manager"} {
		pod, bare := object("Pod", "made", setBy(manager)), object("Pod", "bare", setBy(manager))
		pod.Owners = []ownership.Reference{{APIVersion: "batch/v1", Kind: "Job", Name: "j", UID: "j", Controller: ownership.True}}
		x := index(&details{}, pod)
		if a := x.Of(pod, cleanup); a.State != finalizerowner.Gone || !strings.Contains(a.Evidence[0], "in the template of Job j, from which "+manager) {
			t.Errorf("set by %s from a template: %+v", manager, a)
		}
		if a := index(&details{}, bare).Of(bare, cleanup); strings.Contains(a.Evidence[0], "template") {
			t.Errorf("set by %s without a template: %+v", manager, a)
		}
	}
}
