package explain

import (
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// webhook looks for an admission webhook that denies an operation on an object because the API server cannot call it:
// its failurePolicy is Fail, and its service has no endpoints.
func (e *Explainer) webhook(o *inventory.Object, operation admissionregistrationv1.OperationType) (Wait, bool) {
	if e.Facts == nil || o.Resource == nil {
		return Wait{}, false
	}
	for _, w := range e.Facts.AllWebhooks().Value { // none if they could not be read
		if !w.IsDead() || !w.Concerns(operation, o.Resource) {
			continue
		}
		found := Wait{
			On: OnWebhook, State: Stuck,
			Says: fmt.Sprintf("%s denies every %s of %s: %s", w.String(), operation, o.Resource.GroupResource(), w.Dead().Message),
			Next: e.restoreWebhook(w.Name),
		}
		if w.IsSelective() {
			found.State = Unknown
			found.Says += ", if its selectors and conditions match"
		}
		return found, true
	}
	return Wait{}, false
}
