package mcpserver

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/coppice-dev/coppice/internal/collect/story"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/insight"
)

// TestAnswersAreBounded: a preview of 10 000 objects with hostile texts has at most 2000 tokens, and its pages list
// each object once. call checks the bytes.
func TestAnswersAreBounded(t *testing.T) {
	for _, objects := range []int{1, 100, 10_000} {
		f, s := newFake(Deleting)
		f.report, f.notes = large(objects), strings.Repeat(hostile+"\n", 1000)
		c := connected(t, s)
		call(t, c, "preview", map[string]any{"objects": []string{"pod/" + strings.Repeat("<", 100), "pod/" + strings.Repeat("a", 250)}})
		got := call(t, c, "preview", pod(nil))
		if got.isError || got.data["digest"] != f.report.Digest || int(got.data["deleted"].(float64)) != objects {
			t.Fatalf("%d objects: %+v", objects, got)
		}
		if objects < 1000 {
			listed, cursor := 0, any("all")
			for cursor != nil {
				page := call(t, c, "preview", pod(map[string]any{"cursor": cursor}))
				if page.isError {
					t.Fatal(page.text)
				}
				listed += len(page.data["objects"].([]any))
				cursor = page.data["cursor"]
			}
			if listed != objects {
				t.Errorf("the pages list %d of %d objects", listed, objects)
			}
		}
		call(t, c, "delete", pod(map[string]any{"digest": f.report.Digest}))
		if got := call(t, c, "undo", map[string]any{"backup": "b.backup"}); got.isError {
			t.Errorf("undo: %s", got.text)
		}
	}
}

// TestTextsOfAnswersAreBounded: an answer with hostile texts in all places is within its limit.
func TestTextsOfAnswersAreBounded(t *testing.T) {
	long := strings.Repeat(hostile, 1000)
	ref := explain.Ref{Kind: long, Namespace: long, Name: long, UID: ownership.UID(long)}
	wait := explain.Wait{On: explain.OnFinalizer, State: explain.Stuck, Says: long, Next: []explain.Step{{Says: long, Command: long}}}
	found := ask.Explanations{Unread: []string{long, long, long, long, long}}
	var graph insight.Graph
	for range 100 {
		found.Groups = append(found.Groups, explain.Group{Leaf: wait, Objects: []explain.Ref{ref, ref, ref, ref}})
		found.Objects = append(found.Objects, explain.Explanation{Object: ref, State: explain.Stuck, Waits: []explain.Wait{wait, wait, wait, wait}})
		found.Deleted = append(found.Deleted, history.Explanation{Object: ref, Causes: []history.Cause{{Says: long}}})
		graph.Objects = append(graph.Objects, insight.Object{UID: "u", Kind: long, Group: long, Name: long, Phase: long})
		graph.References = append(graph.References, insight.Reference{Dependent: "u", Owner: ownership.UID(long), Standing: long})
	}
	check := func(name string, a answer) {
		t.Helper()
		structure, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(a.text())
		if err != nil {
			t.Fatal(err)
		}
		if sum := len(structure) + len(text) + 200; sum > mostAnswer || len(structure) < 1000 {
			t.Errorf("%s: the answer has %d bytes", name, sum)
		}
	}
	items := explainedOf(found)
	for name, from := range map[string]int{"groups": 0, "objects": 100, "deleted": 200} {
		a := &ExplainAnswer{}
		a.Items = fill(&a.Page, items, same, window{from: from, most: mostPage})
		a.note(found.Unread...)
		a.Summary = items[from].Objects[0] + items[from].Causes[0].Says
		check(name, a)
	}
	g := &GraphAnswer{}
	g.Objects = fill(&g.Page, graph.Objects, graphObject(graph), window{most: mostPage})
	g.note(found.Unread...)
	check("graph", g)
	summary := story.Summary{ID: ownership.UID(long), Root: story.Ref{Kind: long, Namespace: long, Name: long}, By: &story.By{User: long}, Policy: long, WaitsFor: long}
	check("story", &StoriesAnswer{Page: Page{Summary: storyItem(&summary).Object}, Deletions: []StoryItem{storyItem(&summary)}})
}

// TestCursorOfAnotherPreviewIsRefused: pages of two previews do not mix.
func TestCursorOfAnotherPreviewIsRefused(t *testing.T) {
	f, s := newFake(ReadOnly)
	f.report = large(100)
	c := connected(t, s)
	cursor := call(t, c, "preview", pod(map[string]any{"cursor": "all"})).data["cursor"]
	f.change(strings.Repeat("e", 64))
	for _, bad := range []any{cursor, "eeeeeeeeeeee:-1", "eeeeeeeeeeee:99999999999999999999", "x", hostile} {
		if got := call(t, c, "preview", pod(map[string]any{"cursor": bad})); !got.isError || !strings.Contains(got.text, "without a cursor") {
			t.Errorf("cursor %v: %+v", bad, got)
		}
	}
}

