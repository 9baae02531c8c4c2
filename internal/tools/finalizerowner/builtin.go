package finalizerowner

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
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
		ownership.FinalizerOrphan:                             {"the garbage collector", controllers},
		ownership.FinalizerForeground:                         {"the garbage collector", controllers},
		"kubernetes":                                          {"the namespace controller", controllers},
		PodCollector:                                          {"the pod garbage collector", controllers},
		inuse.PVCProtection:                                   {"the PVC protection controller", controllers},
		inuse.PVProtection:                                    {"the PV protection controller", controllers},
		inuse.VACProtection:                                   {"the VolumeAttributesClass protection controller", controllers},
		inuse.ServiceCIDRProtection:                           {"the ServiceCIDR controller", controllers},
		"batch.kubernetes.io/job-tracking":                    {"the Job controller", controllers},
		"resource.kubernetes.io/delete-protection":            {"the resource claim controller", controllers},
		"service.kubernetes.io/load-balancer-cleanup":         {"the service controller of the cloud", cloud},
		"customresourcecleanup.apiextensions.k8s.io":          {"the custom resource finalizer", apiServer},
		"storageversions.internal.apiserver.k8s.io/gc-marker": {"the storage version garbage collector", controllers},
	}[finalizer]
	return b, ok
}

// ofBuiltIn judges a component by its Lease: kube-controller-manager and cloud-controller-manager renew theirs while
// they work. A control plane may have no Lease; then the state is Unknown.
func (x *Index) ofBuiltIn(b builtin, finalizer string) Answer {
	a := Answer{Finalizer: finalizer, Controller: b.controller + " of " + string(b.component), Confidence: High, State: Unknown}
	if b.component == apiServer {
		a.State = Alive
		a.Evidence = []string{"it is part of the API server, which has answered"}
		return a
	}
	if evidence, ok := x.seen[finalizer]; ok {
		a.State, a.Evidence = Alive, []string{evidence}
		return a
	}
	names := []types.NamespacedName{{Namespace: "kube-system", Name: string(b.component)}}
	if b.controller == "the garbage collector" {
		names = append(names, types.NamespacedName{Namespace: "kube-system", Name: "coppice"})
	}
	for _, name := range names {
		for _, o := range x.leases {
			if o.Namespace != name.Namespace || o.Name != name.Name {
				continue
			}
			state, since, says := x.leaseState(o)
			a.Evidence = append(a.Evidence, says)
			if state == Alive {
				a.State, a.Since = Alive, nil
				return a
			}
			if state == Silent {
				a.State, a.Since = Silent, &since
			}
		}
	}
	if len(a.Evidence) == 0 {
		a.Evidence = []string{fmt.Sprintf("there is no Lease of %s that tells whether it runs", b.component)}
	}
	return a
}

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
