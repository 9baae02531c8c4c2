package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/ownership"
	"github.com/coppice-dev/coppice/internal/story"
	"github.com/coppice-dev/coppice/internal/terminal"
)

// The names of the events of stories.
const (
	EventStory   = "story"   // a summary that has changed
	EventRemoved = "removed" // a story that is not told any more: its id
	EventObjects = "objects" // objects of the story that have changed, or all at first
)

const (
	// storyBatch is for how long the changes of a story are gathered before they are sent, and listBatch those
	// of the list.
	storyBatch = 40 * time.Millisecond
	listBatch  = 100 * time.Millisecond
	// storyTick is how often it is looked whether a story has ended by nothing happening.
	storyTick = time.Second
)

// StoryList is the answer about all stories.
type StoryList struct {
	Items []story.Summary `json:"items"` // the latest first
	// Unread says what was left out.
	Unread []string `json:"unread,omitempty"`
}

// Story is the answer about one story. The counts are of all of its objects.
type Story struct {
	story.Summary

	Objects []story.Object `json:"objects"`
	// Unread says what was left out.
	Unread []string `json:"unread,omitempty"`
}

// teller tells stories to one caller, as far as they may list what these are of.
type teller struct {
	book  *story.Book
	sight *Sight
	ctx   context.Context //nolint:containedctx // of the one request that it is made for
	err   error           // of the API server, which was asked about the caller
}

// teller returns who tells stories; an error if no collector works here.
func (h *handler) teller(r *http.Request, s *Sight) (*teller, error) {
	book := h.source.Stories()
	if book == nil {
		return nil, &refusal{http.StatusServiceUnavailable, "no collector works in this process"}
	}
	return &teller{book: book, sight: s, ctx: r.Context()}, nil
}

// sees implements story.Sees.
func (t *teller) sees(object story.Ref) bool {
	if t.err != nil {
		return false
	}
	seen, err := t.sight.sawNamed(t.ctx, object.Kind, object.Namespace, object.NamespaceUID)
	t.err = err
	return seen && err == nil
}

func now() time.Time { return time.Now() } //nolint:forbidigo // when somebody asks

// stories answers with all stories.
func (h *handler) stories(w http.ResponseWriter, r *http.Request, s *Sight) error {
	t, err := h.teller(r, s)
	if err != nil {
		return err
	}
	list := StoryList{Items: []story.Summary{}}
	list.Items = append(list.Items, t.book.List(t.sees, now())...)
	if t.err != nil {
		return t.err
	}
	list.Unread = s.Unread()
	return writeJSON(w, list)
}

// story answers with one story, as JSON or as text.
func (h *handler) story(w http.ResponseWriter, r *http.Request, s *Sight) error {
	t, err := h.teller(r, s)
	if err != nil {
		return err
	}
	at := now()
	summary, objects, _, found := t.book.Story(ownership.UID(r.PathValue("id")), 0, t.sees, at)
	switch format := r.URL.Query().Get("format"); {
	case t.err != nil:
		return t.err
	case !found:
		return errNoStory
	case format == "text":
		text := terminal.Escape(summary.Text(objects, at))
		return write(w, "text/plain; charset=utf-8", func(out io.Writer) error {
			_, err := io.WriteString(out, text)
			return err //nolint:wrapcheck // says all of it
		})
	case format != "" && format != "json":
		return &refusal{http.StatusBadRequest, fmt.Sprintf("format is %q: it is json or text", format)}
	}
	return writeJSON(w, Story{Summary: summary, Objects: objects, Unread: s.Unread()})
}

var errNoStory = &refusal{http.StatusNotFound, "no such story is told: it may be too long ago, or you may not list what was deleted"}

