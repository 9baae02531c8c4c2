package restore

import (
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/tools/undo"
)

// firstTries is a server in the process that answers the first tries of each object with a code, and a delay of one second.
type firstTries struct {
	code, tries int

	mu    sync.Mutex
	tried map[string]int // guarded by mu; by the body of the request
}

// answer returns the answer to a write; no code for a success.
func (f *firstTries) answer(body string) (code, seconds int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tried[body]++
	if f.tried[body] > f.tries {
		return 0, 0
	}
	return f.code, 1
}

// RoundTrip implements http.RoundTripper.
func (f *firstTries) RoundTrip(r *http.Request) (*http.Response, error) {
	var body string
	if r.Body != nil {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		body = string(text)
	}
	code, seconds := f.answer(body)
	return (&clusterWithoutSocket{putOff: func(int) (int, int) { return code, seconds }}).RoundTrip(r)
}

// When its time for a busy server is over, an undo gives up at once if the server puts off all writes. If the server accepts
// some, each other one has a few seconds. New kinds have their own time, which is longer for an undo without an end. None of
// these times begins anew for each object.
func TestEndOfThePatienceOfAnUndo(t *testing.T) {
	const many = 200 // objects, several times as many as are written at a time
	for name, test := range map[string]struct {
		code, tries int
		until       time.Duration // since the beginning; negative for no end
		made        int
		least, most time.Duration
	}{
		"all are put off":                       {http.StatusTooManyRequests, 1000, 0, 0, lateWithin, lateWithin},
		"the first try is put off":              {http.StatusTooManyRequests, 1, 0, many, 7 * time.Second, 7 * time.Second},
		"the kind is not served yet":            {http.StatusNotFound, 8, 0, many, time.Second, 7 * 8 * time.Second},
		"the kind is never served":              {http.StatusNotFound, 1000, 0, 0, servedWithin - 2*maxRetry, servedWithin},
		"the kind is never served, a later end": {http.StatusNotFound, 1000, 45 * time.Second, 0, 45*time.Second - 2*maxRetry, 45 * time.Second},
		"the kind is never served, a far end":   {http.StatusNotFound, 1000, 5 * time.Minute, 0, servedInAll - 2*maxRetry, servedInAll},
		"the kind is never served, no end":      {http.StatusNotFound, 1000, -1, 0, servedInAll - 2*maxRetry, servedInAll},
		"the kind is not served yet, no end":    {http.StatusNotFound, 8, -1, many, time.Second, 7 * 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, err := NewServer(&rest.Config{Host: "http://server", Transport: &firstTries{code: test.code, tries: test.tries, tried: map[string]int{}}}, nil)
				if err != nil {
					t.Fatal(err)
				}
				kept := secrets(many)
				kinds := map[schema.GroupKind]undo.Kind{{Kind: "Secret"}: {Resource: kept[0].Resource, Namespaced: true}, {Kind: "Namespace"}: {}}
				existing := map[undo.Place]undo.Existing{{Kind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"}: {UID: "shop"}}
				plan := undo.New(kept, undo.Cluster{Kinds: kinds, Existing: existing}, undo.Options{})
				began := time.Now()
				run := &Run{Server: server, Kinds: kinds}
				if test.until >= 0 {
					run.Until = began.Add(test.until)
				}
				if err := run.Run(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
				took := time.Since(began)
				if made := many - plan.Report().Missing(); made != test.made || took < test.least || took > test.most {
					t.Errorf("%d objects are made after %s; want %d after %s to %s", made, took, test.made, test.least, test.most)
				}
			})
		})
	}
}
