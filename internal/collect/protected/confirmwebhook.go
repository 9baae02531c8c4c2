package protected

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// ConfirmPath is where the webhook for confirmations is served.
const ConfirmPath = "/confirm"

// ConfirmWebhook refuses unconfirmed large deletions on servers other than ours (R32), and confirmations by users who may
// not confirm. Its graph is as old as its watches: what was created a moment ago is not counted.
//
//	API server ── AdmissionReview: DELETE, CREATE of an eviction, UPDATE with another annotation coppice.dev/confirmed ──▶ ConfirmWebhook
//	           ◀── allowed, or 403 with the causes of a refusal ──────────────────────────────────────────────────────
//
// The review of an object of a collection does not tell which others are selected. All objects of the resource in the
// namespace count as the collection.
//
// It trusts the user in the review, so only API servers may reach it. It is safe for concurrent use.
type ConfirmWebhook struct {
	*Confirming

	// May returns the rights of a user.
	May func(authenticationv1.UserInfo) May
	// Objects reads the pods of evictions.
	Objects metadata.Interface
}

// NewConfirmHandler returns the ConfirmWebhook for the server of config, at ConfirmPath, and a function that observes all
// objects meanwhile. Permits are kept in ConfigMaps in a namespace.
func NewConfirmHandler(ctx context.Context, config *rest.Config, limits protection.Limits, namespace string, log *slog.Logger) (http.Handler, func(context.Context) error, error) {
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client: %w", err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for metadata: %w", err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for discovery: %w", err)
	}
	self, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("ask the server who the collector is: %w", err)
	}
	closures := NewClosures(discover, objects, log)
	webhook := ConfirmWebhook{
		Confirming: NewConfirming(Confirming{
			Limits: limits, Closures: closures, Now: clock.RealClock{}.Now, Collector: self.Status.UserInfo.Username,
			CatchUp: func(ctx context.Context) error { return closures.CatchUp(ctx, nil) },
			Permits: permitsInConfigMaps{client.CoreV1().ConfigMaps(namespace), clock.RealClock{}},
		}),
		May:     Webhook{Reviews: client.AuthorizationV1().SubjectAccessReviews()}.rightsOf,
		Objects: objects,
	}
	run := func(ctx context.Context) error {
		closures.Run(ctx)
		return nil
	}
	return webhook, run, nil
}

// ServeHTTP implements http.Handler.
func (h ConfirmWebhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	serveReview(w, r, func(ctx context.Context, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return answerOf(r, h.decide(ctx, r))
	})
}

// answerOf returns the answer to a request that is refused with an error, if it is not nil.
func answerOf(r *admissionv1.AdmissionRequest, err error) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: r.UID, Allowed: err == nil}
	if err == nil {
		return response
	}
	refusal, isStatus := errors.AsType[*apierrors.StatusError](err)
	if !isStatus {
		refusal = apierrors.NewForbidden(resourceOf(r), r.Name, err)
	}
	status := refusal.Status()
	response.Result = &status
	return response
}

func (h ConfirmWebhook) decide(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	switch {
	case r.Operation == admissionv1.Delete && r.SubResource == "":
		d, err := deletingOf(r)
		if err != nil || d.Object != nil && d.Object.GetDeletionTimestamp() != nil {
			return err
		}
		return h.Check(ctx, r.UserInfo.Username, d)
	case isEviction(r):
		pod, err := evicted(ctx, h.Objects, r)
		if err != nil || pod.DeletionTimestamp != nil {
			if refusal.IsGone(err, r.Name) {
				return nil // the server reports that itself
			}
			return err
		}
		return h.Check(ctx, r.UserInfo.Username, Deleting{Resource: resourceOf(r), Object: pod, Namespace: r.Namespace, DryRun: isDryRun(r)})
	case r.Operation == admissionv1.Update:
		return h.mayConfirm(ctx, r)
	}
	return nil
}

func isDryRun(r *admissionv1.AdmissionRequest) bool { return r.DryRun != nil && *r.DryRun }

// isEviction reports whether a request evicts a pod. A server asks no webhook about the deletion that follows.
func isEviction(r *admissionv1.AdmissionRequest) bool {
	return r.SubResource == "eviction" && r.Resource.Resource == "pods" && r.Operation == admissionv1.Create
}

// evicted returns the metadata of the pod that a request evicts.
func evicted(ctx context.Context, objects metadata.Interface, r *admissionv1.AdmissionRequest) (*metav1.PartialObjectMetadata, error) {
	return objects.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(r.Namespace).Get(ctx, r.Name, metav1.GetOptions{})
}

// deletingOf returns the deletion in a review.
func deletingOf(r *admissionv1.AdmissionRequest) (Deleting, error) {
	d := Deleting{Resource: resourceOf(r), Namespace: r.Namespace, DryRun: isDryRun(r)}
	if r.Name == "" {
		return d, nil // a collection
	}
	object, err := decode(r.OldObject.Raw)
	if err != nil {
		return d, err
	}
	options := metav1.DeleteOptions{}
	if len(r.Options.Raw) > 0 {
		if err := json.Unmarshal(r.Options.Raw, &options); err != nil {
			return d, fmt.Errorf("decode the options: %w", err)
		}
	}
	d.Object, d.Orphans = object, orphans(object, &options)
	return d, nil
}

// orphans reports whether the dependents of an object stay, by the options (R17), or else by its finalizer.
func orphans(m metav1.Object, o *metav1.DeleteOptions) bool {
	switch {
	case o.PropagationPolicy != nil:
		return *o.PropagationPolicy == metav1.DeletePropagationOrphan
	case o.OrphanDependents != nil:
		return *o.OrphanDependents
	}
	return slices.Contains(m.GetFinalizers(), metav1.FinalizerOrphanDependents)
}

// mayConfirm returns an error if a write confirms a deletion, and the user may not.
func (h ConfirmWebhook) mayConfirm(ctx context.Context, r *admissionv1.AdmissionRequest) error {
	before, err := decode(r.OldObject.Raw)
	if err != nil {
		return err
	}
	after, err := decode(r.Object.Raw)
	if err != nil {
		return err
	}
	confirmation, isNew := protection.NewConfirmation(before, after)
	if !isNew {
		return nil
	}
	if err := confirmation.CheckTime(h.Now()); err != nil {
		return err
	}
	err = h.May(r.UserInfo)(ctx, authorizationv1.ResourceAttributes{
		Verb: protection.ConfirmVerb, Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Resource,
		Namespace: after.Namespace, Name: after.Name,
	})
	if err != nil {
		return fmt.Errorf("%w confirm deletions of %s: that is a right of its own in RBAC", err, resourceOf(r))
	}
	return nil
}
