package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/internal/tools/ask"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/history"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// answers returns a function that gives the answers of a watch, one after the other.
func answers(all ...ask.Explanations) func(context.Context, ask.Existence) (ask.Explanations, error) {
	return func(_ context.Context, q ask.Existence) (ask.Explanations, error) {
		if len(all) == 0 {
			return ask.Explanations{}, errors.New("the watch did not end")
		}
		next := all[0]
		all = all[1:]
		next.Inventory = &inventory.Inventory{}
		if q.Before != nil && len(next.Objects)+len(next.Gone) == 0 {
			return ask.Explanations{}, &ask.GoneError{Object: "configmaps"}
		}
		return next, nil
	}
}

// The watch of several objects ends when all of them are gone, and prints nothing but JSON for programs.
func TestExplainWatchesUntilAllAreGone(t *testing.T) {
	existing := func(names ...string) ask.Explanations {
		var a ask.Explanations
		for _, name := range names {
			a.Objects = append(a.Objects, explain.Explanation{Object: explain.Ref{Kind: "ConfigMap", Namespace: "shop", Name: name}, State: explain.Stuck})
		}
		return a
	}
	only := existing("b")
	only.Gone = []string{"configmaps/a"}
	for name, test := range map[string]struct {
		answers []ask.Explanations
		text    string
		items   []int // in each JSON document
	}{
		"one after the other": {
			[]ask.Explanations{existing("a", "b"), existing("a", "b"), only, only, {Gone: []string{"configmaps/a", "configmaps/b"}}},
			"ConfigMap shop/a: stuck\nConfigMap shop/b: stuck\nconfigmaps/a is gone\nConfigMap shop/b: stuck\nconfigmaps/b is gone\n",
			[]int{2, 1, 0},
		},
		"all of a kind": {[]ask.Explanations{existing("a"), {}}, "ConfigMap shop/a: stuck\nconfigmaps is gone\n", []int{1, 0}},
		"one gone before": {
			[]ask.Explanations{
				{Objects: existing("b").Objects, Gone: only.Gone, Deleted: []history.Explanation{{Object: explain.Ref{Kind: "ConfigMap", Name: "a"}, State: history.Gone}}},
				only,
				{Gone: []string{"configmaps/a", "configmaps/b"}},
			},
			"ConfigMap shop/b: stuck\nConfigMap a: gone\nconfigmaps/b is gone\n",
			[]int{2, 0},
		},
		"gone before": {
			[]ask.Explanations{{Deleted: []history.Explanation{{Object: explain.Ref{Kind: "ConfigMap", Name: "a"}, State: history.Gone}}}},
			"ConfigMap a: gone\n",
			[]int{1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ticks := make(chan time.Time)
			close(ticks)
			for _, format := range []string{"text", "json"} {
				var out bytes.Buffer
				e := &explaining{explain: answers(test.answers...), format: format, s: Streams{Out: &out, Err: io.Discard}}
				if err := e.watch(t.Context(), ticks); err != nil {
					t.Errorf("%s: %v\n%s", format, err, out.String())
				}
				if format == "text" {
					if out.String() != test.text {
						t.Errorf("got\n%swant\n%s", out.String(), test.text)
					}
					continue
				}
				decoder := json.NewDecoder(&out)
				for n, want := range test.items {
					var document struct{ Items []json.RawMessage }
					if err := decoder.Decode(&document); err != nil || len(document.Items) != want {
						t.Errorf("document %d has %d items, want %d: %v", n, len(document.Items), want, err)
					}
				}
				if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
					t.Errorf("there is more than %d documents: %v", len(test.items), err)
				}
			}
		})
	}
}
