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
