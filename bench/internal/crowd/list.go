package crowd

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// chunk is the number of bytes that are encoded before they are sent.
const chunk = 64 << 10

// selection is the part of a kind that a request asks for.
type selection struct {
	namespace string
	name      string // or empty
}

func (q request) selection() (selection, error) {
	query := q.r.URL.Query()
	where := selection{namespace: q.target.namespace}
	if query.Get("labelSelector") != "" {
		return where, apierrors.NewBadRequest("the crowd does not select by labels")
	}
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return where, apierrors.NewBadRequest(err.Error())
	}
	if selector.Empty() {
		return where, nil
	}
	name, isName := selector.RequiresExactMatch("metadata.name")
	if !isName || len(selector.Requirements()) != 1 {
		return where, apierrors.NewBadRequest("the crowd selects by metadata.name only")
	}
	where.name = name
	return where, nil
}

// walk encodes the selected objects that existed at a revision, in order, beginning with the one at a position. visit gets
// the position of an object, counted among all of its kind, and its metadata, which are valid until it returns.
type walk struct {
	store    *Store
	kind     *Kind
	where    selection
	revision uint64
	patched  map[Number]*metav1.ObjectMeta // as they were when the walk began
	encoder  encoder
}

func (q request) walk(where selection, revision uint64) *walk {
	q.store.mu.Lock()
	defer q.store.mu.Unlock()
	return &walk{
		store: q.store, kind: q.kind, where: where, revision: revision, patched: maps.Clone(q.store.patched),
		encoder: encoder{population: q.store.Population},
	}
}

func (k *walk) from(start int, visit func(position int, meta []byte) (more bool)) {
	if k.where.name != "" {
		k.one(start, visit)
		return
	}
	before := 0
	for _, c := range k.kind.cohorts {
		from, to := k.store.within(c, k.where.namespace)
		for i := max(from, start-before); i < to; i++ {
			meta, exists := k.encodeAt(c, i)
			if exists && !visit(before+i, meta) {
				return
			}
		}
		before += c.count
	}
}

// one visits the object of the selected name.
func (k *walk) one(start int, visit func(position int, meta []byte) (more bool)) {
	n, ok := k.store.named(k.kind, k.where.name)
	if !ok || start > 0 {
		return
	}
	c, i := k.store.at(n)
	if k.where.namespace != "" && k.store.namespaceName(c, i) != k.where.namespace {
		return
	}
	if meta, exists := k.encodeAt(c, i); exists {
		visit(0, meta)
	}
}

func (k *walk) encodeAt(c *cohort, i int) ([]byte, bool) {
	n := c.first + Number(i)
	now, exists := k.store.asOf(n, k.revision)
	if !exists {
		return nil, false
	}
	if meta := k.patched[n]; meta != nil {
		return encodedMeta(meta), true
	}
	return k.encoder.meta(c, i, now.revision), true
}

// page is the part of a list that one answer has.
type page struct {
	revision uint64
	start    int
	limit    int // 0 for all
	next     string
	size     int // of the encoded items
}

// list answers a list, in pages if the client asks for pages.
func (q request) list(w http.ResponseWriter) error {
	where, err := q.selection()
	if err != nil {
		return err
	}
	p, err := q.page()
	if err != nil {
		return err
	}
	objects := q.walk(where, p.revision)
	p.measure(objects)
	if !wantsProtobuf(q.r) {
		return q.listJSON(w, objects, p)
	}
	meta := metav1.ListMeta{ResourceVersion: formatRevision(p.revision), Continue: p.next}
	encoded, err := meta.Marshal()
	if err != nil {
		return fmt.Errorf("encode the list: %w", err)
	}
	v := envelopeOf("meta.k8s.io/v1", "PartialObjectMetadataList")
	if !isPartial(q.r) {
		v = envelopeOf(q.kind.APIVersion(), q.kind.Kind+"List")
	}
	w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
	to := appendHeader(append([]byte{}, v.before...), unknownRaw, sizeOf(len(encoded))+p.size)
	to = appendString(to, listMeta, encoded)
	p.each(objects, func(meta []byte) (more bool) {
		if to = appendItem(to, meta); len(to) < chunk {
			return true
		}
		_, failure := w.Write(to)
		to = to[:0]
		return failure == nil
	})
	_, _ = w.Write(append(to, v.after...)) // a client that is gone needs no answer
	return nil
}

func (q request) page() (page, error) {
	query := q.r.URL.Query()
	p := page{revision: q.store.Revision()}
	if text := query.Get("limit"); text != "" {
		limit, err := strconv.Atoi(text)
		if err != nil || limit < 0 {
			return p, apierrors.NewBadRequest(fmt.Sprintf("limit %q is not a number", text))
		}
		p.limit = limit
	}
	if token := query.Get("continue"); token != "" {
		if _, err := fmt.Sscanf(token, "%d-%d", &p.revision, &p.start); err != nil {
			return p, apierrors.NewBadRequest(fmt.Sprintf("continue %q is not from a list", token))
		}
	}
	return p, nil
}

// measure sets the size of the items, and where the next page begins.
func (p *page) measure(objects *walk) {
	count := 0
	objects.from(p.start, func(position int, meta []byte) bool {
		if p.limit > 0 && count == p.limit {
			p.next = fmt.Sprintf("%d-%d", p.revision, position)
			return false
		}
		count++
		p.size += itemSize(len(meta))
		return true
	})
}

// each visits the items of the page.
func (p *page) each(objects *walk, visit func(meta []byte) bool) {
	count := 0
	objects.from(p.start, func(_ int, meta []byte) bool {
		count++
		return (p.limit == 0 || count <= p.limit) && visit(meta)
	})
}

// listJSON answers a list in JSON, one object at a time. It is for people and tests.
func (q request) listJSON(w http.ResponseWriter, objects *walk, p page) error {
	w.Header().Set("Content-Type", jsonType)
	kind, apiVersion := "PartialObjectMetadataList", "meta.k8s.io/v1"
	if !isPartial(q.r) {
		kind, apiVersion = q.kind.Kind+"List", q.kind.APIVersion()
	}
	head, err := json.Marshal(metav1.ListMeta{ResourceVersion: formatRevision(p.revision), Continue: p.next})
	if err != nil {
		return fmt.Errorf("encode the list: %w", err)
	}
	fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind, apiVersion, head)
	separator := ""
	p.each(objects, func(meta []byte) bool {
		var text []byte
		if text, err = q.json(meta); err == nil {
			_, err = io.WriteString(w, separator+strings.TrimSpace(string(text)))
		}
		separator = ","
		return err == nil
	})
	_, _ = io.WriteString(w, "]}") // a client that is gone needs no answer
	return nil
}

// json returns an object as JSON.
func (q request) json(meta []byte) ([]byte, error) {
	object := metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: q.kind.APIVersion(), Kind: q.kind.Kind}}
	if isPartial(q.r) {
		object.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	}
	if err := object.ObjectMeta.Unmarshal(meta); err != nil {
		return nil, fmt.Errorf("decode %s: %w", q.kind.Kind, err)
	}
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", q.kind.Kind, err)
	}
	return text, nil
}
