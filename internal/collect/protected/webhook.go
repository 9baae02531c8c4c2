package protected

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/inuse"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// WebhookPath is where the webhook is served.
const WebhookPath = "/protect"

// maxReview bounds a review, in bytes: the largest object, with room for the review around it.
const maxReview = 8 << 20

// Webhook keeps protected objects on servers other than ours (R28). It
// decides as our own server does, with package protection, and can look up objects that a policy cannot: the ones
// that an object outlives, and the pod of an eviction.
//
//	API server ── AdmissionReview: DELETE of a labelled object, CREATE of an eviction,
//	                               CREATE or UPDATE with new entries of coppice.dev/outlives ──▶ Webhook
//	           ◀── allowed, or 403 with the cause of a refusal ─────────────────────────
//
// It does not look up entries that it has not checked, because they are older than the webhook
// (protection.Checker).
//
// Everything fails closed: a request is refused if it cannot be decoded or its objects cannot be looked up.
//
// The answers depend on the rights of the user in the review, which it requests from the API server. It
// trusts the review, so only API servers may reach it: serve it to authenticated callers.
//
// It is safe for concurrent use.
type Webhook struct {
	// Outlived looks up the objects because of which others stay, and the pods of evictions.
	Outlived Lookup
	// Reviews asks the API server which objects a user may read.
	Reviews authorizationclient.SubjectAccessReviewInterface
	// Checker returns the webhook's own configuration.
	Checker func(context.Context) protection.Checker
	// Now is the clock.
	Now func() time.Time
	// Collector is the user name of a collector, besides the known ones; empty for none.
	Collector string
	// Default is the mode of objects without a label; empty for none. The webhook is served at a path for each: the
	// configuration of the API server says which resources have which default.
	Default protection.Mode
}

// ServeHTTP implements http.Handler.
func (h Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) { serveReview(w, r, h.answer) }

// serveReview serves an AdmissionReview.
func serveReview(w http.ResponseWriter, r *http.Request, answer func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) {
	if r.Method != http.MethodPost {
		http.Error(w, "this is a webhook: POST an AdmissionReview", http.StatusMethodNotAllowed)
		return
	}
	review, err := read(r)
	if err != nil {
		http.Error(w, escape.Line(err.Error()), http.StatusBadRequest)
		return
	}
	review.Response = answer(r.Context(), review.Request)
	review.Request = nil
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

func (h Webhook) answer(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: true}
	var refusal *apierrors.StatusError
	if r.SubResource != "eviction" && (r.Operation == admissionv1.Create || r.Operation == admissionv1.Update) {
		warning, err := h.write(ctx, r)
		if warning != "" {
			response.Warnings = []string{warning}
		}
		if err != nil {
			refusal = apierrors.NewForbidden(resourceOf(r), r.Name, err)
		}
	} else {
		refusal = h.decide(ctx, r)
	}
	if refusal != nil {
		status := refusal.Status()
		response.Allowed, response.Result = false, &status
	}
	return response
}

func resourceOf(r *admissionv1.AdmissionRequest) schema.GroupResource {
	return schema.GroupResource{Group: r.Resource.Group, Resource: r.Resource.Resource}
}

// kindOf returns the kind of the object that a request would delete.
func kindOf(r *admissionv1.AdmissionRequest) schema.GroupKind {
	if r.SubResource == "eviction" {
		return schema.GroupKind{Kind: "Pod"}
	}
	return schema.GroupKind{Group: r.Kind.Group, Kind: r.Kind.Kind}
}

// decide returns the refusal of a deletion, or nil.
func (h Webhook) decide(ctx context.Context, r *admissionv1.AdmissionRequest) *apierrors.StatusError {
	resource := resourceOf(r)
	object, err := h.object(ctx, r)
	switch {
	case refusal.IsGone(err, r.Name):
		return nil // the pod of an eviction; the server reports that itself
	case err != nil:
		return apierrors.NewForbidden(resource, r.Name, fmt.Errorf("whether it is protected by a label %s could not be told: %w", protection.Label, err))
	case object == nil || object.DeletionTimestamp != nil:
		return nil
	}
	p, protected := h.protection(resource, object)
	if !protected {
		return nil
	}
	by := protection.Request
	if who := r.UserInfo.Username; protection.IsCascade(who) || who != "" && who == h.Collector {
		by = protection.Cascade
	}
	if p.NeedsLookup() {
		p = p.CheckedBy(h.Checker(ctx), object)
	}
	var remaining []protection.Remaining
	if p.NeedsLookup() {
		of := inuse.Object{Kind: kindOf(r), Namespace: object.Namespace, Name: object.Name}
		remaining = h.Outlived.Remaining(forUser(ctx, r.UserInfo.Username), h.rightsOf(r.UserInfo), of, p)
	}
	if refused := p.Answer(by, remaining); refused != nil {
		return refused.Error(resource, object.Namespace, object.Name)
	}
	return nil
}