// watchStories sends summaries of all stories, and again when they change.
func (h *handler) watchStories(w http.ResponseWriter, r *http.Request, s *Sight) error {
	t, err := h.teller(r, s)
	if err != nil {
		return err
	}
	last, err := after(r)
	if err != nil {
		return err
	}
	if last > t.book.Changes() {
		last = 0 // it was another process that the caller has heard it from
	}
	open := map[ownership.UID]bool{} // stories that were sent, and were not done
	send := func(events *events) bool {
		changed, removed, at := t.book.Since(last, t.sees, now())
		for _, one := range changed {
			open[one.ID] = !one.Done
			events.add(EventStory, at, one)
		}
		for _, id := range removed {
			delete(open, id)
			events.add(EventRemoved, at, map[string]any{"id": id})
		}
		last = at
		return true
	}
	ended := func(events *events) {
		for id, isOpen := range open {
			one, _, _, found := t.book.Story(id, story.End, t.sees, now())
			if isOpen && found && one.Done {
				open[id] = false
				events.add(EventStory, last, one)
			}
		}
	}
	return t.follow(w, listBatch, func() uint64 { return last }, send, ended)
}

// watchStory sends a story, then its objects as they change.
func (h *handler) watchStory(w http.ResponseWriter, r *http.Request, s *Sight) error {
	t, err := h.teller(r, s)
	if err != nil {
		return err
	}
	id := ownership.UID(r.PathValue("id"))
	since, err := positionOf(r)
	if err != nil {
		return err
	}
	if _, _, end, found := t.book.Story(id, story.End, t.sees, now()); !found {
		return errNoStory
	} else if since > end {
		since = 0 // as above
	}
	var last uint64
	var isDone, isTold bool
	send := func(events *events) bool {
		last = t.book.Changes()
		summary, objects, next, found := t.book.Story(id, since, t.sees, now())
		if !found {
			events.add(EventRemoved, uint64(next), map[string]any{"id": id})
			return false
		}
		if isTold && next == since && summary.Done == isDone {
			return true // something else has changed
		}
		events.add(EventStory, uint64(next), Story{Summary: summary, Unread: t.sight.Unread()})
		if len(objects) > 0 {
			events.add(EventObjects, uint64(next), objects)
		}
		since, isDone, isTold = next, summary.Done, true
		return true
	}
	return t.follow(w, storyBatch, func() uint64 { return last }, send, func(e *events) { send(e) })
}

// positionOf returns the position in a story that a caller has come to.
func positionOf(r *http.Request) (story.Position, error) {
	number, err := after(r)
	return story.Position(min(number, uint64(story.End))), err //nolint:gosec // it is no more than End
}

// follow sends events until the caller leaves, has to ask again, or send says that it was the last: at first,
// after each change of the book, and whatever tick has to say.
func (t *teller) follow(w http.ResponseWriter, batch time.Duration, last func() uint64, send func(*events) bool, tick func(*events)) error {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithTimeout(t.ctx, longest)
	defer cancel()
	t.ctx = ctx
	ticker := time.NewTicker(storyTick)
	defer ticker.Stop()
	for {
		out := &events{}
		goesOn := send(out)
		if !out.flush(w) || !goesOn || t.err != nil {
			return nil // the answer has begun: it ends here, and the caller asks again
		}
		if !t.await(ctx, w, ticker.C, last, tick) {
			return nil
		}
		select { // more follows at once, more often than not
		case <-ctx.Done():
			return nil
		case <-time.After(batch): //nolint:forbidigo // somebody looks on
		}
	}
}

// await waits for a change of the book, and sends what tick has to say meanwhile. It reports whether there was
// one, and the caller is still there.
func (t *teller) await(ctx context.Context, w http.ResponseWriter, ticks <-chan time.Time, last func() uint64, tick func(*events)) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.book.Changed(last()):
			return true
		case <-ticks:
			out := &events{}
			tick(out)
			if !out.flush(w) || t.err != nil {
				return false
			}
		}
	}
}

// events are server-sent events that are sent at once.
type events struct{ text strings.Builder }

func (e *events) add(event string, id uint64, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		return // there is nothing in these that cannot be encoded
	}
	e.text.WriteString("event: " + event + "\nid: " + strconv.FormatUint(id, 10) + "\ndata: ")
	e.text.Write(data)
	e.text.WriteString("\n\n")
}

// flush reports whether the caller is still there.
func (e *events) flush(w http.ResponseWriter) bool {
	if _, err := w.Write([]byte(e.text.String())); err != nil {
		return false
	}
	return http.NewResponseController(w).Flush() == nil
}
