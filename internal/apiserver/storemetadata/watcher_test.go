package storemetadata

import (
	"fmt"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
)

func change(name string, revision int64) etcd.Change {
	return etcd.Change{Key: "/registry/configmaps/team/" + name, Revision: revision, Value: []byte(`{"metadata":{"name":"` + name + `"}}`)}
}

// received returns the events of a watch until it ends.
func received(w *watcher) (all []string) {
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			all = append(all, string(apierrors.ReasonForError(apierrors.FromObject(e.Object))))
			continue
		}
		all = append(all, fmt.Sprint(e.Type))
	}
	return all
}

// A slow client gets all events, in order, and none twice.
func TestWatcherQueues(t *testing.T) {
	w := newWatcher()
	const events = 20 * resultsBuffer
	for i := range int64(events) {
		w.Changed(change("a", i+1))
	}
	w.begin(5)
	go w.pass()
	var got []string
	for e := range w.ResultChan() {
		meta, err := decode(change("a", 0).Value, 0)
		if err != nil || e.Type != watch.Modified {
			t.Fatal(e, meta, err)
		}
		got = append(got, e.Object.(interface{ GetResourceVersion() string }).GetResourceVersion())
		if len(got) == events-5 {
			w.end()
		}
	}
	for i, revision := range got {
		if revision != fmt.Sprint(i+6) {
			t.Fatalf("event %d is of revision %s, want %d", i, revision, i+6)
		}
	}
	w.Changed(change("a", 1000)) // after the end
	w.Stop()
	w.Stop()
}

func TestWatcherEnds(t *testing.T) {
	gone := change("a", 3)
	gone.Deleted, gone.Value = true, nil
	damaged := change("a", 3)
	damaged.Value = []byte("\x00")
	for name, test := range map[string]struct {
		end  func(*watcher)
		want []string
	}{
		"its kind goes":                 {(*watcher).end, []string{"MODIFIED"}},
		"changes are lost":              {(*watcher).Lost, []string{"MODIFIED", "Expired"}},
		"what was deleted is not known": {func(w *watcher) { w.Changed(gone) }, []string{"MODIFIED", "Expired"}},
		"an object cannot be decoded":   {func(w *watcher) { w.Changed(damaged) }, []string{"MODIFIED", "InternalError"}},
		"the client is too slow": {func(w *watcher) {
			for range mostQueued {
				w.bookmark(3)
			}
		}, slices.Concat([]string{"MODIFIED"}, slices.Repeat([]string{"BOOKMARK"}, mostQueued-1))},
	} {
		w := newWatcher()
		w.Changed(change("a", 2))
		test.end(w)
		go w.pass()
		if got := received(w); !slices.Equal(got, test.want) {
			t.Errorf("%s: %d events, want %d: %.100s", name, len(got), len(test.want), fmt.Sprint(got))
		}
	}
}
