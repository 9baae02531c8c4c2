package reader

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/collect/wire"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// pageSize is the number of objects in a page: some megabytes with their managed fields.
const pageSize = 1000

const (
	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
	// asMetadata requests only the metadata of objects.
	asMetadata = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// The numbers of fields, as in generated.proto.
const (
	metadataOfList, itemsOfList = 1, 2
	continueOfList              = 3
	metadataOfObject            = 1
	namespaceOfMeta             = 3
	ownersOfMeta                = 13
	managedFieldsOfMeta         = 17
	kindOfOwner                 = 1
	managerOfEntry              = 1
)

// keptOfMetadata returns the fields of metadata that matter to a deletion, without managed fields, which are
// most of it: name, namespace, UID, version, the times of creation and deletion, grace period, labels, owners,
// finalizers.
func keptOfMetadata() wire.Fields {
	return wire.Fields{1: nil, 3: nil, 5: nil, 6: nil, 8: nil, 9: nil, 10: nil, 11: nil, 13: nil, 14: nil}
}

// keptOfPod returns the fields of a pod that inventory.NewPod uses: in the spec the volumes, the hooks of
// containers, the grace period and the node; in the status the phase and the conditions.
func keptOfPod() wire.Fields {
	return wire.Fields{
		metadataOfObject: {1: nil}, // names of ephemeral claims begin with the pod's
		2:                {1: nil, 2: {12: nil}, 4: nil, 10: nil},
		3:                {1: nil, 2: nil},
	}
}

// readsPods reports whether the objects of a resource are pods to be read whole.
func (r *reader) readsPods(resource *inventory.Resource) bool {
	return r.options.Pods && resource.GroupResource() == corev1.Resource("pods")
}

// visitor is called for each object. The pod is nil if only the metadata was read.
type visitor func(*metav1.ObjectMeta, *inventory.Pod)

// part selects objects of a resource: in a namespace, or in all if it is empty; by their fields, if there is a
// selector; whole pods, or metadata; the wanted objects, or all if isWanted is nil.
type part struct {
	namespace string
	version   string // if empty, the version of the resource
	fields    string
	isPods    bool
	isWanted  func(namespace string, owners iter.Seq[string]) bool
}

// each reads objects of a resource: in one list from a server that does not need memory for the whole list,
// else page by page. A server that has no watch cache of the objects, as while they cannot be converted, refuses the one
// list for minutes, and serves the pages from its storage.
func (r *reader) each(ctx context.Context, resource *inventory.Resource, of part, visit visitor) error {
	d := &listDecoder{isPods: of.isPods, isWanted: of.isWanted, visit: visit, ofMetadata: keptOfMetadata(), ofPod: keptOfPod()}
	version := cmp.Or(of.version, resource.Version)
	path := []string{"api", version}
	if resource.Group != "" {
		path = []string{"apis", resource.Group, version}
	}
	if of.namespace != "" {
		path = append(path, "namespaces", of.namespace)
	}
	options := metav1.ListOptions{FieldSelector: of.fields}
	if !r.streams {
		options.Limit = pageSize
	}
	for {
		request := r.kubernetes.CoreV1().RESTClient().Get().AbsPath(append(path, resource.Resource)...).
			SetHeader("Accept", d.accept()).VersionedParams(&options, scheme.ParameterCodec)
		if options.Limit == 0 {
			request.MaxRetries(0)
		}
		body, err := request.Stream(ctx)
		if options.Limit == 0 && apierrors.IsTooManyRequests(err) {
			options.Limit = pageSize
			continue
		}
		if err != nil {
			return err
		}
		options.Continue, err = d.decode(body)
		body.Close()
		if err != nil {
			return fmt.Errorf("the server's answer cannot be decoded: %w", err)
		}
		if options.Continue == "" {
			return nil
		}
	}
}

// listDecoder decodes lists as they arrive, and of each object only the fields that matter.
type listDecoder struct {
	isPods     bool
	visit      visitor
	ofMetadata wire.Fields
	ofPod      wire.Fields
	kept       []byte // the kept fields of an object; reused for the next one
	// isWanted decides by namespace and kinds of owners whether to visit an object; nil for all.
	isWanted func(namespace string, owners iter.Seq[string]) bool
}

// isWanted reports whether an object is in the namespaces to which the reading is confined, or has an owner
// that may be cluster-scoped.
func (r *reader) isWanted(namespace string, owners iter.Seq[string]) bool {
	return slices.Contains(r.result.Within, namespace) || r.mayBeOwnedFromBeyond(owners)
}

// isWantedElsewhere reports whether an object is in another namespace and has such an owner.
func (r *reader) isWantedElsewhere(namespace string, owners iter.Seq[string]) bool {
	return !slices.Contains(r.result.Within, namespace) && r.mayBeOwnedFromBeyond(owners)
}

// mayBeOwnedFromBeyond reports whether one of the kinds of owners is cluster-scoped.
func (r *reader) mayBeOwnedFromBeyond(owners iter.Seq[string]) bool {
	for kind := range owners {
		if slices.ContainsFunc(r.result.Resources, func(s *inventory.Resource) bool { return !s.Namespaced && s.Kind == kind }) {
			return true
		}
	}
	return false
}

// accept returns the requested media types.
func (d *listDecoder) accept() string {
	if d.isPods {
		return protobufType + "," + jsonType
	}
	return protobufType + asMetadata + "," + jsonType + asMetadata + "," + jsonType
}

// decode visits the objects of a list, or of a page of it, and returns where the next page begins.
func (d *listDecoder) decode(body io.Reader) (next string, err error) {
	in := bufio.NewReaderSize(body, 64<<10)
	if prefix, err := in.Peek(len(wire.Prefix)); err != nil || string(prefix) != wire.Prefix {
		return d.decodeJSON(in)
	}
	err = wire.EachOfList(in, func(number int32, value []byte) error {
		switch number {
		case metadataOfList:
			return wire.Each(value, func(number int32, value []byte, _ uint64) error {
				if number == continueOfList {
					next = string(value)
				}
				return nil
			})
		case itemsOfList:
			return d.object(value)
		}
		return nil
	})
	return next, err
}

// decodeJSON does the same for servers without protobuf: for custom resources, and aggregated servers.
func (d *listDecoder) decodeJSON(body io.Reader) (next string, err error) {
	if d.isPods {
		var list corev1.PodList
		if err := json.NewDecoder(body).Decode(&list); err != nil {
			return "", err
		}
		for n := range list.Items {
			if m := &list.Items[n].ObjectMeta; d.isWanted == nil || d.isWanted(m.Namespace, kindsOf(m.OwnerReferences)) {
				d.visit(m, inventory.NewPod(&list.Items[n]))
			}
		}
		return list.Continue, nil
	}
	var list metav1.PartialObjectMetadataList
	if err := json.NewDecoder(body).Decode(&list); err != nil {
		return "", err
	}
	for n := range list.Items {
		if m := &list.Items[n].ObjectMeta; d.isWanted == nil || d.isWanted(m.Namespace, kindsOf(m.OwnerReferences)) {
			d.visit(m, nil)
		}
	}
	return list.Continue, nil
}

// object visits one object.
func (d *listDecoder) object(message []byte) error {
	metadata, err := wire.Field(message, metadataOfObject)
	if err != nil {
		return err
	}
	if wanted, err := d.wants(metadata); err != nil || !wanted {
		return err
	}
	var m metav1.ObjectMeta
	if d.kept, err = d.ofMetadata.Keep(d.kept[:0], metadata); err != nil {
		return err
	}
	if err := m.Unmarshal(d.kept); err != nil {
		return err
	}
	if m.ManagedFields, err = managedFieldsThatTell(&m, metadata); err != nil || !d.isPods {
		if err == nil {
			d.visit(&m, nil)
		}
		return err
	}
	if d.kept, err = d.ofPod.Keep(d.kept[:0], message); err != nil {
		return err
	}
	var pod corev1.Pod
	if err := pod.Unmarshal(d.kept); err != nil {
		return err
	}
	d.visit(&m, inventory.NewPod(&pod))
	return nil
}

// wants reports whether an object is visited, by its encoded metadata.
func (d *listDecoder) wants(metadata []byte) (bool, error) {
	if d.isWanted == nil {
		return true, nil
	}
	var namespace string
	var kinds []string
	err := wire.Each(metadata, func(number int32, value []byte, _ uint64) error {
		switch number {
		case namespaceOfMeta:
			namespace = string(value)
		case ownersOfMeta:
			kind, err := wire.Field(value, kindOfOwner)
			if err != nil {
				return err
			}
			kinds = append(kinds, string(kind))
		}
		return nil
	})
	return err == nil && d.isWanted(namespace, slices.Values(kinds)), err
}

// kindsOf returns the kinds of owners.
func kindsOf(owners []metav1.OwnerReference) iter.Seq[string] {
	return func(yield func(string) bool) {
		for n := range owners {
			if !yield(owners[n].Kind) {
				return
			}
		}
	}
}

// managedFieldsThatTell returns the entries of encoded metadata for finalizers, and for owner references that
// block. Nearly all objects of a cluster have such owners, so it decodes only the manager of an entry without
// finalizers.
func managedFieldsThatTell(m *metav1.ObjectMeta, metadata []byte) (entries []metav1.ManagedFieldsEntry, err error) {
	hasFinalizers := len(m.Finalizers) > 0
	blocks := slices.ContainsFunc(m.OwnerReferences, func(o metav1.OwnerReference) bool { return ptr.Deref(o.BlockOwnerDeletion, false) })
	if !hasFinalizers && !blocks {
		return nil, nil
	}
	err = wire.Each(metadata, func(number int32, value []byte, _ uint64) error {
		if number != managedFieldsOfMeta {
			return nil
		}
		var e metav1.ManagedFieldsEntry
		switch {
		case hasFinalizers && bytes.Contains(value, []byte(fieldFinalizers)):
			if err := e.Unmarshal(value); err != nil {
				return err
			}
		case blocks && bytes.Contains(value, []byte(fieldOwners)):
			manager, err := wire.Field(value, managerOfEntry)
			if err != nil {
				return err
			}
			e.Manager, e.FieldsV1 = string(manager), metav1.NewFieldsV1(fieldOwners)
		default:
			return nil
		}
		entries = append(entries, e)
		return nil
	})
	return entries, err
}
