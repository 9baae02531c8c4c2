package faults

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/utils/clock"
)

// served is a server with a plan, and counts what it carries out.
type served struct {
	*httptest.Server
	injector *Injector
	writes   atomic.Int64
}

func serve(t *testing.T, plan string) *served {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.Unversioned)
	s := &served{injector: NewInjector(parsed(t, plan), Config{Codecs: serializer.NewCodecFactory(scheme), Clock: clock.RealClock{}})}
	carriedOut := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.writes.Add(1)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "made")
	})
	inner := s.injector.Requests(carriedOut)
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	s.Server = httptest.NewServer(s.injector.Answers(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, err := resolver.NewRequestInfo(r)
		if err != nil {
			t.Error(err)
		}
		ctx := request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: "alice"})
		inner.ServeHTTP(w, r.WithContext(ctx))
	})))
	t.Cleanup(s.Close)
	return s
}

func (s *served) post(t *testing.T) (status int, body string, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+"/api/v1/namespaces/default/configmaps", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", "manager/v1.0 (linux/amd64)")
	answer, err := s.Client().Do(r)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// A refused write is not carried out, and is answered as kube-apiserver does.
func TestRefusedWrites(t *testing.T) {
	s := serve(t, "seed=1; refused-write rate=1")
	statuses := map[int]bool{}
	for range 30 {
		status, body, err := s.post(t)
		if err != nil {
			t.Fatal(err)
		}
		statuses[status] = true
		var answer metav1.Status
		switch err := json.Unmarshal([]byte(body), &answer); {
		case status == http.StatusTooManyRequests:
			if body != "Too many requests, please try again later.\n" {
				t.Errorf("429: %s", body)
			}
		case err != nil || int(answer.Code) != status:
			t.Errorf("%d: %s (%v)", status, body, err)
		}
	}
	if s.writes.Load() != 0 || len(statuses) != 3 {
		t.Errorf("%d are carried out; the answers are %v", s.writes.Load(), statuses)
	}
}

// A write whose answer is lost is carried out.
func TestLostAnswers(t *testing.T) {
	s := serve(t, "seed=1; lost-answer rate=1")
	const writes = 30
	broken, late := 0, 0
	for range writes {
		status, body, err := s.post(t)
		switch {
		case err != nil:
			broken++
		case status == http.StatusGatewayTimeout && strings.Contains(body, `"reason":"Timeout"`):
			late++
		default:
			t.Errorf("%d %s", status, body)
		}
	}
	if s.writes.Load() != writes || broken == 0 || late == 0 {
		t.Errorf("%d of %d are carried out; %d connections end, %d answers are 504", s.writes.Load(), writes, broken, late)
	}
	if all := s.injector.journal.all(); len(all) != writes || all[0].Request != (Request{
		User: "alice", Client: "manager", Verb: "create", Resource: "configmaps", Namespace: "default",
	}) {
		t.Errorf("the journal has %d entries: %+v", len(all), all)
	}
}

// Only a watch that resumes may be answered with 410: one that begins gets what it asks for.
func TestOnlyResumedWatchesExpire(t *testing.T) {
	s := serve(t, "watch-expired rate=1")
	for query, want := range map[string]bool{
		"resourceVersion=17": true, "resourceVersion=17&sendInitialEvents=false": true,
		"": false, "resourceVersion=0": false, "resourceVersion=17&sendInitialEvents=true": false,
	} {
		before := len(s.injector.journal.all())
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/pods?watch=1&"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if expires := len(s.injector.journal.all()) > before; expires != want {
			t.Errorf("%q: %v, want %v", query, expires, want)
		}
	}
}

// The plan may be replaced while the server works.
func TestPlanIsReplaced(t *testing.T) {
	s := serve(t, "")
	for _, plan := range []string{"", "refused-write rate=1", "", "lost-answer rate=1; lost-answer rate=0 client=manager"} {
		s.injector.Set(parsed(t, plan))
		status, _, err := s.post(t)
		if refused := strings.HasPrefix(plan, "refused"); err != nil || (status == http.StatusCreated) == refused {
			t.Errorf("%q: %d (%v)", plan, status, err)
		}
	}
}

// The journal keeps the latest entries, and not more of a text than a name may have.
func TestJournalIsBounded(t *testing.T) {
	var j journal
	for i := range 2*mostEntries + 1 {
		j.add(Entry{Request: Request{Name: strings.Repeat("x", i), Client: "c"}})
	}
	all := j.all()
	if len(all) != mostEntries || len(all[0].Request.Name) != mostText {
		t.Errorf("%d entries", len(all))
	}
	if cap(j.entries) > 2*mostEntries {
		t.Errorf("room for %d entries", cap(j.entries))
	}
}
