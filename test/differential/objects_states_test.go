package differential

import (
	"context"
	"fmt"
	"net/http"

	"github.com/coppice-dev/coppice/internal/testing/variation"
)

// reach brings the stored object into its state, on both servers. A step that one of them refuses ends it.
func (c *objectComparison) reach(ctx context.Context, k *variation.Kind) error {
	if k.State == nil {
		return nil
	}
	for _, step := range k.State.Steps {
		for _, s := range c.pair {
			object := pathOf(k)
			if step.To != "" {
				object += "/" + step.To
			}
			method, contentType, body := http.MethodPatch, "application/merge-patch+json", step.Patch
			switch {
			case step.Delete:
				method, contentType, body = http.MethodDelete, "", nil
				if err := s.awaitCache(ctx, object); err != nil {
					return err
				}
			case step.Post != nil:
				method, contentType, body = http.MethodPost, "application/json", step.Post
			}
			if code, answer, err := s.send(ctx, method, object, contentType, body); err != nil || code >= http.StatusBadRequest {
				return fmt.Errorf("%s: %s: %s %s: %d %v %w", s.name, k.State.Name, method, object, code, answer, err)
			}
		}
	}
	return nil
}

// awaitCache waits until the watch cache has an object as it is stored. kube-apiserver computes the grace period of a deletion
// for the cached object, and keeps it when it finds a newer one: a pod that was bound a moment ago has a grace period of 0.
func (s *apiServer) awaitCache(ctx context.Context, object string) error {
	_, stored, err := s.send(ctx, http.MethodGet, object, "", nil)
	if err != nil || stored == nil {
		return err
	}
	_, _, err = s.send(ctx, http.MethodGet, object+"?resourceVersion="+stored.GetResourceVersion(), "", nil)
	return err
}