// protection returns how an object is protected; false if it is not.
func (h Webhook) protection(resource schema.GroupResource, object metav1.Object) (protection.Protection, bool) {
	if h.Default == "" {
		return protection.Of(object)
	}
	return protection.Defaults{resource: h.Default}.Of(resource, object)
}

// object returns the metadata of the object that a request would delete; nil if it would delete nothing.
func (h Webhook) object(ctx context.Context, r *admissionv1.AdmissionRequest) (*metav1.PartialObjectMetadata, error) {
	if isEviction(r) {
		return evicted(ctx, h.Outlived.Metadata, r)
	}
	if r.Operation != admissionv1.Delete || r.SubResource != "" {
		return nil, nil // no deletion
	}
	return decode(r.OldObject.Raw)
}

func decode(object []byte) (*metav1.PartialObjectMetadata, error) {
	m := &metav1.PartialObjectMetadata{}
	if err := json.Unmarshal(object, m); err != nil {
		return nil, fmt.Errorf("decode the object: %w", err)
	}
	return m, nil
}

// write returns an error if a write may not add its new entries, or a warning about the entries of the object.
func (h Webhook) write(ctx context.Context, r *admissionv1.AdmissionRequest) (warning string, err error) {
	after, err := decode(r.Object.Raw)
	if err != nil {
		return "", err
	}
	var before metav1.Object
	if len(r.OldObject.Raw) > 0 && string(r.OldObject.Raw) != "null" {
		if before, err = decode(r.OldObject.Raw); err != nil {
			return "", err
		}
	}
	if err := h.checkAdded(ctx, r, after.Namespace, protection.Added(before, after)); err != nil {
		return "", err
	}
	p, protected := protection.Of(after)
	if !protected || !p.NeedsLookup() {
		return "", nil
	}
	checker := h.Checker(ctx)
	return checker.Warning(p.CheckedBy(checker, after), h.Now()), nil
}

// checkAdded returns an error if a write may not add entries.
func (h Webhook) checkAdded(ctx context.Context, r *admissionv1.AdmissionRequest, namespace string, added []protection.Outlived) error {
	if len(added) == 0 {
		return nil
	}
	if protection.IsCopier(r.UserInfo.Username) {
		return fmt.Errorf("the annotation %s comes from a template, and the rights of the template's author are unknown: set it on the object itself",
			protection.Annotation)
	}
	return h.Outlived.Check(ctx, h.rightsOf(r.UserInfo), namespace, added)
}

// rightsOf returns the read rights of a user. A node may read nothing here, as on our own server: its real rights
// depend on its pods, and a review of its role alone would grant more.
func (h Webhook) rightsOf(who authenticationv1.UserInfo) May {
	if isNode := strings.HasPrefix(who.Username, "system:node:") || slices.Contains(who.Groups, "system:nodes"); isNode {
		return func(context.Context, authorizationv1.ResourceAttributes) error {
			return fmt.Errorf("user %q is a node, and may not", who.Username)
		}
	}
	extra := make(map[string]authorizationv1.ExtraValue, len(who.Extra))
	for key, value := range who.Extra {
		extra[key] = authorizationv1.ExtraValue(value)
	}
	return func(ctx context.Context, right authorizationv1.ResourceAttributes) error {
		review, err := h.Reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			ResourceAttributes: &right, User: who.Username, Groups: who.Groups, UID: who.UID, Extra: extra,
		}}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask whether user %q may: %w", who.Username, err)
		}
		if !review.Status.Allowed {
			return fmt.Errorf("user %q may not", who.Username)
		}
		return nil
	}
}
