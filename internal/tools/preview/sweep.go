package preview

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// emptyAsUpstream is one sync of kube-controller-manager's namespace controller. It deletes all pods first, and goes on
// to the other resources if none remains, or if the server has refused to delete one. It takes the resources in any
// order, and releases the namespace if nothing was refused, and nothing remains.
func (p *play) emptyAsUpstream(ns *object) {
	contents := map[schema.GroupResource][]*object{}
	for _, o := range p.contents[ns.Name] {
		if loaded := p.objects[o.UID]; !loaded.removed {
			contents[o.Resource.GroupResource()] = append(contents[o.Resource.GroupResource()], loaded)
		}
	}
	pods := corev1.Resource("pods")
	isPermitted := p.sweepCollection(ns, pods, contents[pods])
	remaining := countRemaining(contents[pods])
	if isPermitted && remaining > 0 {
		return
	}
	var names []ownership.UID // schedules sort UIDs
	for _, r := range p.resources {
		if r.GroupResource() != pods {
			names = append(names, ownership.UID(r.GroupResource().String()))
		}
	}
	p.schedule.sort(names)
	for _, name := range names {
		r := schema.ParseGroupResource(string(name))
		isPermitted = p.sweepCollection(ns, r, contents[r]) && isPermitted
		remaining += countRemaining(contents[r])
	}
	if isPermitted && remaining == 0 && p.undiscovered == nil {
		p.finalize(ns)
	}
}

// sweepCollection deletes the objects of a resource as one request for all of them does on kube-apiserver: in the order
// of their names, also those that are being deleted already, until one is refused. It reports whether none is.
func (p *play) sweepCollection(ns *object, r schema.GroupResource, all []*object) bool {
	if refused, ok := p.unconvertedIn(ns.Name, r); ok {
		ns.refusal = &Refusal{Refusal: refused, To: ByNamespaceController}
		return false
	}
	slices.SortFunc(all, func(a, b *object) int { return cmp.Compare(a.Name, b.Name) })
	for _, o := range all {
		if p.delete(o, metav1.DeletePropagationBackground, ByNamespaceController) != nil {
			return false
		}
		p.collectBetween()
	}
	return true
}

// countRemaining counts the objects that are not gone.
func countRemaining(all []*object) (n int) {
	for _, o := range all {
		if !o.removed {
			n++
		}
	}
	return n
}
