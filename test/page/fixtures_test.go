package page

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/tools/preview"
	"github.com/coppice-dev/coppice/internal/tools/web/api"
)

// TestFixturesArePossibleAnswers: the fixtures of the other tests are possible answers of a collector: each answer and event has
// the fields of its Go type, and no other.
func TestFixturesArePossibleAnswers(t *testing.T) {
	c, _, one := newStories()
	for path, into := range map[string]any{
		api.Status:                           &report.Status{},
		api.Deletions:                        &api.DeletionList{},
		api.Protected:                        &api.ProtectedList{},
		api.Preview + "?object=deploy%2Fweb": &preview.Report{},
		api.Stories:                          &api.StoryList{},
		api.Explain + "?uid=held":            &api.Explanations{},
		api.Explain + "?uid=root":            &api.Explanations{},
	} {
		answer := httptest.NewRecorder()
		c.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		if answer.Code != http.StatusOK {
			t.Errorf("%s: %d", path, answer.Code)
		}
		strictly(t, path, answer.Body.Bytes(), into)
	}
	begin(one)
	for _, event := range one.sent {
		name, _, _ := strings.Cut(strings.TrimPrefix(event, "event: "), "\n")
		_, data, _ := strings.Cut(event, "data: ")
		var into any = &story.Summary{}
		if name == "objects" {
			into = &[]story.Object{}
		}
		strictly(t, "event "+name, []byte(data), into)
	}
}

// strictly decodes a value and refuses fields that its type does not have.
func strictly(t *testing.T, what string, text []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}