// TestMalformedArgumentsAreRefused: an error names the mistake, and is bounded and escaped.
func TestMalformedArgumentsAreRefused(t *testing.T) {
	_, s := newFake(Deleting)
	c := connected(t, s)
	many := make([]string, mostObjects+1)
	for n := range many {
		many[n] = "pod/p"
	}
	for _, test := range []struct {
		tool      string
		arguments any
		says      string
	}{
		{"preview", map[string]any{}, "name the objects"},
		{"preview", map[string]any{"objects": "pod/p"}, "type"},
		{"preview", map[string]any{"objects": []string{"pod"}}, "is not TYPE/NAME"},
		{"preview", map[string]any{"objects": []string{"pod/"}}, "is not TYPE/NAME"},
		{"preview", map[string]any{"objects": []string{"pod/a/b"}}, "is not TYPE/NAME"},
		{"preview", map[string]any{"objects": []string{"pods,secrets/a"}}, "is not TYPE/NAME"},
		{"preview", map[string]any{"objects": []string{"--all/x"}}, "begins with a dash"},
		{"preview", map[string]any{"objects": many}, "more than 64"},
		{"preview", map[string]any{"objects": []string{"pod/" + strings.Repeat("a", mostArgument)}}, "more than 512"},
		{"preview", map[string]any{"objects": []string{"pod/" + strings.Repeat("a", 2*mostArguments)}}, "more than 16384"},
		{"preview", map[string]any{"objects": []string{hostile}}, "is not TYPE/NAME"},
		{"preview", map[string]any{"type": "pods"}, "either a selector or all"},
		{"preview", map[string]any{"type": "pods", "selector": "a=b", "all": true}, "either a selector or all"},
		{"preview", map[string]any{"type": "pods,secrets", "all": true}, "is not one type"},
		{"preview", map[string]any{"objects": []string{"pod/p"}, "all": true}, "need a type"},
		{"preview", pod(map[string]any{"type": "pods"}), "exclude each other"},
		{"preview", pod(map[string]any{"cascade": hostile}), "is unknown"},
		{"preview", pod(map[string]any{"namespace": "-A"}), "begins with a dash"},
		{"graph", map[string]any{}, "name the objects"},
		{"graph", map[string]any{"objects": []string{"pod/p"}, "part": "all"}, "choose owners"},
		{"wait", map[string]any{}, "either the deleted objects"},
		{"wait", map[string]any{"objects": []string{"pod/p"}, "timeoutSeconds": 601}, "not between"},
		{"wait", map[string]any{"objects": []string{"pod/p"}, "timeoutSeconds": 1e30}, "int"},
		{"explain", map[string]any{"cursor": "-5"}, "is not of an answer"},
		{"undo", map[string]any{}, "either a backup or a deletion"},
		{"undo", map[string]any{"backup": "../../etc/shadow"}, "is not the name of a backup"},
		{"undo", map[string]any{"backup": `..\x`}, "is not the name of a backup"},
		{"undo", map[string]any{"backup": "."}, "is not the name of a backup"},
		{"undo", map[string]any{"deletion": "/etc/shadow"}, "is not TYPE/NAME"},
		{"delete", pod(nil), "digest"},
		{hostile, nil, "unknown tool"},
	} {
		got := call(t, c, test.tool, test.arguments)
		if !got.isError || !strings.Contains(got.text, test.says) || len(got.text) > mostError+100 {
			t.Errorf("%.20q %.200v: %.500q, want %q", test.tool, test.arguments, got.text, test.says)
		}
	}
}

// FuzzClip: a clipped text is one line without control characters, is bounded in JSON, and is valid.
func FuzzClip(f *testing.F) {
	f.Add(hostile, 10)
	f.Add(strings.Repeat("<", 1000), 300)
	f.Add("\xff\xfe", 1)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 1 || most > 10_000 {
			t.Skip()
		}
		got := clip(text, most)
		encoded, err := json.Marshal(got)
		if err != nil || len(encoded) > most+40 || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\r\x1b\u202e") {
			t.Errorf("clip(%q, %d) is %q, %d bytes in JSON, %v", text, most, got, len(encoded), err)
		}
	})
}
