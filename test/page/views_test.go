package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

type object = map[string]any

// cluster answers as a collector does.
type cluster struct {
	*http.ServeMux

	paused atomic.Bool
}

func answer(value any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(value) }
}

func newCluster() *cluster {
	c := &cluster{ServeMux: http.NewServeMux()}
	c.paused.Store(true)
	c.HandleFunc("GET /coppice/v1/status", func(w http.ResponseWriter, r *http.Request) {
		paused := []object{}
		if c.paused.Load() {
			paused = append(paused, object{"kind": "ReplicaSet.apps", "since": "2026-03-01T12:00:00Z", "deleted": 120, "objects": 400})
		}
		answer(object{
			"synced": true, "graph": object{"objects": 134_000, "references": 90_000}, "queue": object{"length": 0}, "paused": paused,
			"resources": []object{{"kind": "Widget.example.com", "resource": "widgets.example.com", "state": "failing", "since": "2026-03-01T12:00:00Z", "error": "conversion webhook: connection refused"}},
			"barrier": []object{{
				"owner": "Deployment.apps shop/web", "uid": "a", "finalizer": "foregroundDeletion", "since": "2026-03-01T12:00:00Z",
				"holds": []object{{"what": "Widget.example.com", "why": "cannot be listed"}},
			}},
		})(w, r)
	})
	c.HandleFunc("GET /coppice/v1/deletions", answer(object{"unread": []string{"secrets: objects that you may not list are left out"}, "items": []object{{
		"leaf": object{
			"on": "Finalizer", "says": "finalizer acme.io/hold: nobody serves it", "state": "Stuck", "since": "2026-03-01T12:00:00Z",
			"next": []object{{"says": "look what set the finalizer", "command": "kubectl get configmap held -n shop -o yaml --show-managed-fields"}},
		},
		"objects": []object{{"kind": "ConfigMap", "namespace": "shop", "name": "held", "uid": "c"}},
	}}}))
	c.HandleFunc("GET /coppice/v1/protected", answer(object{"items": []object{
		{"kind": "Namespace", "name": "shop", "uid": "n", "resource": "namespaces", "mode": "always"},
		{"kind": "Secret", "namespace": "shop", "name": "root", "uid": "s", "resource": "secrets", "mode": "cascading"},
		{"kind": "StatefulSet.apps", "namespace": "shop", "name": "db", "uid": "d", "resource": "statefulsets.apps", "mode": "outlives", "outlives": []string{"Deployment shop/web"}},
		{"kind": "Secret", "namespace": "shop", "name": "old", "uid": "old", "resource": "secrets", "mode": "outlives", "outlives": []string{"Deployment shop/web"}, "unchecked": "it is older"},
		{"kind": "ConfigMap", "namespace": "shop", "name": "odd", "uid": "o", "resource": "configmaps", "mode": "maybe", "invalid": "it is none of the modes"},
	}, "defaults": []object{{"resource": "customresourcedefinitions.apiextensions.k8s.io", "mode": "unused"}}, "confirm": "more-than=50; kinds=namespaces"}))
	c.HandleFunc("POST /coppice/v1/resume", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("kind") != "ReplicaSet.apps" || !c.paused.Swap(false) {
			http.Error(w, "deletions are not paused", http.StatusNotFound)
			return
		}
		answer(object{})(w, r)
	})
	c.HandleFunc("GET /coppice/v1/preview", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("object") != "deploy/web" {
			http.Error(w, `deployments.apps "nobody" is not there`, http.StatusNotFound)
			return
		}
		answer(cascade(10_000))(w, r)
	})
	return c
}

