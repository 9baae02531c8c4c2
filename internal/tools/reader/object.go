package reader

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// The keys of these fields in managed fields.
const (
	fieldFinalizers = `"f:finalizers"`
	fieldOwners     = `"f:ownerReferences"`
)

// converter keeps the metadata of objects of one resource that deletion depends on. Objects share most of
// their texts, above all pods of one ReplicaSet: each text, and each set of labels, is kept once.
type converter struct {
	resource *inventory.Resource
	texts    map[string]string
	last     inventory.Labels // of the previous object, which usually has the same owner
}

func newConverter(r *inventory.Resource) *converter {
	return &converter{resource: r, texts: make(map[string]string)}
}

func (c *converter) object(meta *metav1.ObjectMeta) *inventory.Object {
	o := &inventory.Object{
		Object:   feed.ObjectOf(c.resource.OwnerKind(), &metav1.PartialObjectMetadata{ObjectMeta: *meta}),
		Resource: c.resource,
		Created:  meta.CreationTimestamp.Time,
		Labels:   c.sharedLabels(meta.Labels),
	}
	if meta.DeletionGracePeriodSeconds != nil {
		o.Grace = pods.Seconds(*meta.DeletionGracePeriodSeconds)
	}
	o.Namespace = c.text(o.Namespace)
	for i := range o.Finalizers {
		o.Finalizers[i] = c.text(o.Finalizers[i])
	}
	for i := range o.Owners {
		owner := &o.Owners[i]
		owner.APIVersion, owner.Kind, owner.Name = c.text(owner.APIVersion), c.text(owner.Kind), c.text(owner.Name)
	}
	var by inventory.SetBy
	if len(o.Finalizers) > 0 {
		by.Finalizers = c.managers(meta.ManagedFields)
	}
	if slices.ContainsFunc(o.Owners, ownership.Reference.Blocking) {
		by.Owners = c.ownedBy(meta.ManagedFields)
	}
	if len(by.Finalizers)+len(by.Owners) > 0 {
		o.SetBy = &by
	}
	return o
}

// ownedBy returns the field managers that have set owner references. It skips kube-controller-manager, which
// sets nearly all of them and has the right to.
func (c *converter) ownedBy(entries []metav1.ManagedFieldsEntry) []string {
	var names []string
	for i := range entries {
		e := &entries[i]
		if e.Manager == "kube-controller-manager" || e.FieldsV1 == nil || !strings.Contains(e.FieldsV1.GetRawString(), fieldOwners) {
			continue
		}
		if name := c.text(e.Manager); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (c *converter) text(s string) string { return shared(c.texts, s) }

// shared returns the one copy of a text.
func shared(texts map[string]string, s string) string {
	if kept, ok := texts[s]; ok {
		return kept
	}
	texts[s] = s
	return s
}

func (c *converter) sharedLabels(texts map[string]string) inventory.Labels {
	if len(texts) == 0 {
		return nil
	}
	if len(texts) != len(c.last) || slices.ContainsFunc(c.last, func(l inventory.Label) bool { return texts[l.Name] != l.Value }) {
		c.last = inventory.LabelsOf(texts)
		for i, l := range c.last {
			c.last[i] = inventory.Label{Name: c.text(l.Name), Value: c.text(l.Value)}
		}
	}
	return c.last
}

// managers returns the field managers that have set finalizers.
func (c *converter) managers(entries []metav1.ManagedFieldsEntry) []inventory.Manager {
	var all []inventory.Manager
	for i := range entries {
		e := &entries[i]
		if e.FieldsV1 == nil || !strings.Contains(e.FieldsV1.GetRawString(), fieldFinalizers) {
			continue
		}
		m := inventory.Manager{Name: c.text(e.Manager)}
		if e.Time != nil {
			m.Time = e.Time.Time
		}
		for _, f := range inuse.FinalizersIn(e.FieldsV1.GetRawBytes()) {
			m.Finalizers = append(m.Finalizers, c.text(f))
		}
		if len(m.Finalizers) > 0 {
			all = append(all, m)
		}
	}
	return all
}
