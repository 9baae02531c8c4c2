package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/insight"
)

// The names of the events.
const (
	EventRecord = "record" // a record of the collector; the event's id is the record's number
	EventObject = "object" // a named object, when the watch begins and when the object changes
	EventGone   = "gone"   // a named object that no longer exists
)

const (
	// interval is the longest delay of an event.
	interval = 250 * time.Millisecond
	// longest bounds the time for which one request gets events: servers end requests after a minute, and
	// the rights of the caller may change. Clients ask again, from the last record that they received.
	longest = 50 * time.Second
	// lastWrite is the time for the beginning of a stream and its last event, beyond longest.
	lastWrite = 5 * time.Second
)

// stream is the state of one watch.
type stream struct {
	*handler

	out     *events
	sight   *Sight
	wanted  func(*report.Record) bool
	last    uint64 // the number of the last record
	watched map[ownership.UID]string
}

// watch sends events until the caller disconnects, or has to ask again.
func (h *handler) watch(w http.ResponseWriter, r *http.Request, s *Sight) error {
	wanted, err := h.recordsWanted(r, s)
	if err != nil {
		return err
	}
	uids, err := h.named(r, s)
	if err != nil {
		return err
	}
	last, err := after(r)
	if err != nil {
		return err
	}
	to := &stream{handler: h, out: newEvents(w), sight: s, wanted: wanted, last: last, watched: map[ownership.UID]string{}}
	for _, uid := range uids {
		to.watched[uid] = ""
	}
	ctx, cancel := context.WithTimeout(r.Context(), longest)
	defer cancel()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := to.changes(ctx); err != nil {
			return nil // the answer has begun: it ends here, and the caller asks again
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// after returns the number of the last record that a caller received.
func after(r *http.Request) (uint64, error) {
	text := r.Header.Get("Last-Event-ID") // browsers set it when they reconnect
	if text == "" {
		text = r.URL.Query().Get("after")
	}
	if text == "" {
		return 0, nil
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, &refusal{http.StatusBadRequest, fmt.Sprintf("after=%q is not the number of a record", text)}
	}
	return number, nil
}

// changes sends the new records and the changes of watched objects.
func (t *stream) changes(ctx context.Context) error {
	for _, record := range t.source.Records(t.last) {
		t.last = record.Number
		if !t.wanted(&record) {
			continue
		}
		seen, err := t.sight.record(ctx, &record)
		if err != nil {
			return err
		}
		if seen {
			t.out.add(EventRecord, record.Number, record)
		}
	}
	if err := t.objects(ctx); err != nil {
		return err
	}
	if !t.out.flush() {
		return errStreamEnds
	}
	return nil
}

// objects sends the watched objects that have changed.
func (t *stream) objects(ctx context.Context) error {
	if len(t.watched) == 0 {
		return nil
	}
	uids := make([]ownership.UID, 0, len(t.watched))
	for uid := range t.watched {
		uids = append(uids, uid)
	}
	slices.Sort(uids)
	g, err := t.sight.picture(ctx, t.source.View, insight.Looker.Owners, uids)
	if err != nil {
		return err
	}
	there := make(map[ownership.UID]insight.Object)
	for _, o := range g.Objects {
		if !o.Missing {
			there[o.UID] = o
		}
	}
	for _, uid := range uids {
		o, ok := there[uid]
		if !ok {
			delete(t.watched, uid)
			t.out.add(EventGone, 0, insight.Object{UID: uid})
			continue
		}
		if state := fmt.Sprint(o.Phase, o.Finalizers, o.Decision); t.watched[uid] != state {
			t.watched[uid] = state
			t.out.add(EventObject, 0, o)
		}
	}
	return nil
}

// errStreamEnds is the error for a stream that ends: the caller has disconnected, or the answer has reached its bound.
var errStreamEnds = errors.New("the stream ends")

// events writes server-sent events. Together they have the same bound as any answer: at the bound, the stream ends, and
// the caller asks for the rest with the last ID.
type events struct {
	out    http.ResponseWriter
	budget int // bytes
	isOver bool
}

func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return &events{out: w, budget: mostAnswer}
}

// add writes an event, with an ID unless that is zero. flush reports an error.
func (e *events) add(event string, id uint64, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		return // does not occur: all events can be encoded
	}
	text := "event: " + event + "\n"
	if id != 0 {
		text += "id: " + strconv.FormatUint(id, 10) + "\n"
	}
	if e.budget -= len(text) + len(data); e.budget < 0 {
		e.isOver = true
	}
	if e.isOver {
		return
	}
	_, err = fmt.Fprintf(e.out, "%sdata: %s\n\n", text, escape.Text(string(data))) // as in other answers
	e.isOver = err != nil
}

// flush reports whether the stream goes on.
func (e *events) flush() bool {
	return http.NewResponseController(e.out).Flush() == nil && !e.isOver
}
