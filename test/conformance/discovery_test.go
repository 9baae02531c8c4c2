package conformance

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const serverError, serverErrorReason = http.StatusInternalServerError, metav1.StatusReasonInternalError

// hint makes a collector read discovery again by changing a definition.
func (w *cluster) hint(k probe.Kind, tap *tap) {
	w.t.Helper()
	asked := tap.count(anyDiscovery)
	w.Redefine(k, fmt.Sprintf(`{"metadata":{"annotations":{"conformance.example.com/hint":"%d"}}}`, asked))
	eventually.Agrees(w.t, func() string {
		if tap.count(anyDiscovery) == asked {
			return "discovery is not asked again"
		}
		return ""
	})
}

var anyDiscovery = match{discovery: "/"}

// Discovery fails partly or completely, kinds appear and disappear.
func TestDiscoveryThatFailsAndChanges(t *testing.T) {
	t.Run("DR-01 a group that cannot be discovered at the start holds up no other, and joins later", func(t *testing.T) {
		w, tap := apart(t, checked), &tap{}
		gizmos, gadgets := w.Define("gizmos"), w.Another().Define("gadgets")
		stray := w.Create(gizmos, "stray", probe.OwnedBy(probe.Nobody(probe.ConfigMaps)))
		answer := tap.refuse(match{discovery: "/apis/" + gizmos.Group}, serverError, serverErrorReason)
		w.collect(tap)
		w.Settle(probe.ConfigMaps, probe.Pods, gadgets)
		w.AreKept(stray)
		answer()
		w.hint(gadgets, tap)
		w.EventuallyGone(stray)
	})
	t.Run("DR-02 DR-03 discovery fails altogether, and recovers", func(t *testing.T) {
		w, tap := apart(t, checked), &tap{}
		gizmos := w.Define("gizmos")
		w.collect(tap)
		w.Settle(probe.ConfigMaps, gizmos)
		answer := tap.refuse(anyDiscovery, serverError, serverErrorReason)
		w.hint(gizmos, tap)
		w.Settle(probe.ConfigMaps, probe.Secrets, gizmos)
		late := w.Another()
		gadgets := late.Define("gadgets")
		stray := late.Create(gadgets, "stray", probe.OwnedBy(probe.Nobody(probe.ConfigMaps)))
		w.Settle(probe.ConfigMaps, gizmos)
		late.AreKept(stray)
		answer()
		w.hint(gizmos, tap)
		late.EventuallyGone(stray)
	})
	t.Run("DR-04 DR-05 a kind that cannot be read is added while others are collected, and removed", func(t *testing.T) {
		w, tap := apart(t, checked), &tap{}
		w.collect(tap)
		gizmos := w.Define("gizmos")
		_, repair := w.BreakReading(gizmos)
		w.Settle(probe.ConfigMaps, probe.Secrets)
		late := w.Another()
		gadgets := late.Define("gadgets")
		late.Settle(gadgets)
		repair() // the server does not remove objects that it cannot convert
		w.Undefine(gizmos)
		w.Settle(probe.ConfigMaps, gadgets)
		eventually.Agrees(t, func() string {
			if n := tap.open(gizmos); n > 0 {
				return fmt.Sprintf("%d watches of a kind that is gone", n)
			}
			return ""
		})
	})
	t.Run("DR-06 a group that fails after it was observed stays observed", func(t *testing.T) {
		w, tap := apart(t, checked), &tap{}
		gizmos, gadgets := w.Define("gizmos"), w.Another().Define("gadgets")
		w.collect(tap)
		owner := w.Create(gizmos, "owner")
		dependent := w.Create(gizmos, "dependent", probe.OwnedBy(probe.Ref(owner)))
		w.Settle(gizmos)
		tap.refuse(match{discovery: "/apis/" + gizmos.Group}, serverError, serverErrorReason)
		w.hint(gadgets, tap)
		w.hint(gadgets, tap)
		w.Settle(gizmos, probe.ConfigMaps)
		w.AreKept(dependent)
		w.Remove(owner, probe.Background)
		w.EventuallyGone(dependent)
	})
	t.Run("H10 a kind that comes and goes leaves nothing behind", func(t *testing.T) {
		w, tap := apart(t, checked), &tap{}
		w.collect(tap)
		var gizmos probe.Kind
		for range 5 {
			gizmos = w.Define("gizmos")
			before := tap.count(reads(gizmos))
			w.Settle(gizmos)
			if n := tap.open(gizmos); n != 1 {
				t.Errorf("%d watches of one kind", n)
			}
			t.Logf("%d lists and watches", tap.count(reads(gizmos))-before)
			w.Undefine(gizmos)
			eventually.Agrees(t, func() string {
				if n := tap.open(gizmos); n > 0 {
					return fmt.Sprintf("%d watches of a kind that is gone", n)
				}
				return ""
			})
		}
		eventually.Agrees(t, func() string { // it reads once more, or a few times, until its look at discovery
			before := tap.count(reads(gizmos))
			w.Settle(probe.ConfigMaps)
			if n := tap.count(reads(gizmos)) - before; n > 0 {
				return fmt.Sprintf("%d lists and watches of a kind that is gone", n)
			}
			return ""
		})
	})
}
