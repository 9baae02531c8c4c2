package conformance

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// What must not be lost when something fails (OR-07 of the matrix, and more).
func TestOrphanUnderDifficulties(t *testing.T) {
	t.Run("OR-07 a dependent that was not observed yet", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		w.Settle(probe.Secrets)
		resume := tap.stall(probe.Secrets)
		owner := w.Create(probe.ConfigMaps, "owner")
		dependents := w.CreateMany(3, probe.Secrets, "dependent", probe.OwnedBy(probe.Blocking(owner)))
		w.Remove(owner, probe.Orphan)
		// Whether the owner is held meanwhile, or its dependents are found in another way, is up
		// to the collector.
		w.Settle(probe.ConfigMaps)
		resume()
		w.EventuallyGone(owner)
		w.AreOrphans(dependents...)
	})
	t.Run("OR-07 a kind that cannot be read holds the owner", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		owner := w.Create(probe.ConfigMaps, "owner")
		dependents := w.CreateMany(3, probe.Secrets, "dependent", probe.OwnedBy(probe.Blocking(owner)))
		answer := tap.refuse(reads(probe.Secrets), http.StatusInternalServerError, metav1.StatusReasonInternalError)
		w.collect(tap)
		w.Remove(owner, probe.Orphan)
		w.Settle(probe.ConfigMaps)
		w.EventuallyFinalizers(owner, probe.OrphanFinalizer)
		answer()
		w.EventuallyGone(owner)
		w.AreOrphans(dependents...)
	})
	for status, reason := range map[int]metav1.StatusReason{
		http.StatusConflict:            metav1.StatusReasonConflict,
		http.StatusForbidden:           metav1.StatusReasonForbidden,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid,
		http.StatusInternalServerError: metav1.StatusReasonInternalError,
	} {
		t.Run("CF-07 a dependent that cannot be detached keeps the finalizer: "+string(reason), func(t *testing.T) {
			w, tap := quiet(t), &tap{}
			owner := w.Create(probe.ConfigMaps, "owner")
			stubborn := w.Create(probe.Secrets, "stubborn", probe.OwnedBy(probe.Blocking(owner)))
			easy := w.Create(probe.Secrets, "easy", probe.OwnedBy(probe.Blocking(owner)))
			answer := tap.refuse(about(stubborn, "patch"), status, reason)
			w.collect(tap)
			w.Remove(owner, probe.Orphan)
			w.EventuallyOwned(easy)
			w.Settle(probe.ConfigMaps)
			w.EventuallyFinalizers(owner, probe.OrphanFinalizer)
			answer()
			w.EventuallyGone(owner)
			w.AreOrphans(stubborn, easy)
		})
	}
}
