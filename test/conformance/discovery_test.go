package conformance

import (
	"fmt"
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

const serverError, serverErrorReason = http.StatusInternalServerError, metav1.StatusReasonInternalError

// hint makes a collector read discovery again by changing a definition.
func (w *cluster) hint(k kind, tap *tap) {
	w.t.Helper()
	asked := tap.count(anyDiscovery)
	w.redefine(k, fmt.Sprintf(`{"metadata":{"annotations":{"conformance.example.com/hint":"%d"}}}`, asked))
	eventually.Agrees(w.t, func() string {
		if tap.count(anyDiscovery) == asked {
			return "discovery is not asked again"
		}
		return ""
	})
}

var anyDiscovery = match{discovery: "/"}

// Discovery fails partly or completely, kinds appear and disappear.
func TestDiscovery(t *testing.T) {
	t.Run("DR-01 a group that cannot be discovered at the start holds up no other, and joins later", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos, gadgets := w.define("gizmos"), w.another().define("gadgets")
		stray := w.create(gizmos, "stray", ownedBy(nobody(configMaps)))
		answer := tap.refuse(match{discovery: "/apis/" + gizmos.Group}, serverError, serverErrorReason)
		w.collect(tap)
		w.settle(configMaps, pods, gadgets)
		w.areKept(stray)
		answer()
		w.hint(gadgets, tap)
		w.eventuallyGone(stray)
	})
	t.Run("DR-02 DR-03 discovery fails altogether, and recovers", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos := w.define("gizmos")
		w.collect(tap)
		w.settle(configMaps, gizmos)
		answer := tap.refuse(anyDiscovery, serverError, serverErrorReason)
		w.hint(gizmos, tap)
		w.settle(configMaps, secrets, gizmos)
		late := w.another()
		gadgets := late.define("gadgets")
		stray := late.create(gadgets, "stray", ownedBy(nobody(configMaps)))
		w.settle(configMaps, gizmos)
		late.areKept(stray)
		answer()
		w.hint(gizmos, tap)
		late.eventuallyGone(stray)
	})
	t.Run("DR-04 DR-05 a kind that cannot be read is added while others are collected, and removed", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		gizmos := w.define("gizmos")
		_, repair := w.breakReading(gizmos)
		w.settle(configMaps, secrets)
		late := w.another()
		gadgets := late.define("gadgets")
		late.settle(gadgets)
		repair() // the server does not remove what it cannot convert
		w.undefine(gizmos)
		w.settle(configMaps, gadgets)
		eventually.Agrees(t, func() string {
			if n := tap.open(gizmos); n > 0 {
				return fmt.Sprintf("%d watches of a kind that is gone", n)
			}
			return ""
		})
	})
	t.Run("DR-06 a group that fails after it was observed stays observed", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		gizmos, gadgets := w.define("gizmos"), w.another().define("gadgets")
		w.collect(tap)
		owner := w.create(gizmos, "owner")
		dependent := w.create(gizmos, "dependent", ownedBy(ref(owner)))
		w.settle(gizmos)
		tap.refuse(match{discovery: "/apis/" + gizmos.Group}, serverError, serverErrorReason)
		w.hint(gadgets, tap)
		w.hint(gadgets, tap)
		w.settle(gizmos, configMaps)
		w.areKept(dependent)
		w.remove(owner, background)
		w.eventuallyGone(dependent)
	})
	t.Run("H10 a kind that comes and goes leaves nothing behind", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.collect(tap)
		var gizmos kind
		for range 5 {
			gizmos = w.define("gizmos")
			before := tap.count(reads(gizmos))
			w.settle(gizmos)
			if n := tap.open(gizmos); n != 1 {
				t.Errorf("%d watches of one kind", n)
			}
			t.Logf("%d lists and watches", tap.count(reads(gizmos))-before)
			w.undefine(gizmos)
			eventually.Agrees(t, func() string {
				if n := tap.open(gizmos); n > 0 {
					return fmt.Sprintf("%d watches of a kind that is gone", n)
				}
				return ""
			})
		}
		before := tap.count(reads(gizmos))
		w.settle(configMaps)
		if n := tap.count(reads(gizmos)) - before; n > 1 {
			t.Errorf("%d lists and watches of a kind that is gone", n)
		}
	})
}
