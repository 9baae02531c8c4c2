package crowd

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// get answers with one object.
func (q request) get(w http.ResponseWriter, n Number) error {
	now, exists := q.store.current(n)
	if !exists {
		return q.absent()
	}
	c, i := q.store.at(n)
	meta := (&encoder{population: q.store.Population}).meta(c, i, now.revision)
	if now.patched != nil {
		meta = encodedMeta(now.patched)
	}
	if wantsProtobuf(q.r) {
		v := envelopeOf(q.kind.APIVersion(), q.kind.Kind)
		if isPartial(q.r) {
			v = envelopeOf("meta.k8s.io/v1", "PartialObjectMetadata")
		}
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_, _ = w.Write(v.appendObject(nil, meta)) // a client that is gone needs no answer
		return nil
	}
	text, err := q.json(meta)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(text) // as above
	return nil
}

// delete deletes an object at once: the propagation policy does not matter, as nothing has a finalizer of it.
func (q request) delete(w http.ResponseWriter, n Number) error {
	var options metav1.DeleteOptions
	if err := decode(q.r, &options); err != nil {
		return err
	}
	var when preconditions
	if p := options.Preconditions; p != nil {
		if p.UID != nil {
			when.uid = *p.UID
		}
		if p.ResourceVersion != nil {
			when.version = *p.ResourceVersion
		}
	}
	if err := q.errorOf(q.store.Delete(n, when)); err != nil {
		return err
	}
	writeObject(w, q.r, http.StatusOK, &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: q.target.name, Group: q.kind.Group, Kind: q.kind.Resource, UID: UID(n)},
	})
	return nil
}

func (q request) errorOf(o outcome) error {
	switch o {
	case absent:
		return q.absent()
	case conflict:
		return apierrors.NewConflict(q.kind.GroupResource(), q.target.name, errors.New("the preconditions do not hold"))
	case done:
	}
	return nil
}

// merge is a JSON merge patch of metadata.
type merge struct {
	Metadata struct {
		UID             types.UID       `json:"uid"`
		ResourceVersion string          `json:"resourceVersion"`
		OwnerReferences json.RawMessage `json:"ownerReferences"`
		Finalizers      json.RawMessage `json:"finalizers"`
	} `json:"metadata"`
}

// patch replaces owner references and finalizers.
func (q request) patch(w http.ResponseWriter, n Number) error {
	if kind, _, err := mime.ParseMediaType(q.r.Header.Get("Content-Type")); err != nil || kind != string(types.MergePatchType) {
		return apierrors.NewGenericServerResponse(http.StatusUnsupportedMediaType, "patch", q.kind.GroupResource(), q.target.name,
			"the crowd applies JSON merge patches only", 0, false)
	}
	body, err := readBody(q.r)
	if err != nil {
		return err
	}
	var change merge
	if err := json.Unmarshal(body, &change); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("decode the patch: %v", err))
	}
	var owners []metav1.OwnerReference
	var finalizers []string
	if err := errors.Join(unmarshal(change.Metadata.OwnerReferences, &owners), unmarshal(change.Metadata.Finalizers, &finalizers)); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("decode the patch: %v", err))
	}
	when := preconditions{change.Metadata.UID, change.Metadata.ResourceVersion}
	err = q.errorOf(q.store.Patch(n, when, func(meta *metav1.ObjectMeta) {
		if change.Metadata.OwnerReferences != nil {
			meta.OwnerReferences = owners
		}
		if change.Metadata.Finalizers != nil {
			meta.Finalizers = finalizers
		}
	}))
	if err != nil {
		return err
	}
	return q.get(w, n)
}

// unmarshal decodes a value if the patch has it; null is an empty one.
func unmarshal(text json.RawMessage, into any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
