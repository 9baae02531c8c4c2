package conformance

import (
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The number of requests that emptying namespaces takes, and the effect of refusing some of them.
func TestNamespacePasses(t *testing.T) {
	t.Run("NS-03 what is there is listed, deleted, and looked for again before the namespace goes", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		kinds := []kind{pods, configMaps, secrets, roles}
		for _, k := range kinds {
			w.createMany(2, k, "object")
		}
		w.collectWith(tap, emptying)
		w.eventuallyGone(w.end())
		if n := tap.count(match{verbs: "update", kind: namespaces, name: w.space, part: "finalize"}); n != 1 {
			t.Errorf("finalized %d times", n)
		}
		for _, k := range kinds {
			var verbs []string
			for _, c := range tap.calls(match{space: w.space}) {
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
		active, finalized := w.another(), w.another()
		contents := []object{active.create(configMaps, "content"), finalized.create(configMaps, "content")}
		finalized.setSpecFinalizers()
		self := finalized.endHeld()
		answer := tap.refuse(anyDiscovery, serverError, serverErrorReason)
		w.collectWith(tap, emptying)
		pending := w.end()
		w.eventuallyMentions("NamespaceDeletionDiscoveryFailure True DiscoveryFailed", "Discovery failed for some groups, 1 failing: ")
		w.eventuallyMentions("NamespaceContentRemaining Unknown ResourcesUnknown")
		active.patch(active.itself(), map[string]any{"labels": map[string]string{"changed": "yes"}})
		finalized.patch(self, map[string]any{"labels": map[string]string{"changed": "yes"}})
		answer()
		w.eventuallyGone(pending)
		w.settleNamespaces()
		w.areKept(contents...)
		for _, space := range []*cluster{active, finalized} {
			if calls := tap.calls(match{space: space.space}); len(calls) > 0 {
				t.Errorf("requests about a namespace where there is nothing to do: %v", calls)
			}
		}
		finalized.letGo(self)
		w.eventuallyGone(self)
	})
	// A group of the server's own: of one that was defined just now, more is known.
	batch := match{discovery: "/apis/" + jobs.Group}
	t.Run("NS-06 a group that could never be discovered holds the namespace, and not what is in it", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		unknown := w.create(jobs, "unknown")
		known := []object{w.create(configMaps, "known"), w.create(roles, "known")}
		answer := tap.refuse(batch, serverError, serverErrorReason)
		w.collectWith(tap, emptying)
		self := w.end()
		w.eventuallyGone(known...)
		w.eventuallyMentions("NamespaceDeletionDiscoveryFailure True DiscoveryFailed",
			"Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: "+jobs.apiVersion()+": ")
		w.areKept(unknown)
		if n := tap.count(match{verbs: "update", kind: namespaces, name: w.space, part: "finalize"}); n > 0 {
			t.Error("finalized without knowing all kinds")
		}
		answer()
		w.eventuallyGone(self, unknown)
	})
	t.Run("NS-06 a group that could be discovered before holds nothing", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		content := w.create(jobs, "content")
		w.collectWith(tap, emptying)
		w.settleNamespaces()
		asked := tap.count(batch)
		tap.refuse(batch, serverError, serverErrorReason)
		w.eventuallyGone(w.end(), content)
		if tap.count(batch) == asked {
			t.Error("the group was not asked for: nothing was refused")
		}
	})
	t.Run("NS-07 a conflict is tried again", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		w.create(configMaps, "content")
		self := w.itself()
		finalize := match{verbs: "update", kind: namespaces, name: w.space, part: "finalize"}
		tap.before(finalize, func() {
			if err := w.tryPatch(self, map[string]any{"labels": map[string]string{"changed": "meanwhile"}}); err != nil {
				t.Error(err)
			}
		})
		w.collectWith(tap, emptying)
		w.remove(self, background)
		w.eventuallyGone(self)
		if n := tap.count(finalize); n != 2 {
			t.Errorf("finalized %d times, want once against a change and once after it", n)
		}
	})
	t.Run("NS-09 a collection that cannot be deleted as one, in one namespace", func(t *testing.T) {
		w, tap := quiet(t), &tap{}
		const many = 120
		next := w.another()
		for _, space := range []*cluster{w, next} {
			space.createMany(many, configMaps, "content")
		}
		answer := tap.refuse(match{verbs: "deletecollection"}, http.StatusNotFound, metav1.StatusReasonNotFound)
		w.collectWith(tap, emptying)
		w.eventuallyGone(w.end())
		if n := tap.count(match{verbs: "delete", kind: configMaps, space: w.space}); n < many {
			t.Errorf("%d of %d objects were deleted one by one", n, many)
		}
		if n := tap.count(match{verbs: "deletecollection", kind: configMaps, space: w.space}); n == 0 {
			t.Error("no attempt to delete them as one")
		}
		answer()
		next.eventuallyGone(next.end())
		if n := tap.count(match{verbs: "deletecollection", kind: configMaps, space: next.space}); n == 0 {
			t.Error("in the next namespace there was no attempt to delete them as one")
		}
		if n := tap.count(match{verbs: "delete", kind: configMaps, space: next.space}); n > 0 {
			t.Errorf("in the next namespace %d were deleted one by one", n)
		}
	})
}
