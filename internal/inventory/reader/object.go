package reader

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/feed"
	"github.com/coppice-dev/coppice/internal/inventory"
	"github.com/coppice-dev/coppice/internal/ownership"
)

// converter keeps of objects of one resource what deletion depends on. Objects have most of their texts
// in common, above all pods of one ReplicaSet: each text, and each set of labels, is kept once.
type converter struct {
	resource *inventory.Resource
	texts    map[string]string
	labels   map[string]map[string]string
}

func newConverter(r *inventory.Resource) *converter {
	return &converter{resource: r, texts: make(map[string]string), labels: make(map[string]map[string]string)}
}

func (c *converter) object(meta *metav1.PartialObjectMetadata) *inventory.Object {
	o := &inventory.Object{
		Object:   feed.ObjectOf(c.resource.OwnerKind(), meta),
		Resource: c.resource,
		Created:  meta.CreationTimestamp.Time,
		Labels:   c.sharedLabels(meta.Labels),
	}
	if meta.DeletionTimestamp != nil {
		o.Deadline = meta.DeletionTimestamp.Time
	}
	if meta.DeletionGracePeriodSeconds != nil {
		o.Grace = time.Duration(*meta.DeletionGracePeriodSeconds) * time.Second
	}
	// The server decodes a list into one piece of memory: what is kept is taken out of it.
	o.Name, o.Namespace = strings.Clone(o.Name), c.text(o.Namespace)
	for i := range o.Finalizers {
		o.Finalizers[i] = c.text(o.Finalizers[i])
	}
	o.Finalizers = slices.Clone(o.Finalizers)
	for i := range o.Owners {
		owner := &o.Owners[i]
		owner.APIVersion, owner.Kind, owner.Name = c.text(owner.APIVersion), c.text(owner.Kind), c.text(owner.Name)
	}
	if len(o.Finalizers) > 0 {
		o.Managers = c.managers(meta.ManagedFields)
	}
	if slices.ContainsFunc(o.Owners, ownership.Reference.Blocking) {
		o.OwnedBy = c.ownedBy(meta.ManagedFields)
	}
	return o
}

// ownedBy returns who has set owner references. Nearly all of them are set by kube-controller-manager,
// which may: its entries are not looked at.
func (c *converter) ownedBy(entries []metav1.ManagedFieldsEntry) []string {
	var names []string
	for i := range entries {
		e := &entries[i]
		if e.Manager == "kube-controller-manager" || e.FieldsV1 == nil || !strings.Contains(e.FieldsV1.GetRawString(), `"f:ownerReferences"`) {
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
	s = strings.Clone(s)
	texts[s] = s
	return s
}

func (c *converter) sharedLabels(labels map[string]string) map[string]string {
	if len(labels) == 0 {
		return nil
	}
	names := make([]string, 0, len(labels))
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names)
	var key strings.Builder
	for _, name := range names {
		key.WriteString(name + "=" + labels[name] + ",")
	}
	kept, ok := c.labels[key.String()]
	if !ok {
		kept = make(map[string]string, len(labels))
		for _, name := range names {
			kept[c.text(name)] = c.text(labels[name])
		}
		c.labels[key.String()] = kept
	}
	return kept
}

// managers returns who has set which finalizers.
func (c *converter) managers(entries []metav1.ManagedFieldsEntry) []inventory.Manager {
	var all []inventory.Manager
	for i := range entries {
		e := &entries[i]
		if e.FieldsV1 == nil || !strings.Contains(e.FieldsV1.GetRawString(), `"f:finalizers"`) {
			continue
		}
		m := inventory.Manager{Name: c.text(e.Manager)}
		if e.Time != nil {
			m.Time = e.Time.Time
		}
		for _, f := range finalizersOf(e.FieldsV1.GetRawBytes()) {
			m.Finalizers = append(m.Finalizers, c.text(f))
		}
		if len(m.Finalizers) > 0 {
			all = append(all, m)
		}
	}
	return all
}

// finalizersOf returns the finalizers in a set of managed fields: the keys v:"NAME" below metadata.finalizers.
func finalizersOf(fields []byte) []string {
	var set struct {
		Metadata struct {
			Finalizers map[string]json.RawMessage `json:"f:finalizers"`
		} `json:"f:metadata"`
	}
	if json.Unmarshal(fields, &set) != nil {
		return nil // a server of another kind; it is a hint only
	}
	var names []string
	for key := range set.Metadata.Finalizers {
		var name string
		if quoted, ok := strings.CutPrefix(key, "v:"); ok && json.Unmarshal([]byte(quoted), &name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
