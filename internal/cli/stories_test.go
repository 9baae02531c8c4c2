package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// tellStories serves the stories of a running collector: two deletions, of which one is in progress and ends during a
// watch.
func tellStories(w http.ResponseWriter, r *http.Request) {
	began := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	web := story.Summary{
		ID: "uid-web", Root: story.Ref{Kind: "Deployment.apps", Namespace: "shop", Name: "web", UID: "uid-web"}, More: 1, Policy: "Background",
		By: &story.By{User: "ann"}, Began: began, Gone: 3, Waiting: 1, WaitsFor: "the finalizer x/hold of Pod shop/p",
	}
	done := web
	done.Done, done.Ended, done.Gone, done.Waiting, done.WaitsFor = true, &began, 4, 0, ""
	event := func(name string, id int, value any) {
		data, _ := json.Marshal(value)
		fmt.Fprintf(w, "event: %s\nid: %d\ndata: %s\n\n", name, id, data)
	}
	switch after := r.URL.Query().Get("after"); strings.TrimPrefix(r.URL.Path, api.Stories) {
	case "":
		old := story.Summary{ID: "uid-old", Root: story.Ref{Kind: "Node", Name: "n1"}, Began: began, Ended: &began, Done: true}
		_ = json.NewEncoder(w).Encode(api.StoryList{Items: []story.Summary{web, old}, Unread: []string{"secrets: objects that you may not list are left out"}})
	case "/uid-web":
		if r.URL.Query().Get("format") == "text" {
			fmt.Fprintln(w, "Deployment.apps shop/web: being deleted")
			return
		}
		_ = json.NewEncoder(w).Encode(api.Story{Summary: web, Objects: []story.Object{{Ref: story.Ref{Kind: "Pod", Namespace: "shop", Name: "web-1"}}}})
	case "/uid-web/watch":
		if after == "0" { // the server ends the first request
			event(api.EventStory, 7, web)
			event(api.EventObjects, 7, []story.Object{{Ref: web.Root}})
			return
		}
		event(api.EventStory, 8, done)
	case "/watch":
		if after != "0" {
			http.Error(w, "standing by: another leads", http.StatusServiceUnavailable)
			return
		}
		event(api.EventStory, 9, web)
	case "/uid-merged/watch":
		event(api.EventRemoved, 9, map[string]string{"id": "uid-merged"})
	default:
		if strings.HasPrefix(r.URL.Path, api.Stories) {
			http.Error(w, "no record of this deletion", http.StatusNotFound)
			return
		}
		http.NotFound(w, r)
	}
}

// TestTableOfStories: the table has each column, also where the request is unknown.
func TestTableOfStories(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	stories := []story.Summary{
		{
			ID: "a", Root: story.Ref{Kind: "Deployment.apps", Namespace: "shop", Name: "web"}, More: 1, Policy: "Foreground",
			By: &story.By{User: "ann"}, Began: now.Add(-time.Minute), Gone: 3, Waiting: 2, Kept: 1, WaitsFor: "the finalizer x/hold of Pod shop/p",
		},
		{ID: "b", Root: story.Ref{Kind: "Node", Name: "n1"}, Began: now.Add(-time.Hour), Done: true, Gone: 1},
	}
	var out strings.Builder
	if err := writeStories(&out, stories, now); err != nil {
		t.Fatal(err)
	}
	want := `
ID  OBJECT                               POLICY      ASKED BY  GONE  WAITING  KEPT  AGE  STATE
a   Deployment.apps shop/web and 1 more  Foreground  ann       3     2        1     60s  waits for the finalizer x/hold of Pod shop/p
b   Node n1                                          unknown   1     0        0     60m  done
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("printed:%s\nwant:%s", got, want)
	}
}

// TestWriteStory: a story in the namespace is printed again only if its line has changed.
func TestWriteStory(t *testing.T) {
	var out strings.Builder
	w := &storyWriter{format: "table", in: "shop", out: &out, before: map[string]string{}}
	pod := story.Ref{Kind: "Pod", Namespace: "shop", Name: "p"}
	for _, one := range []story.Summary{
		{ID: "a", Root: pod, Rate: 1},
		{ID: "a", Root: pod, Rate: 2},
		{ID: "a", Root: pod, Done: true},
		{ID: "b", Root: story.Ref{Kind: "Pod", Namespace: "other", Name: "p"}},
	} {
		if err := w.write(&one); err != nil {
			t.Fatal(err)
		}
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "in progress\n") || !strings.Contains(got, "done\n") {
		t.Errorf("printed:\n%s", got)
	}
}
