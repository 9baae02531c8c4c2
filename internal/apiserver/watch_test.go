package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// event is one line of a watch.
type event struct {
	Type   watch.EventType `json:"type"`
	Object object          `json:"object"`
}

// watch returns the events of the collection after version, until the test ends.
func (c collection) watch(version string) <-chan event {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+c.path+"?watch=true&resourceVersion="+version, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	events := make(chan event, 100)
	go func() {
		defer response.Body.Close()
		defer close(events)
		for lines := json.NewDecoder(response.Body); ; {
			var e event
			if err := lines.Decode(&e); err != nil {
				return
			}
			events <- e
		}
	}()
	return events
}

// next returns the next event, and fails the test if the watch ends or has none.
func next(t testing.TB, events <-chan event) event {
	t.Helper()
	select {
	case e, open := <-events:
		if !open {
			t.Fatal("the watch has ended")
		}
		return e
	case <-time.After(eventually.Patience):
		t.Fatal("the watch has no event")
	}
	return event{}
}

// revision returns a resourceVersion as a number.
func revision(t testing.TB, version string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Watchers see an object marked, then deleted, at increasing versions, and the response to the
// DELETE that removes it has the version of the deletion (R20).
func TestR20_Watchers(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		created := c.create("a", foreign, other)
		events := c.watch(created.GetResourceVersion())
		marked := c.mustRemove("a", policy(metav1.DeletePropagationForeground))
		for _, finalizers := range [][]string{{other, foreground}, {foreground}, {}} {
			if _, err := c.patch("a", types.MergePatchType, mergeFinalizers(finalizers...)); err != nil {
				t.Fatal(err)
			}
		}
		last := created
		for _, want := range []struct {
			kind       watch.EventType
			finalizers []string
		}{
			{watch.Modified, []string{foreign, other, foreground}},
			{watch.Modified, []string{other, foreground}},
			{watch.Modified, []string{foreground}},
			{watch.Deleted, []string{foreground}}, // the last state that was stored
		} {
			e := next(t, events)
			if e.Type != want.kind || !slices.Equal(e.Object.GetFinalizers(), want.finalizers) {
				t.Errorf("%s with %v, want %s with %v", e.Type, e.Object.GetFinalizers(), want.kind, want.finalizers)
			}
			if e.Object.GetUID() != created.GetUID() || e.Object.GetDeletionTimestamp() == nil {
				t.Errorf("%s of uid %s, deleted at %v", e.Type, e.Object.GetUID(), e.Object.GetDeletionTimestamp())
			}
			if revision(t, e.Object.GetResourceVersion()) <= revision(t, last.GetResourceVersion()) {
				t.Errorf("%s at version %s, after %s", e.Type, e.Object.GetResourceVersion(), last.GetResourceVersion())
			}
			last = &e.Object
		}
		if marked.GetGeneration() != last.GetGeneration() {
			t.Errorf("the generation goes from %d to %d after the mark", marked.GetGeneration(), last.GetGeneration())
		}
	})
}

// AS-14: the Status has the version of the deletion.
func TestR20_VersionOfTheDeletion(t *testing.T) {
	onSubjects(t, func(t *testing.T, c collection) {
		created := c.create("a")
		events := c.watch(created.GetResourceVersion())
		answer := c.mustRemove("a", nil)
		e := next(t, events)
		if e.Type != watch.Deleted || e.Object.GetUID() != created.GetUID() {
			t.Fatalf("%s of %s", e.Type, e.Object.GetUID())
		}
		want := e.Object.GetResourceVersion()
		if got, _ := answer.Object["metadata"].(map[string]any)["resourceVersion"].(string); got != want {
			t.Errorf("the Status has version %q, the watch %q", got, want)
		}
	})
}

// A list that is at least as new as the version in the response does not contain the object.
func TestR20_ReadYourDelete(t *testing.T) {
	s := sharedServer(t)
	c := s.configMaps(t, s.namespace(t))
	for i := range 20 {
		name := fmt.Sprintf("a-%d", i)
		c.create(name)
		answer := c.mustRemove(name, nil)
		version, _ := answer.Object["metadata"].(map[string]any)["resourceVersion"].(string)
		list, err := c.send(http.MethodGet, c.path+"?resourceVersion="+version+"&resourceVersionMatch=NotOlderThan", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if left := items(t, list); len(left) > 0 {
			t.Fatalf("a list at version %s or newer has %s", version, left[0].GetName())
		}
	}
}
