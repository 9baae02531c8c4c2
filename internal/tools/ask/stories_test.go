package ask

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/story"
)

// The watch of one story ends when the story is done, when it is removed, or with an error.
func TestWatchOfOneStoryEnds(t *testing.T) {
	t.Parallel()
	const open, done = `{"id": "a", "root": {"kind": "Pod", "name": "p"}}`, `{"id": "a", "done": true}`
	errVisit := errors.New("cannot print")
	for _, test := range []struct {
		name, events string
		visit        error
		want         string // error
		visits       int
	}{
		{name: "done", events: "story " + open + "\nobjects []\nstory " + done, visits: 2},
		{name: "removed", events: "story " + open + "\nremoved {}", visits: 1, want: "has expired"},
		{name: "invalid", events: "story {", want: "read a deletion"},
		{name: "visit fails", events: "story " + open, visit: errVisit, visits: 1, want: "cannot print"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			events := strings.Split(test.events, "\n")
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // one event for each request
				next := 0
				_, _ = fmt.Sscan(r.URL.Query().Get("after"), &next)
				if r.URL.Path != "/coppice/v1/stories/a/watch" || next >= len(events) {
					http.Error(w, "no such event", http.StatusNotFound)
					return
				}
				name, data, _ := strings.Cut(events[next], " ")
				fmt.Fprintf(w, "event: %s\nid: %d\ndata: %s\n\n", name, next+1, data)
			}))
			defer server.Close()
			c, err := newCollector(&rest.Config{Host: server.URL}, "", "")
			if err != nil {
				t.Fatal(err)
			}
			visits := 0
			err = c.WatchStories(t.Context(), "a", func(story.Summary) error {
				visits++
				return test.visit
			})
			if visits != test.visits || test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%d stories and error %v, want %d and %q", visits, err, test.visits, test.want)
			}
		})
	}
}
