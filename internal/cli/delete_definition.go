package cli

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// isGoneWithDefinition reports whether an object has gone with the CustomResourceDefinition of its kind, which the same deletion
// removes. failed is the error of reading the object. A server that does not serve a kind any more answers 404 about the path, and
// so does one that does not serve it for a moment: the definition shows the difference. A terminating one does not, because the
// server serves its instances until they are gone. Kinds without a definition in the preview may be of another API server, which
// keeps its objects.
func (p prediction) isGoneWithDefinition(ctx context.Context, client metadata.Interface, o *inventory.Object, failed error) bool {
	if refusal.IsGone(failed, o.Name) || !refusal.ServerAnswers(failed, apierrors.IsNotFound) {
		return false // no 404, or one that needs no other evidence
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	name := o.Resource.GroupResource().String()
	at := slices.IndexFunc(p.report.Objects, func(seen preview.ObjectReport) bool {
		return seen.Resource == definitions.GroupResource().String() && seen.Name == name
	})
	if at < 0 {
		return false
	}
	now, err := client.Resource(definitions).Get(ctx, name, metav1.GetOptions{})
	return refusal.IsGone(err, name) || err == nil && string(now.UID) != p.report.Objects[at].UID
}
