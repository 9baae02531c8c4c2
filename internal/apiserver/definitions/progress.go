package definitions

import (
	"slices"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

// The reasons of the condition Terminating, as apiextensions-apiserver writes them.
const (
	instanceDeletionFailed     = "InstanceDeletionFailed"
	instanceDeletionInProgress = "InstanceDeletionInProgress"
)

// progress is the progress of the deletion of a definition's instances.
type progress uint8

const (
	over    progress = iota // the deletion has not begun, or the server accepts it
	trying                  // the server tries it again
	refused                 // the server could not list or delete the instances
)

// progressOf returns the progress of a deletion, and who refuses it.
func progressOf(d *apiextensionsv1.CustomResourceDefinition) (progress, refusal.Refusal) {
	if d.DeletionTimestamp == nil || !slices.Contains(d.Finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
		return over, refusal.Refusal{}
	}
	c := apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating)
	switch {
	case c == nil || c.Status != apiextensionsv1.ConditionTrue:
		return over, refusal.Refusal{}
	case c.Reason == instanceDeletionInProgress:
		return trying, refusal.Refusal{}
	case c.Reason != instanceDeletionFailed:
		return over, refusal.Refusal{}
	}
	if r, ok := refusal.In(c.Message); ok {
		return refused, r
	}
	return refused, refusal.Refusal{By: refusal.ByFailure, Message: ownership.Excerpt(c.Message, refusal.MaxMessage)}
}

// retryAfter is the time after which the server is made to try again: its own back-off grows to several minutes.
const retryAfter = time.Minute

// retried returns a copy of a definition whose status makes the server try again. The server ignores changes of the
// condition alone, and notices that the fields have another manager and time.
func retried(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	next := d.DeepCopy()
	apihelpers.SetCRDCondition(next, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Terminating, Status: apiextensionsv1.ConditionTrue, Reason: instanceDeletionInProgress,
		Message: "the deletion of the instances is tried again",
	})
	return next
}

func objectOf(d *apiextensionsv1.CustomResourceDefinition) ownership.Object {
	return ownership.Object{
		Kind: ownership.Kind{Group: apiextensionsv1.GroupName, Kind: "CustomResourceDefinition"}, Name: d.Name, UID: ownership.UID(d.UID),
		ResourceVersion: d.ResourceVersion, Phase: ownership.Terminating, Finalizers: d.Finalizers,
	}
}

// Mapping maps the kind of definitions to its resource.
type Mapping struct{}

// Mapping implements client.Mapping.
func (Mapping) Mapping(ownership.Kind) (gvr schema.GroupVersionResource, namespaced, ok bool) {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"), false, true
}
