package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/insight"
	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// An answer encoded item by item has the same bytes as one encoded as a whole.
func TestEncodeIsJSON(t *testing.T) {
	ended := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	objects := []insight.Object{{UID: "a", Kind: "ConfigMap", Name: "a<b>&\u2028"}, {UID: "b", Kind: "Pod", Finalizers: []string{"x/y"}}}
	for _, value := range []any{
		Graph{},
		Graph{Graph: insight.Graph{Objects: []insight.Object{}, References: []insight.Reference{}}},
		Graph{Graph: insight.Graph{Objects: objects, References: []insight.Reference{{Dependent: "b", Owner: "a"}}}, Unread: []string{"secrets: left out"}},
		RecordList{Items: []report.Record{{Number: 7}}},
		RecordList{Items: []report.Record{}},
		StoryList{Items: []story.Summary{{ID: "a", Ended: &ended, By: &story.By{User: "ada"}}, {}}},
		Story{Summary: story.Summary{ID: "a", Rate: 0.5}, Objects: []story.Object{{Ref: story.Ref{Name: "a"}}}},
		Story{},
		Explanations{Items: []explain.Explanation{{Unseen: []string{"x"}}}},
		DeletionList{},
		ProtectedList{More: 3},
		preview.Report{},
		preview.Report{Objects: []preview.ObjectReport{{More: &preview.MoreReport{Lost: 1}}}},
		struct{}{},
		struct {
			Empty string `json:"empty,omitempty"`
		}{},
		map[string]any{"a": 1},
		object{"nested": object{"b": []string{"c"}}},
	} {
		var want, got bytes.Buffer
		encoder := json.NewEncoder(&want)
		encoder.SetIndent("", "  ")
		if err := encoder.Encode(value); err != nil {
			t.Fatal(err)
		}
		if err := encode(&got, value); err != nil || got.String() != want.String() {
			t.Errorf("%T (%v):\n%s\nwant\n%s", value, err, got.String(), want.String())
		}
	}
}

// Text in any characters has the same bytes, too.
func TestEncodedTextIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.Custom(func(t *rapid.T) any {
			text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[{}\[\],:"\\<\n ]{0,9}`))
			return map[string]any{
				text.Draw(t, "key"): text.Draw(t, "value"), "number": rapid.Float64().Draw(t, "number"), "nil": nil, "none": []any{}, "empty": map[string]any{},
				"list": []any{text.Draw(t, "element"), true, map[string]any{"key": rapid.SliceOf(text).Draw(t, "texts")}},
			}
		})
		value := struct{ Items []any }{rapid.SliceOfN(of, 1, 3).Draw(t, "items")}
		want, err := json.MarshalIndent(value, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := encode(&got, value); err != nil || got.String() != string(want)+"\n" {
			t.Errorf("%v:\n%s\nwant\n%s", err, got.String(), want)
		}
	})
}

// A large answer is sent in full; one that is too large is refused, before anything is sent.
func TestAnswersAreBounded(t *testing.T) {
	item := explain.Explanation{Unseen: []string{strings.Repeat("x", 1<<20)}}
	for items, code := range map[int]int{0: http.StatusOK, 5: http.StatusOK, 70: http.StatusRequestEntityTooLarge} {
		answer := Explanations{Items: []explain.Explanation{}}
		for range items {
			answer.Items = append(answer.Items, item)
		}
		w := httptest.NewRecorder()
		if err := (&handler{}).writeJSON(w, answer); err != nil {
			writeError(w, err)
		}
		if w.Code != code {
			t.Errorf("%d MB: %d %.200s", items, w.Code, w.Body.String())
		}
		var read Explanations
		if err := json.Unmarshal(w.Body.Bytes(), &read); code == http.StatusOK && (err != nil || len(read.Items) != items) {
			t.Errorf("%d MB: %d items (%v)", items, len(read.Items), err)
		}
	}
}

// A long answer takes blocks of the reserve, and gives them back. Without enough of them, it keeps nothing, and is encoded
// twice.
func TestAnswersShareTheMemory(t *testing.T) {
	for _, c := range []struct{ megabytes, taken, produced int }{{1, 0, 1}, {1, mostReserved, 1}, {40, 0, 1}, {40, mostReserved - 39, 1}, {40, mostReserved - 38, 2}} {
		h := &handler{reserve: newReserve()}
		for range c.taken {
			h.reserve.take()
		}
		produced, w := 0, httptest.NewRecorder()
		err := h.write(w, "text/plain", func(out io.Writer) error {
			produced++
			for n := range c.megabytes {
				if _, err := out.Write(bytes.Repeat([]byte{byte('a' + n%26)}, 1<<20)); err != nil {
					return err
				}
				if kept := mostReserved - len(h.reserve.free) - c.taken; kept > n {
					t.Errorf("%d blocks are taken for %d MB", kept, n+1)
				}
			}
			return nil
		})
		if err != nil || produced != c.produced || w.Body.Len() != c.megabytes<<20 || w.Body.Bytes()[w.Body.Len()-1] != byte('a'+(c.megabytes-1)%26) {
			t.Errorf("%+v: %v, produced %d times, %d bytes", c, err, produced, w.Body.Len())
		}
		if len(h.reserve.free) != mostReserved-c.taken {
			t.Errorf("%+v: %d blocks are free afterwards", c, len(h.reserve.free))
		}
	}
}

// An answer that is too large ends at once, and keeps no block.
func TestTooLargeAnswersAreNotKept(t *testing.T) {
	h, produced := &handler{reserve: newReserve()}, 0
	err := h.write(httptest.NewRecorder(), "text/plain", func(out io.Writer) error {
		for range 100 {
			if _, err := out.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
			produced++
		}
		return nil
	})
	if refused, ok := errors.AsType[*refusal](err); !ok || refused.code != http.StatusRequestEntityTooLarge || produced > mostAnswer>>20 {
		t.Errorf("%v after %d MB", err, produced)
	}
	if len(h.reserve.free) != mostReserved {
		t.Errorf("%d blocks are free afterwards", len(h.reserve.free))
	}
}
