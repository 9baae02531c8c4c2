package finalizerowner

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// component is a process of a control plane.
type component string

const (
	controllers component = "kube-controller-manager"
	cloud       component = "cloud-controller-manager"
	apiServer   component = "kube-apiserver"
)

// builtin describes the controller of a finalizer of Kubernetes.
type builtin struct {
	controller string
	component  component
	name       string // in its component; empty for a controller that no other program runs
}

// PodCollector stands for the pod garbage collector, which serves no finalizer.
const PodCollector = "pod garbage collector"

// IsBuiltIn reports whether a finalizer belongs to Kubernetes, so that its controller is known without the workloads.
func IsBuiltIn(finalizer string) bool {
	_, is := builtIn(finalizer)
	return is
}

// builtIn returns the controller of a finalizer of Kubernetes.
func builtIn(finalizer string) (builtin, bool) {
	b, ok := map[string]builtin{
		ownership.FinalizerOrphan:                             {"the garbage collector", controllers, garbageCollector},
		ownership.FinalizerForeground:                         {"the garbage collector", controllers, garbageCollector},
		"kubernetes":                                          {"the namespace controller", controllers, "namespace-controller"},
		PodCollector:                                          {"the pod garbage collector", controllers, podCollector},
		inuse.PVCProtection:                                   {"the PVC protection controller", controllers, "persistentvolumeclaim-protection-controller"},
		inuse.PVProtection:                                    {"the PV protection controller", controllers, "persistentvolume-protection-controller"},
		inuse.VACProtection:                                   {"the VolumeAttributesClass protection controller", controllers, "volumeattributesclass-protection-controller"},
		inuse.ServiceCIDRProtection:                           {"the ServiceCIDR controller", controllers, "service-cidr-controller"},
		"batch.kubernetes.io/job-tracking":                    {"the Job controller", controllers, "job-controller"},
		"resource.kubernetes.io/delete-protection":            {"the resource claim controller", controllers, "resourceclaim-controller"},
		"service.kubernetes.io/load-balancer-cleanup":         {"the service controller of the cloud", cloud, ""},
		"customresourcecleanup.apiextensions.k8s.io":          {"the custom resource finalizer", apiServer, ""},
		"storageversions.internal.apiserver.k8s.io/gc-marker": {"the storage version garbage collector", controllers, "storageversion-garbage-collector-controller"},
	}[finalizer]
	return b, ok
}

// ofBuiltIn judges a component by its Lease: kube-controller-manager and cloud-controller-manager renew theirs while
// they work. A control plane may have no Lease; then the state is Unknown.
func (x *Index) ofBuiltIn(b builtin, finalizer string) Answer {
	a := Answer{Finalizer: finalizer, Controller: b.of(string(b.component)), Confidence: High, State: Unknown}
	if b.component == apiServer {
		if x.isOurs() {
			a.Controller = b.of(ourProgram)
		}
		a.State = Alive
		a.Evidence = []string{"it is part of the API server, which has answered"}
		return a
	}
	if seen, ok := x.seen[b.name]; ok {
		a.Controller, a.State, a.Evidence = b.of(seen.program), Alive, []string{seen.evidence}
		return a
	}
	if slices.Contains(withWorkloads(), b.name) && x.facts.RunControllers() {
		a.Controller, a.State, a.Evidence = b.of(ourProgram), Alive, []string{"the API server lists its controllers as a component"}
		return a
	}
	x.byLease(&a, b)
	switch {
	case len(a.Evidence) > 0:
	case x.isOurs():
		a.Controller = b.of(ourProgram)
		a.Evidence = []string{"the server is one of coppice up, which has not told you whether it runs this controller"}
	default:
		a.Evidence = []string{fmt.Sprintf("there is no Lease of %s that tells whether it runs", b.component)}
	}
	return a
}

// withWorkloads are the controllers that coppice up runs with those of workloads.
func withWorkloads() []string {
	return []string{podCollector, "job-controller", "resourceclaim-controller", "service-cidr-controller"}
}

// byLease adds the state of the Leases of a controller to an answer: one that is renewed is enough.
func (x *Index) byLease(a *Answer, b builtin) {
	names := []string{string(b.component)}
	if b.name == garbageCollector {
		names = append(names, coppiceLease)
	}
	for _, name := range names {
		for _, o := range x.leases {
			if o.Namespace != metav1.NamespaceSystem || o.Name != name {
				continue
			}
			state, since, says := x.leaseState(o)
			a.Evidence = append(a.Evidence, says)
			switch state {
			case Alive:
				a.State, a.Since = Alive, nil
				if name == coppiceLease {
					a.Controller = b.of("coppice collect")
				}
				return
			case Silent:
				a.State, a.Since = Silent, &since
			case Leaving, Unknown, Gone, ScaledToZero, NotReady, Forbidden:
			}
		}
	}
}

// of names the controller with its program.
func (b builtin) of(program string) string { return b.controller + " of " + program }

const (
	// ourProgram runs our API server.
	ourProgram = "coppice up"
	// garbageCollector is the name of the garbage collector in kube-controller-manager.
	garbageCollector = "garbage-collector-controller"
	// podCollector is the name of the pod garbage collector there.
	podCollector = "pod-garbage-collector-controller"
	// coppiceLease is the name of the Lease of coppice collect.
	coppiceLease = "coppice"
)

// isOurs reports whether the server is known to be ours.
func (x *Index) isOurs() bool { return x.facts != nil && x.facts.IsOurs() }

// patience is how late a Lease may be beyond its duration: holders retry, and clocks differ.
const patience = 2 * time.Minute

// leaseState returns whether the holder of a Lease works, and the time of the last renewal.
func (x *Index) leaseState(o *inventory.Object) (state State, renewed time.Time, says string) {
	name := "Lease " + o.Namespace + "/" + o.Name
	if x.facts == nil {
		return Unknown, renewed, name + " was not read"
	}
	lease := x.facts.Lease(o)
	l := lease.Value
	age := duration.HumanDuration(x.now.Sub(l.Renewed))
	switch {
	case lease.Unread != "":
		return Unknown, renewed, fmt.Sprintf("%s could not be read: %s", name, lease.Unread)
	case l.Renewed.IsZero():
		return Unknown, renewed, name + " was never renewed"
	case x.now.Sub(l.Renewed) > l.Duration+patience:
		return Silent, l.Renewed, fmt.Sprintf("%s was last renewed %s ago, by %s", name, age, holder(l))
	case l.Holder == "":
		return Unknown, l.Renewed, fmt.Sprintf("%s was released %s ago", name, age)
	default:
		return Alive, l.Renewed, fmt.Sprintf("%s was renewed %s ago, by %s", name, age, holder(l))
	}
}

func holder(l inventory.Lease) string {
	if l.Holder == "" {
		return "nobody"
	}
	return l.Holder
}
