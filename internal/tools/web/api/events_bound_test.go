package api

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// A stream has the same bound in bytes as any answer: it ends before the event that would exceed it.
func TestStreamsAreBounded(t *testing.T) {
	recorder := httptest.NewRecorder()
	out := newEvents(recorder)
	large := strings.Repeat("x", 1<<20)
	for n := uint64(1); out.flush(); n++ {
		if n > mostAnswer>>20 {
			t.Fatal("the stream has no bound")
		}
		out.add(EventRecord, n, large)
	}
	out.add(EventRecord, 1, "small")
	text := recorder.Body.String()
	if len(text) > mostAnswer || len(text) < mostAnswer-2<<20 {
		t.Errorf("it has %d bytes", len(text))
	}
	if !strings.HasSuffix(text, "xxx\"\n\n") || strings.Contains(text, "small") {
		t.Errorf("it ends with %q", text[len(text)-20:])
	}
	small := newEvents(httptest.NewRecorder())
	if small.add(EventGone, 0, "x"); !small.flush() {
		t.Error("a small event ends the stream")
	}
}
