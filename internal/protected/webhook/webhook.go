// Package webhook is the validating webhook that keeps protected objects on servers other than ours (R28).
// It decides as our own server does, by package protection, and can look up what a policy cannot: what an
// object outlives, and the pod of an eviction.
//
//	API server ── AdmissionReview: DELETE of what is labelled, CREATE of an eviction ──▶ Handler
//	           ◀── allowed, or 403 with the cause of a refusal ─────────────────────────
//
// Everything fails closed: what cannot be decoded or looked up is refused.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/protected/others"
	"github.com/coppice-dev/coppice/internal/protection"
)

// Path is where the webhook is served.
const Path = "/protect"

// maxReview bounds a review, in bytes: an object of the largest size, with room for what is around it.
const maxReview = 8 << 20

// Handler answers AdmissionReviews. It is safe for concurrent use.
type Handler struct {
	// Others looks up what objects outlive, and the pods of evictions.
	Others others.Lookup
	// Collector is the user of a collector, besides those that are known to be one; empty for none.
	Collector string
}

// ServeHTTP implements http.Handler.
func (h Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "this is a webhook: POST an AdmissionReview", http.StatusMethodNotAllowed)
		return
	}
	review, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	response := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
	if err := h.decide(r.Context(), review.Request); err != nil {
		status := err.Status()
		response.Allowed, response.Result = false, &status
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review) // of a type that can be encoded; the server that has gone learns nothing
}

func read(r *http.Request) (*admissionv1.AdmissionReview, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxReview))
	if err != nil {
		return nil, fmt.Errorf("read the AdmissionReview: %w", err)
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil {
		return nil, fmt.Errorf("decode the AdmissionReview: %w", err)
	}
	if review.GroupVersionKind() != admissionv1.SchemeGroupVersion.WithKind("AdmissionReview") || review.Request == nil {
		return nil, errors.New("this is no AdmissionReview of admission.k8s.io/v1 with a request")
	}
	return review, nil
}

// decide returns the refusal of a request, or nil.
func (h Handler) decide(ctx context.Context, r *admissionv1.AdmissionRequest) *apierrors.StatusError {
	resource := schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
	object, err := h.object(ctx, r)
	switch {
	case apierrors.IsNotFound(err):
		return nil // the pod of an eviction, of which the server says so itself
	case err != nil:
		return apierrors.NewForbidden(resource, r.Name, fmt.Errorf("whether it is protected by a label %s could not be told: %w", protection.Label, err))
	case object == nil || object.DeletionTimestamp != nil:
		return nil
	}
	p, protected := protection.Of(object.Labels, object.Annotations)
	if !protected {
		return nil
	}
	by := protection.Request
	if who := r.UserInfo.Username; protection.IsCascade(who) || who != "" && who == h.Collector {
		by = protection.Cascade
	}
	var left []protection.Left
	if p.NeedsLookup() {
		left = h.Others.Left(ctx, object.Namespace, p.Others)
	}
	if refusal := p.Decide(by, left); refusal != nil {
		return refusal.Error(resource, object.Namespace, object.Name)
	}
	return nil
}

// object returns the metadata of what a request would delete; nil if it would delete nothing.
func (h Handler) object(ctx context.Context, r *admissionv1.AdmissionRequest) (*metav1.PartialObjectMetadata, error) {
	if r.SubResource == "eviction" && r.Resource.Resource == "pods" && r.Operation == admissionv1.Create {
		return h.Others.Metadata.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
	}
	if r.Operation != admissionv1.Delete || r.SubResource != "" {
		return nil, nil //nolint:nilnil // nothing is deleted
	}
	object := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(r.OldObject.Raw, object); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	return object, nil
}