// cascade is the preview of a Deployment with that many pods, one of which another owner keeps, and a ConfigMap
// that hangs.
func cascade(pods int) object {
	one := func(kind, name, fate string, more object) object {
		o := object{"kind": kind, "namespace": "shop", "name": name, "uid": name, "resourceVersion": "1", "fate": fate}
		maps.Copy(o, more)
		return o
	}
	owner := func(uid string) []object { return []object{{"uid": uid, "blocking": true}} }
	objects := []object{
		one("Deployment.apps", "web", "Deleted", object{"requested": true, "step": 1}),
		one("ReplicaSet.apps", "web-1", "Deleted", object{"step": 2, "by": "Collector", "owners": owner("web")}),
		one("ConfigMap", "held", "Waiting", object{"owners": owner("web"), "waits": []object{{"reason": "Finalizer", "name": "acme.io/hold", "servedBy": object{"state": "Gone"}}}}),
		one("ConfigMap", "precious", "Kept", object{"owners": owner("web"), "protected": "protected by its label coppice.dev/protect=always: nobody deletes it"}),
		one("Secret", "shared", "Kept", object{"owners": []object{{"uid": "web"}, {"uid": "other"}}, "keptBy": []string{"Deployment.apps shop/other"}}),
	}
	for n := range pods {
		objects = append(objects, one("Pod", fmt.Sprintf("web-1-%d", n), "Deleted", object{"step": 3, "by": "Collector", "owners": owner("web-1")}))
	}
	return object{
		"digest": strings.Repeat("8a63bfba", 8), "objects": objects, "graceSeconds": 30,
		"unconfirmed": "10003 objects would be deleted, and more than 50 need a confirmation",
		"counts":      []object{{"fate": "Deleted", "kind": "Pod", "objects": pods}},
	}
}

const named = "preview/deploy%2Fweb/shop/Foreground"

// A preview is a picture of groups, with the reason of what hangs, and the command with its digest.
func TestPreviewIsAPictureOfGroups(t *testing.T) {
	b := newTab(t, serve(t, newCluster()), 1280, 900, http.StatusNotFound)
	b.open("preview")
	b.do(chromedp.SendKeys("#object", "deploy/web"), chromedp.SendKeys("#namespace", "shop"), chromedp.SetValue("#policy", "Foreground"), chromedp.SendKeys("#object", kb.Enter))
	b.untilText("10 002 objects go, 1 waits for something, 2 stay.")
	b.untilText("coppice delete deploy/web -n shop --cascade foreground --confirm " + strings.Repeat("8a63bfba", 8))
	b.untilText("held waits for finalizer acme.io/hold (nobody removes it)")
	b.untilText("The server demands a confirmation: 10003 objects would be deleted, and more than 50 need a confirmation.")
	labels := eval[[]string](b, `[...document.querySelectorAll(".box")].map((e) => e.getAttribute("aria-label"))`)
	for _, want := range []string{"Deployment web goes", "pods ×10 000 10 000 go", "ConfigMap held waits · for acme.io/hold", "Secret shared stays: Deployment.apps shop/other …. Secret shared: stays: Deployment.apps shop/other keeps it; Deployment.apps shop/other keeps it", "Deployment other keeps what it owns"} {
		if !slices.ContainsFunc(labels, func(l string) bool { return strings.HasPrefix(strings.ReplaceAll(l, "\u202f", " "), want) }) {
			t.Errorf("no box says %q: %q", want, labels)
		}
	}
	b.click(`.box[aria-label^="ConfigMap precious stays · it is protected"]`)
	b.untilText("protected by its label coppice.dev/protect=always: nobody deletes it")
	if got := eval[string](b, "location.hash"); got != "#/"+named {
		t.Errorf("the address is %s", got)
	}
	b.do(chromedp.SetValue("#object", "deploy/nobody"), chromedp.SendKeys("#object", kb.Enter))
	b.untilText("is not there")
}

