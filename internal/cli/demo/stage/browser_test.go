package stage

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coppice-dev/coppice/internal/cli/demo"
)

// step is a step whose second choice is right.
func step() demo.Step {
	holds := func(yes bool) func(*demo.View) bool { return func(*demo.View) bool { return yes } }
	return demo.Step{Tell: "It goes\nat once.", Kubectl: []string{"delete", "pod", "a"}, Question: &demo.Question{
		Asks: "What then?", Choices: []demo.Choice{{Says: "It stays", Holds: holds(false)}, {Says: "It goes", Holds: holds(true)}},
	}}
}

func post(a http.Handler, path, body string) int {
	w := httptest.NewRecorder()
	a.ServeHTTP(w, httptest.NewRequest(http.MethodPost, BrowserPath+path, strings.NewReader(body)))
	return w.Code
}

// states returns a function that returns the next state of the page.
func states(t *testing.T, a http.Handler) func() State {
	t.Helper()
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+BrowserPath+"watch", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	lines := bufio.NewScanner(response.Body)
	return func() State {
		t.Helper()
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var s State
				if err := json.Unmarshal([]byte(data), &s); err != nil {
					t.Fatal(err)
				}
				return s
			}
		}
		t.Fatal("the stream has ended", lines.Err())
		return State{}
	}
}

// A story waits for a guess, shows whether it was right, and waits until the user goes on. Late and invalid guesses
// are refused.
func TestStoryWaitsForAGuess(t *testing.T) {
	a := NewBrowser([]demo.Story{{Name: "one", Title: "One", Namespace: "ns"}})
	next := states(t, a)
	until := func(holds func(s State) bool) State {
		t.Helper()
		for {
			if s := next(); holds(s) {
				return s
			}
		}
	}
	a.Begin(0)
	played := make(chan error, 1)
	go func() {
		a.Ask(t.Context(), step())
		a.Say("$ kubectl delete pod a", "", "gone\n")
		err := a.Judge(t.Context(), step(), demo.NewView())
		a.Rest(t.Context())
		a.End("That was all.")
		played <- err
	}()
	s := until(func(s State) bool { return s.Question != nil })
	if s.Story != 0 || s.Question.Guess != nil || s.Question.Right != nil || s.Question.Command != "kubectl delete pod a" || len(s.Question.Choices) != 2 {
		t.Errorf("asked is %+v", s.Question)
	}
	for body, code := range map[string]int{
		`{"number":9,"choice":1}`: http.StatusConflict, `{"number":1,"choice":2}`: http.StatusConflict, `{"number":1,"choice":-1}`: http.StatusConflict, `none`: http.StatusBadRequest,
	} {
		if got := post(a, "answer", body); got != code {
			t.Errorf("%s: %d, want %d", body, got, code)
		}
	}
	if got := post(a, "answer", `{"number":1,"choice":0}`); got != http.StatusNoContent {
		t.Errorf("a guess: %d", got)
	}
	if got := post(a, "answer", `{"number":1,"choice":1}`); got != http.StatusConflict {
		t.Errorf("a second guess: %d", got)
	}
	s = until(func(s State) bool { return s.IsResting })
	if s.Question.Right == nil || *s.Question.Right != 1 || *s.Question.Guess != 0 || s.Asked != 1 || s.Right != 0 || len(s.Said) != 2 || s.Question.Tells != "It goes at once." {
		t.Errorf("judged is %+v %+v", s, s.Question)
	}
	if got := post(a, "next", `{"number":2}`); got != http.StatusNoContent {
		t.Errorf("to go on: %d", got)
	}
	if s = until(func(s State) bool { return s.Ended != "" }); s.Ended != "That was all." {
		t.Errorf("it has ended with %q", s.Ended)
	}
	if err := <-played; err != nil {
		t.Error(err)
	}
}

// A question without exactly one right choice is a mistake of the story.
func TestQuestionWithoutOneRightChoiceIsAnError(t *testing.T) {
	a, s := NewBrowser(nil), step()
	s.Question.Choices = s.Question.Choices[:1]
	if err := a.Judge(t.Context(), s, demo.NewView()); err == nil {
		t.Error("nothing is right, and nobody notices")
	}
}

// The end of the demo ends all waiting.
func TestEndOfTheDemoEndsWaiting(t *testing.T) {
	a := NewBrowser(nil)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	a.Ask(ctx, step())
	a.Rest(ctx)
	if w := httptest.NewRecorder(); true {
		if a.ServeHTTP(w, httptest.NewRequest(http.MethodGet, BrowserPath+"answer", http.NoBody)); w.Code != http.StatusNotFound {
			t.Errorf("GET of an answer: %d", w.Code)
		}
	}
}
