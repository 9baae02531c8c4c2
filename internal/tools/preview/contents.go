package preview

import (
	"errors"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/collect/namespaces"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// instancesFinalizer holds a CustomResourceDefinition until its instances are gone.
const instancesFinalizer = "customresourcecleanup.apiextensions.k8s.io"

// empty lets the controllers that delete the contents of an object work.
func (p *play) empty(o *object) {
	switch {
	case isNamespace(o):
		p.emptyNamespace(o)
	case slices.Contains(o.now.Finalizers, instancesFinalizer):
		p.deleteInstances(o)
	}
}

func isNamespace(o *object) bool {
	return o.Resource.GroupResource() == corev1.Resource("namespaces")
}

// emptyNamespace is one sync of a terminating namespace (R22).
func (p *play) emptyNamespace(ns *object) {
	if !namespaces.Pending(p.stored(ns).(*corev1.Namespace)) {
		return
	}
	if !ns.contentsLoaded {
		ns.contentsLoaded = true
		p.emptied[ns.Name] = ns
		p.reserve(len(p.contents[ns.Name]))
		for _, o := range p.contents[ns.Name] {
			p.load(o)
		}
	}
	if p.options.Order.IsUpstream() {
		p.emptyAsUpstream(ns)
		return
	}
	s := p.survey(p.options.Order)
	for {
		switch step := namespaces.Next(s).(type) {
		case namespaces.Read:
			s.Record(p.list(ns, step.Resources))
		case namespaces.Delete:
			p.sweep(step.Contents)
			for _, content := range step.Contents {
				s.Sweep(content.Resource, nil)
			}
		case namespaces.Finalize:
			p.finalize(ns)
			return
		case namespaces.Verify:
			s = p.survey(p.options.Order)
		case namespaces.Wait:
			return
		}
	}
}

// finalize removes the finalizer of the namespace controller.
func (p *play) finalize(ns *object) {
	ns.specFinalizers = slices.DeleteFunc(ns.specFinalizers, func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
	p.write(ns)
}

// list returns the contents of a namespace by resource.
func (p *play) list(ns *object, resources []namespaces.Resource) []namespaces.Content {
	contents := make([]namespaces.Content, len(resources))
	for n, r := range resources {
		contents[n].Resource = r
		if refused, ok := p.unconvertedIn(ns.Name, r.GroupResource()); ok {
			ns.refusal = &Refusal{Refusal: refused, To: ByNamespaceController}
			contents[n].Err = errors.New(refused.String())
			continue
		}
		if p.undiscovered != nil && p.undiscovered.Groups[r.GroupVersion()] != nil {
			contents[n].Err = p.undiscovered.Groups[r.GroupVersion()]
			continue
		}
		t := p.tallies[tallyKey{ns.Name, r.GroupResource()}]
		if t == nil {
			continue
		}
		contents[n].Remaining, contents[n].Deleting = t.remaining, t.remaining-t.active
		if t.active == 0 {
			continue
		}
		contents[n].Active = make([]namespaces.Object, 0, t.active)
		for _, uid := range t.actives() { // in any order: a schedule sorts them
			contents[n].Active = append(contents[n].Active, namespaces.Object{UID: types.UID(uid)})
		}
	}
	return contents
}

// sweep deletes the objects that the namespace controller has listed.
func (p *play) sweep(contents []namespaces.Content) {
	var uids []ownership.UID
	for _, content := range contents {
		for _, o := range content.Active {
			uids = append(uids, ownership.UID(o.UID))
		}
	}
	p.deleteAll(uids, metav1.DeletePropagationBackground, ByNamespaceController)
}

// deleteAll deletes objects one after the other, except those that another actor has deleted in the meantime.
func (p *play) deleteAll(uids []ownership.UID, policy metav1.DeletionPropagation, by Actor) {
	p.schedule.sort(uids)
	for _, uid := range uids {
		if o := p.objects[uid]; !o.deleting {
			// Objects that admission or their protection refuses to delete stay.
			_ = p.delete(o, policy, by)
		}
		p.collectBetween()
	}
}

// guardInstances adds the finalizer of the server to a CustomResourceDefinition before its deletion, as the server
// does with the DELETE.
func (p *play) guardInstances(o *object) {
	isDefinition := o.Resource.GroupResource() == schema.GroupResource{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}
	if isDefinition && !o.deleting && !slices.Contains(o.now.Finalizers, instancesFinalizer) {
		o.now.Finalizers = append(slices.Clone(o.now.Finalizers), instancesFinalizer)
	}
}

// deleteInstances deletes the instances of a CustomResourceDefinition, as the server does, and removes the finalizer
// of the definition when no instance is left.
func (p *play) deleteInstances(definition *object) {
	r := p.defined(definition)
	if !definition.contentsLoaded {
		definition.contentsLoaded = true
		p.undefined[r] = definition
		for _, o := range p.instances[r] {
			p.load(o)
		}
	}
	if refused := p.unconvertedInstance(r); refused != nil {
		definition.refusal = &Refusal{Refusal: *refused, To: ByServer}
		return
	}
	instances := &tally{}
	if r != nil && len(p.instances[r]) > 0 {
		instances = p.tallies[tallyKey{everywhere, r.GroupResource()}]
	}
	p.deleteAll(instances.actives(), "", ByServer)
	if instances.remaining == 0 {
		p.dropFinalizers(definition, ByServer, func(f string) bool { return f == instancesFinalizer })
	}
}

// defined returns the resource that a CustomResourceDefinition defines, by its name.
func (p *play) defined(definition *object) *inventory.Resource {
	for _, r := range p.inventory.Resources {
		if r.GroupResource().String() == definition.Name {
			return r
		}
	}
	return nil
}

// release lets the controllers of finalizers that are assumed to remove them do so.
func (p *play) release(o *object) {
	released := func(f string) bool { return isForeign(f) && p.options.Released(o.Object, f) }
	p.dropFinalizers(o, ByJobController, func(f string) bool { return f == batchv1.JobTrackingFinalizer && released(f) })
	p.dropFinalizers(o, byUnknown, func(f string) bool { return f != batchv1.JobTrackingFinalizer && released(f) })
}

// dropFinalizers lets an actor remove finalizers of an object, unless the server refuses that.
func (p *play) dropFinalizers(o *object, by Actor, drop func(string) bool) {
	if remaining := slices.DeleteFunc(slices.Clone(o.now.Finalizers), drop); len(remaining) < len(o.now.Finalizers) {
		p.update(o, by, func(now *ownership.Object) { now.Finalizers = remaining })
	}
}

// isForeign reports whether a finalizer is neither the collector's nor the server's.
func isForeign(finalizer string) bool {
	return finalizer != ownership.FinalizerOrphan && finalizer != ownership.FinalizerForeground && finalizer != instancesFinalizer
}