// The picture is used with the keyboard: arrows go from box to box, Enter lists a box's objects.
func TestPictureIsUsedWithTheKeyboard(t *testing.T) {
	b := newTab(t, serve(t, newCluster()), 1280, 900)
	b.open(named)
	b.until(`document.querySelector('.box[tabindex="0"]')`)
	b.do(chromedp.Focus(`.box[tabindex="0"]`))
	focused := func() string { return eval[string](b, `document.activeElement.getAttribute("aria-label") ?? ""`) }
	if got := focused(); !strings.HasPrefix(got, "Deployment web") {
		t.Errorf("first comes %q", got)
	}
	b.do(chromedp.KeyEvent(kb.ArrowRight))
	first := focused()
	b.do(chromedp.KeyEvent(kb.ArrowDown))
	if second := focused(); first == second || strings.HasPrefix(first, "Deployment web") {
		t.Errorf("right of it is %q, below that %q", first, second)
	}
	b.do(chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector(".selected h2")?.textContent === "Deployment web"`)
	b.do(chromedp.KeyEvent(kb.Enter))
	b.until(`document.querySelector(".selected").hidden`)
}

// The brake's button lets deletions go on, after it has asked.
func TestBrakeIsReleasedAfterAQuestion(t *testing.T) {
	c := newCluster()
	b := newTab(t, serve(t, c), 1280, 900)
	b.open("health")
	b.untilText("Deletions of ReplicaSet.apps are paused")
	b.untilText("conversion webhook: connection refused")
	b.untilText("finalizer acme.io/hold: nobody serves it")
	b.until(`[...document.querySelectorAll(".note.bad")].some((n) => n.textContent.startsWith("Stuck: finalizer acme.io/hold"))`)
	eval[int](b, "confirm = () => false; 0")
	b.click("button.danger")
	if !c.paused.Load() {
		t.Fatal("it has gone on without consent")
	}
	eval[int](b, "confirm = () => true; 0")
	b.click("button.danger")
	b.untilText("Nothing is paused.")
	if c.paused.Load() {
		t.Error("nothing was asked for")
	}
}

// Health lists protected objects, and explains the protection.
func TestHealthListsProtectedObjects(t *testing.T) {
	b := newTab(t, serve(t, newCluster()), 1280, 900)
	b.open("health")
	for _, want := range []string{
		"Namespace shop\talways\tnobody deletes it", "Secret shop/root\tcascading\tit goes only if it is named",
		"StatefulSet shop/db\toutlives\tit stays as long as any of these is there: Deployment shop/web",
		"Secret shop/old\toutlives\tnobody deletes it: what it outlives counts as there, as it is older",
		"ConfigMap shop/odd\tmaybe\tnobody deletes it: its mode maybe cannot be understood: it is none of the modes",
		"All customresourcedefinitions.apiextensions.k8s.io, by default (unused: it stays while anything needs it)",
		"Larger deletions need a confirmation: more-than=50; kinds=namespaces",
	} {
		b.untilText(want)
	}
}

// Without a link, the page asks for a token, and forgets it with the page.
func TestPageAsksForATokenAndForgetsIt(t *testing.T) {
	c := newCluster()
	asked := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer right" {
			http.Error(w, "not authenticated", http.StatusUnauthorized)
			return
		}
		c.ServeHTTP(w, r)
	})
	b := newTab(t, serve(t, asked), 1280, 900, http.StatusUnauthorized)
	b.open("health")
	b.untilText("Who are you?")
	b.accessible()
	b.do(chromedp.SendKeys("#token", "wrong"+kb.Enter))
	b.untilText("That token was not accepted")
	b.do(chromedp.SendKeys("#token", "right"+kb.Enter))
	b.untilText("Deletions of ReplicaSet.apps are paused")
	b.visit(chromedp.Reload())
	b.untilText("Who are you?")
	if kept := eval[string](b, `JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])`); strings.Contains(kept, "right") {
		t.Errorf("the token is kept: %s", kept)
	}
}

// axe finds nothing in any view, in light, in dark and on a phone; and nothing is wider than a phone.
func TestAccessibleInEachView(t *testing.T) {
	stories, _, one := newStories()
	begin(one)
	server := serve(t, stories)
	for _, c := range []struct {
		name, scheme  string
		width, height int64
	}{{"light", "light", 1280, 900}, {"dark", "dark", 1280, 900}, {"phone", "light", 390, 844}} {
		t.Run(c.name, func(t *testing.T) {
			b := newTab(t, server, c.width, c.height)
			call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
				{Name: "prefers-color-scheme", Value: c.scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
			}})
			for _, view := range views() {
				b.open(view.path)
				b.untilText(view.says)
				eval[int](b, `document.querySelectorAll("details").forEach((d) => { d.open = true; }); 0`)
				b.accessible()
				if width := eval[int64](b, "document.documentElement.scrollWidth"); width > c.width {
					t.Errorf("%s is %d wide, on a screen of %d", view.path, width, c.width)
				}
			}
		})
	}
}

type view struct{ path, says string }

func views() []view {
	return []view{{"stories", "Waits for"}, {"story/a", "by acme.io/hold"}, {named, "To delete exactly this"}, {"health", "Kinds that cannot be read"}}
}
