package restore

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"github.com/coppice-dev/coppice/internal/rules/refusal"
	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// link writes the parts that the first write could not have: references to owners that were created later, and the
// references of volumes to their claims.
func (r *Run) link(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, s := range r.plan.Unlinked() {
		group.Go(func() error { return r.linkOwners(ctx, s) })
	}
	for _, name := range r.plan.Volumes() {
		group.Go(func() error { return r.linkVolume(ctx, name) })
	}
	return group.Wait()
}

// linkOwners adds the owners that an object lacks. The write is conditioned on the version that was read (R12).
func (r *Run) linkOwners(ctx context.Context, s *undo.Step) error {
	objects := r.objects(s)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		there, err := objects.Get(ctx, s.Place().Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if there.GetUID() != s.UID {
			return fmt.Errorf("another object has its name now")
		}
		r.mu.Lock()
		owners, lacks := r.plan.Owners(s, there.GetOwnerReferences())
		r.mu.Unlock()
		if !lacks {
			return nil
		}
		linked, err := r.patch(ctx, objects, there.GetName(), patchOf(there, map[string]any{"metadata": map[string]any{"ownerReferences": owners}}))
		if err == nil {
			r.mu.Lock()
			r.plan.Linked(s, linked.GetOwnerReferences())
			r.mu.Unlock()
		}
		return err
	})
	if err != nil && !isInterrupted(ctx, err) {
		r.failed(s, "it exists, without some of its owner references: "+oneLine(err))
	}
	return ctx.Err()
}

// linkVolume updates the claimRef of a volume to its claim.
func (r *Run) linkVolume(ctx context.Context, name string) error {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}
	volumes := r.Server.dynamic.Resource(resource)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		there, err := volumes.Get(ctx, name, metav1.GetOptions{})
		if refusal.IsGone(err, name) {
			return nil // the plan has noted it
		}
		if apierrors.IsForbidden(err) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.plan.VolumeUnread(name, mayNotGet(resource))
			return nil
		}
		if err != nil {
			return err
		}
		r.mu.Lock()
		uid, differs := r.plan.Claim(there)
		r.mu.Unlock()
		if !differs {
			return nil
		}
		ref := map[string]any{"uid": uid, "resourceVersion": nil}
		_, err = r.patch(ctx, volumes, name, patchOf(there, map[string]any{"spec": map[string]any{"claimRef": ref}}))
		return err
	})
	if err != nil && !isInterrupted(ctx, err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.plan.VolumeFailed(name, oneLine(err))
	}
	return ctx.Err()
}

// patchOf returns a merge patch that is conditioned on the UID and the version of the object that was read.
func patchOf(o *unstructured.Unstructured, change map[string]any) []byte {
	metadata, _ := change["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		change["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = o.GetUID(), o.GetResourceVersion()
	text, _ := json.Marshal(change) // strings only, so it does not fail
	return text
}

// writeStatus writes the status that an object had. A kind without that subresource got it with the object.
func (r *Run) writeStatus(ctx context.Context, s *undo.Step, objects dynamic.ResourceInterface) error {
	status, has := s.Kept().Object.Object["status"]
	if !has {
		return nil
	}
	text, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.UID}, "status": status})
	if err == nil {
		_, err = r.patch(ctx, objects, s.Place().Name, text, "status")
	}
	if err != nil && !refusal.ServerAnswers(err, apierrors.IsNotFound) && !isInterrupted(ctx, err) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.plan.StatusFailed(s, oneLine(err))
	}
	return ctx.Err()
}

// patch writes a merge patch to an object, or to a subresource.
func (r *Run) patch(ctx context.Context, objects dynamic.ResourceInterface, name string, text []byte, subresource ...string) (*unstructured.Unstructured, error) {
	return r.written(ctx, func(writing context.Context) (*unstructured.Unstructured, error) {
		return objects.Patch(writing, name, types.MergePatchType, text, metav1.PatchOptions{FieldManager: fieldManager}, subresource...)
	})
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
