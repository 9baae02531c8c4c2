package page

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// leastFrames is how many frames are drawn in a second, at least, while thousands of objects go.
const leastFrames = 30

// feed is a stream of server-sent events to all who follow it, from its beginning.
type feed struct {
	mu     sync.Mutex
	sent   []string
	wakeup chan struct{} // closed at the next event
}

func newFeed() *feed { return &feed{wakeup: make(chan struct{})} }

// send sends an event.
func (f *feed) send(event string, data any) {
	text, err := json.Marshal(data)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent = append(f.sent, fmt.Sprintf("event: %s\nid: %d\ndata: %s\n\n", event, len(f.sent)+1, text))
	close(f.wakeup)
	f.wakeup = make(chan struct{})
}

// after returns the events from a number on, and a channel that is closed when there are more.
func (f *feed) after(number int) ([]string, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent[number:], f.wakeup
}

func (f *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	number := 0
	_, _ = fmt.Sscan(r.Header.Get("Last-Event-ID"), &number)
	for {
		events, more := f.after(number)
		number += len(events)
		if _, err := fmt.Fprint(w, strings.Join(events, "")); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

// newStories are a cluster with a deletion in progress, and the feeds of the list and of that deletion.
func newStories() (c *cluster, list, one *feed) {
	c, list, one = newCluster(), newFeed(), newFeed()
	c.HandleFunc("GET /coppice/v1/stories", answer(object{"items": []object{summary("a", 3, 2, 1), ended(summary("b", 12, 0, 0))}, "unread": []string{"secrets: objects that you may not list are left out"}}))
	c.Handle("GET /coppice/v1/stories/watch", list)
	c.Handle("GET /coppice/v1/stories/a/watch", one)
	c.HandleFunc("GET /coppice/v1/explain", func(w http.ResponseWriter, r *http.Request) { answer(explanation(r.URL.Query().Get("uid")))(w, r) })
	c.HandleFunc("GET /coppice/v1/deleted", answer(object{"items": []object{{"uid": "a", "kind": "Deployment", "name": "web-a", "namespace": "shop"}}}))
	c.HandleFunc("GET /coppice/v1/stories/a", func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintln(w, "Deployment.apps shop/web: being deleted")
	})
	return c, list, one
}

// explanation is why an object is still there: one that a finalizer holds, or any other, which a protected one holds.
func explanation(uid string) object {
	if uid == "held" {
		return object{"items": []object{{
			"object": object{"kind": "ConfigMap", "namespace": "shop", "name": "held", "uid": uid}, "state": "Stuck",
			"waits": []object{{
				"on": "Finalizer", "finalizer": "acme.io/hold", "says": "finalizer acme.io/hold: Deployment acme/operator serves it, and is scaled to 0", "state": "Stuck",
				"servedBy": object{"finalizer": "acme.io/hold", "controller": "Deployment.apps acme/operator", "state": "ScaledToZero"}, "next": []object{{"says": "scale it up"}},
			}},
		}}}
	}
	leaf := object{"on": "Protection", "says": "it is protected by its label", "state": "Stuck", "next": []object{{"says": "remove its protection, if it may be deleted", "command": "coppice unprotect configmaps/kept"}}}
	return object{"items": []object{{
		"object": object{"kind": "Deployment.apps", "namespace": "shop", "name": "web-a", "uid": uid}, "state": "Stuck",
		"waits": []object{{
			"on": "Dependent", "says": "1 object blocks its deletion", "state": "Stuck",
			"waits": []object{{"on": "Dependent", "says": "ConfigMap shop/kept is left", "state": "Stuck", "waits": []object{leaf}}},
		}},
	}}}
}

func summary(id string, gone, waiting, kept int) object {
	return object{
		"id": id, "root": object{"kind": "Deployment.apps", "namespace": "shop", "name": "web-" + id, "uid": "root"}, "policy": "Foreground",
		"by": object{"user": "ann", "agent": "kubectl"}, "began": time.Now().Add(-time.Minute).Format(time.RFC3339Nano),
		"gone": gone, "waiting": waiting, "kept": kept, "rate": 12.5, "waitsFor": "finalizer acme.io/hold of ConfigMap shop/held",
	}
}

func ended(s object) object {
	s["ended"], s["done"], s["waitsFor"] = time.Now().Format(time.RFC3339Nano), true, ""
	return s
}

func now() string { return time.Now().Format(time.RFC3339Nano) }

// begin sends the state of a deletion in progress, with everything that the picture can show.
func begin(one *feed) {
	one.send("story", summary("a", 1, 3, 1))
	past := time.Now().Add(-50 * time.Second).Format(time.RFC3339Nano)
	one.send("objects", []object{
		{"uid": "root", "kind": "Deployment.apps", "namespace": "shop", "name": "web-a", "marked": past},
		{"uid": "rs", "kind": "ReplicaSet.apps", "namespace": "shop", "name": "web-1", "marked": past, "owners": []object{{"uid": "root", "blocking": true}}},
		{"uid": "p1", "kind": "Pod", "namespace": "shop", "name": "web-1-x", "marked": past, "gone": past, "owners": []object{{"uid": "rs", "blocking": true}}},
		{"uid": "p2", "kind": "Pod", "namespace": "shop", "name": "web-1-y", "marked": past, "graceUntil": time.Now().Add(time.Hour).Format(time.RFC3339Nano), "owners": []object{{"uid": "rs", "blocking": true}}},
		{"uid": "p3", "kind": "Pod", "namespace": "shop", "name": "web-1-z", "owners": []object{{"uid": "rs", "blocking": true}}},
		{"uid": "held", "kind": "ConfigMap", "namespace": "shop", "name": "held", "marked": past, "owners": []object{{"uid": "root"}}, "holds": []object{{"finalizer": "acme.io/hold"}}},
		{"uid": "kept", "kind": "Secret", "namespace": "shop", "name": "shared", "fate": "kept", "owners": []object{{"uid": "root"}}, "keptBy": []object{{"uid": "other", "kind": "Deployment.apps", "namespace": "shop", "name": "other"}}},
	})
}

// The list has a row for each deletion, which changes by itself.
func TestListHasARowForEachDeletion(t *testing.T) {
	c, list, _ := newStories()
	b := newTab(t, serve(t, c), 1280, 900)
	b.open("stories")
	b.untilText("finalizer acme.io/hold of ConfigMap shop/held")
	rows := func(name string) []string {
		return eval[[]string](b, fmt.Sprintf(`[...document.querySelectorAll("table[aria-label='%s'] tbody tr")].map((r) => r.innerText)`, name))
	}
	if open, done := rows("In progress"), rows("Done"); len(open) != 1 || len(done) != 1 || !strings.Contains(open[0], "ann, with kubectl") || !strings.Contains(done[0], "web-b") {
		t.Errorf("in progress %q, done %q", open, done)
	}
	if open, done := rows("In progress"), rows("Done"); !strings.Contains(open[0], "12 per second") && !strings.Contains(open[0], "13 per second") || !strings.Contains(done[0], "0.2 per second") {
		t.Errorf("rates: in progress %q, done %q", open, done)
	}
	b.until(`!document.querySelector("table[aria-label='In progress']").innerText.includes("per second")`) // nothing was heard since
	list.send("story", summary("c", 0, 1, 0))
	b.untilText("web-c")
	list.send("story", ended(summary("a", 5, 0, 1)))
	b.until(`document.querySelectorAll("table[aria-label='Done'] tbody tr").length === 2`)
	list.send("removed", object{"id": "b"})
	b.until(`!document.body.innerText.includes("web-b")`)
	b.click(`a[href="#/story/a"]`)
	b.until(`location.hash === "#/story/a"`)
}

// The picture of a deletion shows the owners, the removed objects, the held objects with their holders, the remaining
// objects, and the times.
func TestPictureOfADeletion(t *testing.T) {
	c, _, one := newStories()
	begin(one)
	b := newTab(t, serve(t, c), 1280, 900)
	b.open("story/a")
	b.until(`document.querySelectorAll(".box").length === 6`)
	label := func(name string) string {
		return strings.NewReplacer("\u00a0", " ", "\u202f", " ").Replace(eval[string](b, fmt.Sprintf(`[...document.querySelectorAll(".box")].map((e) => e.getAttribute("aria-label")).find((l) => l.startsWith(%q)) ?? ""`, name)))
	}
	for name, want := range map[string]string{
		"Deployment web-a": "ending", "pods ×3": "1 gone · 1 ending · 1 still there ≤ ", "ConfigMap held": "held · by acme.io/hold",
		"Secret shared": "Deployment shop/other keeps it", "Deployment other": "keeps what it owns",
	} {
		if got := label(name); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	// The grace period counts down, where it is seen.
	left := `[...document.querySelectorAll(".box text")].map((e) => e.textContent).find((t) => t.startsWith("≤")) ?? ""`
	if first := eval[string](b, left); first == "" {
		t.Error("no grace period is shown")
	} else {
		b.until(fmt.Sprintf("(%s) !== %q", left, first))
	}
	if thick := eval[int](b, `document.querySelectorAll(".edge.blocking").length`); thick != 2 {
		t.Errorf("%d lines are thick, want 2", thick)
	}
	at := func(name string) float64 {
		return eval[float64](b, fmt.Sprintf(`[...document.querySelectorAll(".box")].find((e) => e.getAttribute("aria-label").startsWith(%q)).getBoundingClientRect().left`, name))
	}
	if !(at("Deployment web-a") < at("ReplicaSet web-1") && at("ReplicaSet web-1") < at("pods")) || at("Deployment other") >= at("Secret") {
		t.Error("owners are not left of their dependents")
	}
	b.untilText("ConfigMap shop/held: finalizer acme.io/hold: Deployment acme/operator serves it, and is scaled to 0")
	b.until(`[...document.querySelectorAll("dd")].some((d) => d.textContent === "Stuck")`)
	b.until(`[...document.querySelectorAll(".box.held text")].some((e) => e.textContent.startsWith("served by Deployment acme/oper"))`)
	b.until(`document.querySelector(".box.held").getAttribute("aria-label").includes("served by Deployment acme/operator")`)
	b.click(".box.held")
	b.untilText("finalizer acme.io/hold, which Deployment acme/operator removes; its controller is scaled to 0")
	b.untilText("coppice undo a")
	one.send("objects", []object{{"uid": "held", "kind": "ConfigMap", "namespace": "shop", "name": "held", "marked": now(), "gone": now(), "owners": []object{{"uid": "root"}}}})
	b.until(`!document.querySelector(".box.held")`)
	b.accessible()
}

// An object that the server refuses to delete is held by the refuser; when it is gone, the page still says so.
func TestRefusedObjectIsHeldByTheRefuser(t *testing.T) {
	c, _, one := newStories()
	refusal := object{"by": "policy", "refuser": "keep", "binding": "all", "message": "it is kept", "since": now(), "count": 3}
	refused := object{"uid": "held", "kind": "ConfigMap", "namespace": "shop", "name": "held", "owners": []object{{"uid": "root"}}, "refusal": refusal}
	one.send("story", summary("a", 1, 1, 0))
	one.send("objects", []object{{"uid": "root", "kind": "Deployment.apps", "namespace": "shop", "name": "web-a", "marked": now(), "gone": now()}, refused})
	b := newTab(t, serve(t, c), 1280, 900)
	b.open("story/a")
	b.until(`document.querySelector(".box.held")?.getAttribute("aria-label").includes("held · by ValidatingAdmissionPolicy keep")`)
	b.click(".box.held")
	b.untilText("by ValidatingAdmissionPolicy keep: it is kept")
	refusal["ended"], refused["gone"] = now(), now()
	one.send("objects", []object{refused})
	b.until(`!document.querySelector(".box.held")`)
	b.untilText("was refused from")
	b.accessible()
}

// If no finalizer holds an object and the deletion makes no progress, the page names the object that it waits for.
func TestStoryThatIsStuck(t *testing.T) {
	c, _, one := newStories()
	stuck := summary("a", 0, 1, 0)
	stuck["rate"], stuck["waitsFor"] = 0, "the dependents of Deployment.apps shop/web-a"
	one.send("story", stuck)
	one.send("objects", []object{{"uid": "root", "kind": "Deployment.apps", "namespace": "shop", "name": "web-a", "marked": now()}})
	b := newTab(t, serve(t, c), 1280, 900)
	b.open("story/a")
	b.untilText("ConfigMap shop/kept is left: it is protected by its label")
	b.untilText("coppice unprotect configmaps/kept")
	b.until(`[...document.querySelectorAll("dd")].some((d) => d.textContent === "Stuck")`)
}

// The scrubber shows the state at each moment, and plays it.
func TestScrubberShowsEachMoment(t *testing.T) {
	c, _, one := newStories()
	begin(one)
	one.send("objects", []object{{"uid": "p2", "kind": "Pod", "namespace": "shop", "name": "web-1-y", "marked": now(), "gone": now(), "owners": []object{{"uid": "rs", "blocking": true}}}})
	b := newTab(t, serve(t, c), 1280, 900)
	b.open("story/a")
	b.untilText("2 objects gone")
	move := func(to int) {
		eval[int](b, fmt.Sprintf(`(() => { const r = document.querySelector("input[type=range]"); r.value = %d; r.dispatchEvent(new Event("input")); return 0; })()`, to))
	}
	move(0)
	b.untilText("0 objects gone")
	move(500)
	b.untilText("1 object gone")
	b.click(`.scrubber button`)
	b.until(`document.querySelector("input[type=range]").value === "1000"`)
	b.untilText("now: 2 objects gone")
}

// The page draws a change when its event comes, without being asked. The log has the delays, which make page prints.
func TestChangesAreSeenWithoutAsking(t *testing.T) {
	c, list, one := newStories()
	begin(one)
	b := newTab(t, serve(t, c), 1280, 900)
	see := func(expression string, send func()) {
		t.Helper()
		// The browser and the server share the clock of this machine.
		eval[int](b, fmt.Sprintf(`(() => { window.seen = 0; const look = () => { if (%s) requestAnimationFrame(() => { window.seen = Date.now(); }); else requestAnimationFrame(look); }; look(); return 0; })()`, expression))
		sent := time.Now()
		send()
		b.until("window.seen > 0")
		t.Logf("seen after %s", time.UnixMilli(eval[int64](b, "window.seen")).Sub(sent))
	}
	b.open("stories")
	b.untilText("web-a")
	for _, name := range []string{"n", "o", "p"} {
		see(fmt.Sprintf(`document.body.innerText.includes("web-%s")`, name), func() { list.send("story", summary(name, 0, 1, 0)) })
	}
	b.open("story/a")
	b.until(`document.querySelector(".box")`)
	for n := range 3 {
		see(fmt.Sprintf(`document.querySelector("svg").textContent.includes("ServiceAccount late-%d")`, n), func() {
			one.send("objects", []object{{"uid": fmt.Sprint("late-", n), "kind": "ServiceAccount", "namespace": "shop", "name": fmt.Sprint("late-", n), "marked": now(), "owners": []object{{"uid": "root"}}, "holds": []object{{"finalizer": fmt.Sprint("f-", n)}}}})
		})
	}
}

// What does not come because a connection breaks is requested again: a script of the page, and an answer.
func TestBrokenConnectionsAreOvercome(t *testing.T) {
	c, _, one := newStories()
	begin(one)
	server, err := url.Parse(serve(t, c))
	if err != nil {
		t.Fatal(err)
	}
	proxy, asked := httputil.NewSingleHostReverseProxy(server), sync.Map{}
	breaking := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, again := asked.LoadOrStore(r.URL.Path, true); !again && (strings.HasSuffix(r.URL.Path, ".js") || r.URL.Path == "/coppice/v1/stories") {
			panic(http.ErrAbortHandler)
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(breaking.Close)
	b := newTab(t, breaking.URL, 1280, 900)
	b.open("stories")
	b.untilText("web-a")
	b.forgive("net::ERR_EMPTY_RESPONSE")
}

// A cascade of ten thousand objects is drawn smoothly while it happens.
func TestTenThousand(t *testing.T) {
	const pods, batch = 10_000, 100
	c, _, one := newStories()
	begin(one)
	pod := func(n int, more object) object {
		o := object{"uid": fmt.Sprint("pod-", n), "kind": "Pod", "namespace": "shop", "name": fmt.Sprint("web-1-", n), "owners": []object{{"uid": "rs", "blocking": true}}}
		maps.Copy(o, more)
		return o
	}
	var all []object
	for n := range pods {
		all = append(all, pod(n, nil))
	}
	one.send("objects", all)
	b := newTab(t, serve(t, c), 1280, 900)
	b.open("story/a")
	b.untilText("pods ×10 003")
	eval[int](b, `(() => { window.times = []; const f = (t) => { window.times.push(t); requestAnimationFrame(f); }; requestAnimationFrame(f); return 0; })()`)
	pace := time.NewTicker(20 * time.Millisecond) // 5 000 objects a second, which is more than any server here deletes
	defer pace.Stop()
	for n := 0; n < pods; n += batch {
		<-pace.C
		marked := now()
		var changed []object
		for m := n; m < n+batch; m++ {
			changed = append(changed, pod(m, object{"marked": marked, "gone": now()}))
		}
		one.send("objects", changed)
	}
	b.untilText("10 001 objects gone")
	times := eval[[]float64](b, "window.times")
	seconds := (times[len(times)-1] - times[0]) / 1000
	longest := 0.0
	for n := 1; n < len(times); n++ {
		longest = max(longest, times[n]-times[n-1])
	}
	rate := float64(len(times)-1) / seconds
	t.Logf("%.0f frames a second for %.1f s; the longest took %.0f ms", rate, seconds, longest)
	if rate < leastFrames {
		t.Errorf("%.0f frames a second, want %d", rate, leastFrames)
	}
}
