package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/collect/storybook"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// The names of the events of stories.
const (
	EventStory   = "story"   // a summary that has changed
	EventRemoved = "removed" // the id of a story that is no longer kept
	EventObjects = "objects" // changed objects of the story; all objects at first
)

const (
	// storyBatch is the time for which the changes of a story are collected before they are sent, and listBatch
	// the same for the list.
	storyBatch = 40 * time.Millisecond
	listBatch  = 100 * time.Millisecond
	// storyTick is the interval of the checks whether a story has ended without an event.
	storyTick = time.Second
)

// StoryList is the answer about all stories.
type StoryList struct {
	Items []story.Summary `json:"items"` // the latest first
	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// Story is the answer about one story. The counts are of the objects that the caller may list.
type Story struct {
	story.Summary

	Objects []story.Object `json:"objects"`
	// Unread says that objects may be left out.
	Unread []string `json:"unread,omitempty"`
}

// teller reads stories for one caller, limited to the objects that the caller may list.
type teller struct {
	book  *storybook.Book
	sight *Sight
	ctx   context.Context //nolint:containedctx // of the one request that it is made for
	err   error           // from a check of the caller's rights
}

// teller returns a teller for the caller; an error if no collector works here.
func (h *handler) teller(r *http.Request, s *Sight) (*teller, error) {
	book := h.source.Stories()
	if book == nil {
		return nil, &refusal{http.StatusServiceUnavailable, "no collector works in this process"}
	}
	return &teller{book: book, sight: s, ctx: r.Context()}, nil
}

// reader returns the filter for the caller; nil for callers who see everything.
func (t *teller) reader() story.Sees {
	if t.sight.all {
		return nil
	}
	return t.sees
}

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
	list.Items = append(list.Items, t.book.List(t.reader(), now())...)
	if t.err != nil {
		return t.err
	}
	list.Unread = s.Unread()
	return h.writeJSON(w, list)
}

// story answers with one story, as JSON or as text.
func (h *handler) story(w http.ResponseWriter, r *http.Request, s *Sight) error {
	t, err := h.teller(r, s)
	if err != nil {
		return err
	}
	at := now()
	summary, objects, _, found := t.book.Story(ownership.UID(r.PathValue("id")), 0, t.reader(), at)
	switch format := r.URL.Query().Get("format"); {
	case t.err != nil:
		return t.err
	case !found:
		return errNoStory
	case format == "text":
		text := summary.Text(objects, at)
		return h.write(w, "text/plain; charset=utf-8", func(out io.Writer) error {
			_, err := io.WriteString(out, text)
			return err
		})
	case format != "" && format != "json":
		return &refusal{http.StatusBadRequest, fmt.Sprintf("format %q is unknown: choose json or text", format)}
	}
	return h.writeJSON(w, Story{Summary: summary, Objects: objects, Unread: s.Unread()})
}

var errNoStory = &refusal{http.StatusNotFound, "no record of this deletion: it may have expired, or you may not list its objects"}

// watchStories sends the summaries of all stories, and again when they change.
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
		last = 0 // the number comes from another process
	}
	sent := map[ownership.UID]*story.Summary{}
	send := func(out *events) bool {
		changed, removed, at := t.book.Since(last, t.reader(), now())
		for n := range changed {
			one := &changed[n]
			if reflect.DeepEqual(sent[one.ID], one) {
				continue // something has changed that the caller does not see
			}
			sent[one.ID] = one
			out.add(EventStory, at, one)
		}
		for _, id := range removed {
			delete(sent, id)
			out.add(EventRemoved, at, map[string]any{"id": id})
		}
		last = at
		return true
	}
	ended := func(out *events) {
		for id, before := range sent {
			if before.Done {
				continue
			}
			if one, _, _, found := t.book.Story(id, story.End, t.reader(), now()); found && one.Done {
				sent[id] = &one
				out.add(EventStory, last, one)
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
	if _, _, end, found := t.book.Story(id, story.End, t.reader(), now()); !found {
		return errNoStory
	} else if since > end {
		since = 0 // the position comes from another process
	}
	var last uint64
	var sent *story.Summary // the last one
	send := func(out *events) bool {
		last = t.book.Changes()
		summary, objects, next, found := t.book.Story(id, since, t.reader(), now())
		if !found {
			out.add(EventRemoved, uint64(next), map[string]any{"id": id})
			return false
		}
		if len(objects) == 0 && reflect.DeepEqual(sent, &summary) {
			since = next
			return true // something has changed that the caller does not see
		}
		out.add(EventStory, uint64(since), Story{Summary: summary, Unread: t.sight.Unread()})
		for len(objects) > 0 {
			some := objects[:min(len(objects), mostInEvent)]
			objects = objects[len(some):]
			at := since // a caller that loses the rest asks for all of it again
			if len(objects) == 0 {
				at = next
			}
			out.add(EventObjects, uint64(at), some)
		}
		since, sent = next, &summary
		return true
	}
	return t.follow(w, storyBatch, func() uint64 { return last }, send, func(out *events) { send(out) })
}

// mostInEvent bounds the objects in one event.
const mostInEvent = 500

// positionOf returns the position that a caller has reached in a story.
func positionOf(r *http.Request) (story.Position, error) {
	number, err := after(r)
	return story.Position(min(number, uint64(story.End))), err
}

// follow sends events until the caller disconnects, has to ask again, or send returns false. It calls send at
// first and after each change of the book, and tick every storyTick while it waits.
func (t *teller) follow(w http.ResponseWriter, batch time.Duration, last func() uint64, send func(*events) bool, tick func(*events)) error {
	out := newEvents(w)
	ctx, cancel := context.WithTimeout(t.ctx, longest)
	defer cancel()
	t.ctx = ctx
	ticker := time.NewTicker(storyTick)
	defer ticker.Stop()
	for {
		goesOn := send(out)
		if !out.flush() || !goesOn || t.err != nil {
			return nil // the answer has begun: it ends here, and the caller asks again
		}
		if !t.await(ctx, out, ticker.C, last, tick) {
			return nil
		}
		select { // further changes usually follow at once
		case <-ctx.Done():
			return nil
		case <-time.After(batch): //nolint:forbidigo // somebody looks on
		}
	}
}

// await waits for a change of the book, and calls tick meanwhile. It returns false if the caller disconnects or
// an error occurs before.
func (t *teller) await(ctx context.Context, out *events, ticks <-chan time.Time, last func() uint64, tick func(*events)) bool {
	for {
		select {
		case <-ctx.Done():
			return false
		case <-t.book.Changed(last()):
			return true
		case <-ticks:
			tick(out)
			if !out.flush() || t.err != nil {
				return false
			}
		}
	}
}
