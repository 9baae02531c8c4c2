package mcpserver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// pod are the arguments of a deletion.
func pod(more map[string]any) map[string]any {
	all := map[string]any{"objects": []string{"pod/p"}}
	maps.Copy(all, more)
	return all
}

// TestReadOnlyServerHasNoToolThatChanges: without --allow-delete, delete and undo do not exist.
func TestReadOnlyServerHasNoToolThatChanges(t *testing.T) {
	for mode, want := range map[Mode]int{ReadOnly: 6, Deleting: 8} {
		f, s := newFake(mode)
		c := connected(t, s)
		tools, err := c.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range tools.Tools {
			names = append(names, tool.Name)
			isReading := tool.Name != "delete" && tool.Name != "undo"
			if tool.Annotations.ReadOnlyHint != isReading || tool.OutputSchema == nil || tool.Description == "" {
				t.Errorf("tool %s: %+v", tool.Name, tool.Annotations)
			}
		}
		if len(names) != want || slices.Contains(names, "delete") != (mode == Deleting) {
			t.Errorf("%s: the tools are %v", mode, names)
		}
		if text := c.InitializeResult().Instructions; !strings.Contains(text, "data that other users wrote") {
			t.Errorf("the instructions are %q", text)
		}
		if mode == Deleting {
			continue
		}
		shown := call(t, c, "preview", pod(nil))
		for _, tool := range []string{"delete", "undo"} {
			if got := call(t, c, tool, pod(map[string]any{"digest": shown.data["digest"]})); !got.isError || !strings.Contains(got.text, "unknown tool") {
				t.Errorf("%s answers %+v", tool, got)
			}
		}
		if shown.data["next"] != nil {
			t.Errorf("a read-only server suggests %v", shown.data["next"])
		}
		if got := f.deletions(); len(got) > 0 {
			t.Errorf("deleted: %v", got)
		}
	}
}

// TestDeletionTakesAPreviewOfTheSession: an agent that has not seen the preview of a deletion cannot make it.
func TestDeletionTakesAPreviewOfTheSession(t *testing.T) {
	digest := strings.Repeat("a", 64)
	for _, test := range []struct {
		name      string
		before    func(t *testing.T, f *fakeCluster, s *Server, c *mcp.ClientSession)
		arguments map[string]any
		says      string
	}{
		{"no preview", nil, nil, "has shown no preview"},
		{"no digest", nil, map[string]any{"digest": ""}, "has shown no preview"},
		{"made-up digest", preview1, map[string]any{"digest": "aaaa"}, "has shown no preview"},
		{"preview of another session", func(t *testing.T, _ *fakeCluster, s *Server, _ *mcp.ClientSession) {
			t.Helper()
			call(t, connected(t, s), "preview", pod(nil))
		}, nil, "has shown no preview"},
		{"other object", preview1, map[string]any{"objects": []string{"pod/q"}}, "was of other arguments"},
		{"more objects", preview1, map[string]any{"objects": []string{"pod/p", "pod/q"}}, "was of other arguments"},
		{"other namespace", preview1, map[string]any{"namespace": "kube-system"}, "was of other arguments"},
		{"other policy", preview1, map[string]any{"cascade": "orphan"}, "was of other arguments"},
		{"without finalizers", preview1, map[string]any{"assumeReleased": true}, "was of other arguments"},
		{"page of a preview", func(t *testing.T, _ *fakeCluster, _ *Server, c *mcp.ClientSession) {
			t.Helper()
			call(t, c, "preview", pod(map[string]any{"cursor": "all"}))
		}, nil, "has shown no preview"},
		{"after a change", func(t *testing.T, f *fakeCluster, s *Server, c *mcp.ClientSession) {
			t.Helper()
			preview1(t, f, s, c)
			f.change("other")
		}, nil, "the cluster has changed"},
		{"after so many previews that the first is forgotten", func(t *testing.T, f *fakeCluster, s *Server, c *mcp.ClientSession) {
			t.Helper()
			preview1(t, f, s, c)
			for n := range mostShown {
				call(t, c, "preview", pod(map[string]any{"namespace": fmt.Sprint("n", n)}))
			}
		}, nil, "was of other arguments"},
		{"unknown argument", preview1, map[string]any{"force": true}, "unexpected additional properties"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, s := newFake(Deleting)
			c := connected(t, s)
			if test.before != nil {
				test.before(t, f, s, c)
			}
			arguments := pod(map[string]any{"digest": digest})
			maps.Copy(arguments, test.arguments)
			if got := call(t, c, "delete", arguments); !got.isError || !strings.Contains(got.text, test.says) {
				t.Errorf("the answer is %+v, want %q", got, test.says)
			}
			if got := f.deletions(); len(got) > 0 {
				t.Errorf("deleted: %v", got)
			}
		})
	}
}

