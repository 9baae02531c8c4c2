package recyclebin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/apiserver/etcd"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// A request waits until the bin has all removals before it: a part of a deletion would look complete.
func TestR29_AnswersHaveAllEarlierRemovals(t *testing.T) {
	b := filled(t)
	b.current = func(context.Context) (int64, error) { return 9, nil }
	answer := make(chan *httptest.ResponseRecorder, 1)
	go func() { answer <- answerOf(t, b, grants{"secrets//", "configmaps//"}, "?uid=u2") }()
	eventually.Holds(t, "the request waits for the bin", func() bool { return len(b.progress.requests)+len(answer) > 0 })
	for n := int64(6); n <= 9; n++ {
		late := Item{
			Resource: "configmaps", Kind: "ConfigMap", Version: "v1", Namespace: "team", NamespaceUID: "new", Name: fmt.Sprint("late-", n),
			UID: types.UID(fmt.Sprint("late-", n)), Owners: []metav1.OwnerReference{{UID: "u2"}}, Revision: n, Removed: time.Now(),
		}
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q}}`, late.Name)
		if err := b.write([]entry{{Item: late, body: []byte(body)}}, n); err != nil {
			t.Fatal(err)
		}
	}
	w := <-answer
	var list List
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != http.StatusOK || len(list.Items) != 6 {
		t.Errorf("of 6 objects, the answer has %d: %d, %v", len(list.Items), w.Code, err)
	}
}

// A bin that stays behind answers 503, not with the objects that it has.
func TestR29_BinThatIsBehindDoesNotAnswer(t *testing.T) {
	b := filled(t)
	clock := clocktesting.NewFakeClock(time.Now())
	b.clock = clock
	b.current = func(context.Context) (int64, error) { return 6, nil }
	for _, query := range []string{"?name=present", "?uid=u2"} {
		answer := make(chan *httptest.ResponseRecorder, 1)
		go func() { answer <- answerOf(t, b, grants{"secrets//"}, query) }()
		eventually.Holds(t, "the request waits", func() bool { return clock.HasWaiters() || len(answer) > 0 })
		clock.Step(catchUpLimit)
		w := <-answer
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" || !strings.Contains(w.Body.String(), "is behind: it has the objects that were deleted up to revision 5 of 6") {
			t.Errorf("%s: %d %v %s", query, w.Code, w.Header(), w.Body)
		}
	}
}

// following returns a bin that follows a store.
func following(t *testing.T) (*etcd.Store, *Bin) {
	t.Helper()
	store, err := etcd.Open(t.Context(), etcd.Options{Dir: t.TempDir(), Ephemeral: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b, err := Open(t.TempDir(), store, Bounds{Bytes: 1 << 20, Age: time.Hour}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Follow(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, b.Close()); err != nil {
			t.Error(err)
		}
	})
	if code, _, _ := ask(t, b, grants{"widgets//"}, "?uid=owner"); code != http.StatusNotFound { // it follows now
		t.Fatalf("an empty bin answers %d", code)
	}
	return store, b
}

// Directly after the last removal, a bin that follows a store has the complete deletion. After other writes, which
// it does not read, it asks etcd for its progress.
func TestR29_FollowingBinHasWholeDeletions(t *testing.T) {
	const dependents = 400
	store, b := following(t)
	keyOf := func(name string) string { return store.Prefix() + "/example.com/widgets/team/" + name }
	put := func(name, owners string) {
		t.Helper()
		value := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"team","uid":%[1]q,"ownerReferences":[%s]}}`, name, owners)
		if _, err := store.Client().Put(t.Context(), keyOf(name), value); err != nil {
			t.Fatal(err)
		}
	}
	put("owner", "")
	for n := range dependents {
		put(fmt.Sprint("dependent-", n), `{"apiVersion":"example.com/v1","kind":"Widget","name":"owner","uid":"owner"}`)
	}
	names := []string{"owner"}
	for n := range dependents {
		names = append(names, fmt.Sprint("dependent-", n))
	}
	for _, name := range names {
		if _, err := store.Client().Delete(t.Context(), keyOf(name)); err != nil {
			t.Fatal(err)
		}
	}
	if code, found, _ := ask(t, b, grants{"widgets//"}, "?uid=owner"); code != http.StatusOK || len(found) != dependents+1 {
		t.Errorf("of %d objects, the answer has %d: %d", dependents+1, len(found), code)
	}
	put("other", "")
	if code, found, _ := ask(t, b, grants{"widgets//"}, "?name=owner"); code != http.StatusOK || len(found) != 1 {
		t.Errorf("after another write: %d %v", code, found)
	}
}

// One write to the database keeps all removals that were read during the write before, up to a size.
func TestR29_RemovalsAreKeptInBatches(t *testing.T) {
	of := func(size int, upTo int64) batch {
		return batch{[]etcd.Removal{{Stored: etcd.Stored{Value: make([]byte, size)}, At: upTo}}, upTo}
	}
	read := make(chan batch, readAhead)
	for n := range int64(100) {
		read <- of(10, 2+n)
	}
	read <- batch{upTo: 102}
	next := of(10, 1)
	if next.extend(read); len(next.removed) != 101 || next.upTo != 102 || next.removed[100].At != 101 {
		t.Errorf("a batch has %d removals, up to revision %d", len(next.removed), next.upTo)
	}
	read <- of(maxBatch, 104)
	read <- of(10, 105)
	next = of(10, 103)
	if next.extend(read); len(next.removed) != 2 || next.upTo != 104 || len(read) != 1 {
		t.Errorf("a batch has %d removals, up to revision %d", len(next.removed), next.upTo)
	}
}
