package client

import (
	"context"
	"errors"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// The collector's knowledge of an object is bounded (ownership.Bounded): digests replace texts that are too long. A
// write that needs the full texts reads the object first. If the object is not the observed one, at the same
// resourceVersion, the write is refused as the server would refuse it (R12).

// unchanged reads the metadata of an object as the server has them.
func (c *Client) unchanged(ctx context.Context, observed ownership.Object) (*metav1.PartialObjectMetadata, error) {
	ref := RefOf(observed)
	objects, err := c.objects(ref)
	if err != nil {
		return nil, err
	}
	meta, err := objects.Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return nil, aboutObject(ref, err)
	}
	now := feed.Observation(ref.Kind, meta)
	if now.UID != observed.UID || now.ResourceVersion != observed.ResourceVersion {
		return nil, c.changed(ref)
	}
	return meta, nil
}

// changed returns the error of a write to an object that has changed since its observation.
func (c *Client) changed(ref Ref) error {
	gvr, _, _ := c.mapper.Mapping(ref.Kind)
	return apierrors.NewConflict(gvr.GroupResource(), ref.Name, errors.New("the object has changed since it was observed"))
}

// exactUID returns the UID of an object as the server has it.
func (c *Client) exactUID(ctx context.Context, observed ownership.Object) (types.UID, error) {
	if observed.UID.IsExact() {
		return types.UID(observed.UID), nil
	}
	meta, err := c.unchanged(ctx, observed)
	if err != nil {
		return "", err
	}
	return meta.UID, nil
}

// exactOwners returns owner references to write, as the server has them. owners are some of the references of the
// object, in order; their flag blockOwnerDeletion may differ.
func (c *Client) exactOwners(ctx context.Context, observed ownership.Object, owners []ownership.Reference) ([]metav1.OwnerReference, error) {
	if !slices.ContainsFunc(owners, func(r ownership.Reference) bool { return !r.IsExact() }) {
		return referencesOf(owners), nil
	}
	meta, err := c.unchanged(ctx, observed)
	if err != nil {
		return nil, err
	}
	var exact []metav1.OwnerReference
	for i, has := range feed.Observation(observed.Kind, meta).Owners {
		if len(exact) == len(owners) {
			break
		}
		want := owners[len(exact)]
		has.BlockOwnerDeletion = want.BlockOwnerDeletion
		if has != want {
			continue
		}
		r := meta.OwnerReferences[i]
		r.BlockOwnerDeletion = boolOf(want.BlockOwnerDeletion)
		exact = append(exact, r)
	}
	if len(exact) < len(owners) {
		return nil, c.changed(RefOf(observed))
	}
	return exact, nil
}

// exactFinalizers returns finalizers to write, as the server has them. It removes the observed finalizers that are
// not in finalizers.
func (c *Client) exactFinalizers(ctx context.Context, observed ownership.Object, finalizers []string) ([]string, error) {
	if !ownership.HasMoreFinalizers(finalizers) {
		return finalizers, nil
	}
	meta, err := c.unchanged(ctx, observed)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(meta.Finalizers), func(f string) bool {
		return slices.Contains(observed.Finalizers, f) && !slices.Contains(finalizers, f)
	}), nil
}