// A failed deletion names the backup if objects are deleted, or may be.
func TestFailedDeletionNamesItsBackup(t *testing.T) {
	for name, test := range map[string]struct {
		failed  Deleted
		isNamed bool
	}{
		"in part":    {Deleted{Lines: "pods/p deleted\n", Backup: "b.backup"}, true},
		"in doubt":   {Deleted{IsInDoubt: true, Backup: "b.backup"}, true},
		"not at all": {Deleted{Backup: "b.backup"}, false},
		"unsaved":    {Deleted{IsInDoubt: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f, s := newFake(Deleting)
			f.failed = &test.failed
			c := connected(t, s)
			preview1(t, f, s, c)
			got := call(t, c, "delete", pod(map[string]any{"digest": f.report.Digest}))
			if isNamed := strings.Contains(got.text, "from the backup"); !got.isError || isNamed != test.isNamed {
				t.Errorf("the answer names the backup: %t, %+v", isNamed, got)
			}
		})
	}
}

// preview1 shows the preview of the pod.
func preview1(t *testing.T, _ *fakeCluster, _ *Server, c *mcp.ClientSession) {
	t.Helper()
	if got := call(t, c, "preview", pod(nil)); got.isError {
		t.Fatal(got.text)
	}
}

// TestPreviewPermitsOneDeletion: of many calls at the same time, one deletes.
func TestPreviewPermitsOneDeletion(t *testing.T) {
	f, s := newFake(Deleting)
	c := connected(t, s)
	preview1(t, f, s, c)
	arguments := pod(map[string]any{"digest": strings.Repeat("a", 64), "cascade": "background"}) // the default
	var callers sync.WaitGroup
	refused := make(chan called, 8)
	for range cap(refused) {
		callers.Go(func() { refused <- call(t, c, "delete", arguments) })
	}
	callers.Wait()
	close(refused)
	count := 0
	for got := range refused {
		if got.isError {
			count++
		} else if got.data["backup"] != "b.backup" || !strings.Contains(got.text, "next: wait") || !strings.Contains(got.text, "next: undo") {
			t.Errorf("the answer is %+v", got)
		}
	}
	if made := f.deletions(); count != cap(refused)-1 || len(made) != 1 {
		t.Errorf("%d calls were refused, %d deletions were made", count, len(made))
	}
}

// TestNextCallsCanBeMade: the arguments of a next call are valid as they are.
func TestNextCallsCanBeMade(t *testing.T) {
	f, s := newFake(Deleting)
	c := connected(t, s)
	got := call(t, c, "preview", pod(map[string]any{"namespace": "shop", "cascade": "foreground"}))
	next, _ := got.data["next"].([]any)
	if len(next) != 1 {
		t.Fatalf("next: %v", got.data["next"])
	}
	following, _ := next[0].(map[string]any)
	if done := call(t, c, following["tool"].(string), following["arguments"]); done.isError || len(f.deletions()) != 1 {
		t.Errorf("%v: %+v", following, done)
	}
}

// A note says once that policies and webhooks could not be read; no object needs attention because of that.
func TestUnreadAdmissionIsOneNote(t *testing.T) {
	r := preview.Report{
		Counts: []preview.CountReport{{Fate: preview.Deleted, Kind: "ConfigMap", Objects: 2}}, UnreadAdmission: "webhooks could not be read: no right",
		Objects: []preview.ObjectReport{{Name: "a", Fate: preview.Deleted, Requested: true}, {Name: "b", Fate: preview.Deleted}},
		Unread:  []string{"a", "b", "c", "d"},
	}
	answer := summarize(r)
	if len(answer.Objects) != 1 || answer.Undecided != 0 || !slices.Contains(answer.Notes, "Webhooks could not be read: no right. They may refuse a deletion") {
		t.Errorf("%+v", answer)
	}
}
