package conformance

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/cli/conformance/probe"
)

// The number of requests that emptying namespaces takes, and the effect of refusing some of them.
func TestNamespacePasses(t *testing.T) {
	t.Run("NS-03 what is there is listed, deleted, and looked for again before the namespace goes", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		kinds := []probe.Kind{probe.Pods, probe.ConfigMaps, probe.Secrets, probe.Roles}
		for _, k := range kinds {
			w.CreateMany(2, k, "object")
		}
		w.collectWith(tap, emptying)
		w.EventuallyGone(w.End())
		if n := tap.count(match{verbs: "update", kind: probe.Namespaces, name: w.Name, part: "finalize"}); n != 1 {
			t.Errorf("finalized %d times", n)
		}
		for _, k := range kinds {
			var verbs []string
			for _, c := range tap.calls(match{space: w.Name}) {
				if c.kind == k.Resource || c.part == "finalize" {
					verbs = append(verbs, c.verb)
				}
			}
			// More lists are for kinds that appear and disappear on this server meanwhile.
			if got := strings.Join(verbs, " "); !strings.HasPrefix(got, "list ") || !strings.HasSuffix(got, " list list update") || strings.Count(got, "delete") != 2 {
				t.Errorf("requests for %s: %s, want them listed, deleted, listed twice, and then the namespace finalized", k.Resource, got)
			}
		}
	})
	t.Run("NS-04 NS-05 NS-08 namespaces that are active, or finalized already, cost nothing, and discovery may fail", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		active, finalized := w.Another(), w.Another()
		contents := []probe.Object{active.Create(probe.ConfigMaps, "content"), finalized.Create(probe.ConfigMaps, "content")}
		finalized.SetSpecFinalizers()
		self := finalized.EndHeld()
		answer := tap.refuse(anyDiscovery, serverError, serverErrorReason)
		w.collectWith(tap, emptying)
		pending := w.End()
		w.EventuallyMentions("NamespaceDeletionDiscoveryFailure True DiscoveryFailed", "Discovery failed for some groups, 1 failing: ")
		w.EventuallyMentions("NamespaceContentRemaining Unknown ResourcesUnknown")
		active.Patch(active.Itself(), map[string]any{"labels": map[string]string{"changed": "yes"}})
		finalized.Patch(self, map[string]any{"labels": map[string]string{"changed": "yes"}})
		answer()
		w.EventuallyGone(pending)
		w.SettleNamespaces()
		w.AreKept(contents...)
		for _, space := range []*probe.Space{active, finalized} {
			if calls := tap.calls(match{space: space.Name}); len(calls) > 0 {
				t.Errorf("requests about a namespace where there is nothing to do: %v", calls)
			}
		}
		finalized.LetGo(self)
		w.EventuallyGone(self)
	})
	// A group of the server's own: of one that was defined just now, more is known.
	batch := match{discovery: "/apis/" + probe.Jobs.Group}
	t.Run("NS-06 a group that could never be discovered holds the namespace, and not what is in it", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		unknown := w.Create(probe.Jobs, "unknown")
		known := []probe.Object{w.Create(probe.ConfigMaps, "known"), w.Create(probe.Roles, "known")}
		answer := tap.refuse(batch, serverError, serverErrorReason)
		w.collectWith(tap, emptying)
		self := w.End()
		w.EventuallyGone(known...)
		w.EventuallyMentions("NamespaceDeletionDiscoveryFailure True DiscoveryFailed",
			"Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "+probe.Jobs.APIVersion()+": ")
		w.AreKept(unknown)
		if n := tap.count(match{verbs: "update", kind: probe.Namespaces, name: w.Name, part: "finalize"}); n > 0 {
			t.Error("finalized without knowing all kinds")
		}
		answer()
		w.EventuallyGone(self, unknown)
	})
	t.Run("NS-06 a group that could be discovered before holds nothing", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		content := w.Create(probe.Jobs, "content")
		w.collectWith(tap, emptying)
		w.SettleNamespaces()
		asked := tap.count(batch)
		tap.refuse(batch, serverError, serverErrorReason)
		w.EventuallyGone(w.End(), content)
		if tap.count(batch) == asked {
			t.Error("the group was not asked for: nothing was refused")
		}
	})
	t.Run("NS-07 a conflict is tried again", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.Create(probe.ConfigMaps, "content")
		self := w.Itself()
		finalize := match{verbs: "update", kind: probe.Namespaces, name: w.Name, part: "finalize"}
		tap.before(finalize, func() {
			if err := w.TryPatch(self, map[string]any{"labels": map[string]string{"changed": "meanwhile"}}); err != nil {
				t.Error(err)
			}
		})
		w.collectWith(tap, emptying)
		w.Remove(self, probe.Background)
		w.EventuallyGone(self)
		if n := tap.count(finalize); n != 2 {
			t.Errorf("finalized %d times, want once against a change and once after it", n)
		}
	})
	t.Run("NS-09 a collection that cannot be deleted as one, in one namespace", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		const many = 120
		next := w.Another()
		for _, space := range []*probe.Space{w.Space, next} {
			space.CreateMany(many, probe.ConfigMaps, "content")
		}
		answer := tap.refuse(match{verbs: "deletecollection"}, http.StatusNotFound, metav1.StatusReasonNotFound)
		w.collectWith(tap, emptying)
		w.EventuallyGone(w.End())
		if n := tap.count(match{verbs: "delete", kind: probe.ConfigMaps, space: w.Name}); n < many {
			t.Errorf("%d of %d objects were deleted one by one", n, many)
		}
		if n := tap.count(match{verbs: "deletecollection", kind: probe.ConfigMaps, space: w.Name}); n == 0 {
			t.Error("no attempt to delete them as one")
		}
		answer()
		next.EventuallyGone(next.End())
		if n := tap.count(match{verbs: "deletecollection", kind: probe.ConfigMaps, space: next.Name}); n == 0 {
			t.Error("in the next namespace there was no attempt to delete them as one")
		}
		if n := tap.count(match{verbs: "delete", kind: probe.ConfigMaps, space: next.Name}); n > 0 {
			t.Errorf("in the next namespace %d were deleted one by one", n)
		}
	})
}
