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

// A large answer is sent in full; one that is too large is refused, before anything is sent.
func TestAnswersAreBounded(t *testing.T) {
	item := explain.Explanation{Unseen: []string{strings.Repeat("x", 1<<20)}}
	for items, code := range map[int]int{0: http.StatusOK, 5: http.StatusOK, 70: http.StatusRequestEntityTooLarge} {
		answer := Explanations{Items: []explain.Explanation{}}
		for range items {
			answer.Items = append(answer.Items, item)
		}
		w := httptest.NewRecorder()
		if err := writeJSON(w, answer); err != nil {
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

// An answer that is too large to keep is not kept: the memory holds no more than one write.
func TestLargeAnswersAreNotKept(t *testing.T) {
	s := &spool{}
	for range 40 {
		if _, err := s.Write(make([]byte, 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if s.kept.Len() > mostKept || s.bytes != 40<<20 {
		t.Errorf("%d of %d bytes are kept", s.kept.Len(), s.bytes)
	}
	produced := 0
	err := write(httptest.NewRecorder(), "text/plain", func(out io.Writer) error {
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
}
