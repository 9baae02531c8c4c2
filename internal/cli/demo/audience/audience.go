// Package audience plays the stories of coppice demo to a user with a browser: it asks for the effect of a command,
// waits for a guess, and shows whether the guess was right.
//
// An Audience is a stage.Display and a stage.Audience, which package stage calls at each event, and an HTTP handler
// with the requests of the page:
//
//	GET  /coppice/demo/watch    the State, as server-sent events: one now, and one at each change
//	POST /coppice/demo/answer   {"number": 2, "choice": 1}: a guess for the question with this number
//	POST /coppice/demo/next     {"number": 3}: go on after the rest with this number
package audience

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/coppice-dev/coppice/internal/cli/demo"
)

// Path is the prefix of all paths.
const Path = "/coppice/demo/"

// mostRead bounds the body of a request, in bytes.
const mostRead = 1 << 10

// State is the content of the page.
type State struct {
	// Stories are all stories of the demo, and Story is the number of the current one.
	Stories []Story `json:"stories"`
	Story   int     `json:"story"`
	// Said are the lines about the current story.
	Said []string `json:"said"`
	// Number counts the requests to the user: to answer an open Question, or to go on.
	Number    int       `json:"number"`
	Question  *Question `json:"question,omitempty"`
	IsResting bool      `json:"isResting,omitempty"`
	// Asked and Right count the questions and the right guesses of all stories.
	Asked int `json:"asked"`
	Right int `json:"right"`
	// Ended is the result of the demo; empty until it has ended.
	Ended string `json:"ended,omitempty"`
}

// Story is a story of the demo.
type Story struct {
	Name      string `json:"name"`
	Title     string `json:"title"`
	Namespace string `json:"namespace"`
}

// Question is a question to the user. Guess and Right are numbers of choices.
type Question struct {
	Tells   string   `json:"tells"`
	Command string   `json:"command"`
	Asks    string   `json:"asks"`
	Choices []string `json:"choices"`
	Guess   *int     `json:"guess,omitempty"`
	Right   *int     `json:"right,omitempty"`
}

// Audience is the connection to the users of the page. It is safe for concurrent use.
type Audience struct {
	mu      sync.Mutex
	state   State         // guarded by mu
	changed chan struct{} // guarded by mu: closed at the next change
}

// New returns an audience for some stories.
func New(stories []demo.Story) *Audience {
	a := &Audience{changed: make(chan struct{}), state: State{Story: -1, Said: []string{}}}
	for _, s := range stories {
		a.state.Stories = append(a.state.Stories, Story{s.Name, s.Title, s.Namespace})
	}
	return a
}

// change changes the state, and notifies all watches.
func (a *Audience) change(how func(s *State)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	how(&a.state)
	close(a.changed)
	a.changed = make(chan struct{})
}

// now returns a copy of the state, and a channel that is closed when the state changes.
func (a *Audience) now() (State, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.state
	s.Said = slices.Clone(s.Said)
	if s.Question != nil {
		question := *s.Question
		s.Question = &question
	}
	return s, a.changed
}

// until waits until a condition of the state holds, or ctx ends.
func (a *Audience) until(ctx context.Context, holds func(s State) bool) {
	for {
		s, changed := a.now()
		if holds(s) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// Begin begins a story, after the Rest of the previous one.
func (a *Audience) Begin(story int) {
	a.change(func(s *State) { s.Story, s.Said, s.Question = story, []string{}, nil })
}

// End ends the demo with a result.
func (a *Audience) End(says string) {
	a.change(func(s *State) { s.Ended, s.IsResting = says, false })
}

// Say implements stage.Display.
func (a *Audience) Say(lines ...string) {
	a.change(func(s *State) {
		for _, line := range lines {
			if line = strings.TrimSpace(line); line != "" {
				s.Said = append(s.Said, line)
			}
		}
	})
}

// Change implements stage.Display. It does nothing: the page has a picture of the deletion.
func (*Audience) Change(string, *demo.View) {}

// Pause implements stage.Display. It does nothing: the story waits for guesses anyway.
func (*Audience) Pause(context.Context) {}

// Ask implements stage.Audience. It returns after the user's guess.
func (a *Audience) Ask(ctx context.Context, step demo.Step) {
	q := &Question{Tells: step.Text(), Command: step.Command(), Asks: step.Question.Asks}
	for _, c := range step.Question.Choices {
		q.Choices = append(q.Choices, c.Says)
	}
	number := 0
	a.change(func(s *State) {
		s.Number++
		number, s.Question = s.Number, q
	})
	a.until(ctx, func(s State) bool { return s.Number == number && s.Question.Guess != nil })
}

// Judge implements stage.Audience. It shows whether the guess was right.
func (a *Audience) Judge(_ context.Context, step demo.Step, v *demo.View) error {
	right, ok := step.Question.Right(v)
	if !ok {
		return fmt.Errorf("of the answers to %q, not exactly one is right", step.Question.Asks)
	}
	a.change(func(s *State) {
		s.Question.Right = &right
		s.Asked++
		if s.Question.Guess != nil && *s.Question.Guess == right {
			s.Right++
		}
	})
	return nil
}

// Rest returns when the user wants to go on.
func (a *Audience) Rest(ctx context.Context) {
	number := 0
	a.change(func(s *State) {
		s.Number++
		number, s.IsResting = s.Number, true
	})
	a.until(ctx, func(s State) bool { return s.Number == number && !s.IsResting })
}

// ServeHTTP implements http.Handler.
func (a *Audience) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, Path) {
	case "GET watch":
		a.watch(w, r)
	case "POST answer":
		a.take(w, r, func(s *State, choice int) bool {
			if s.Question == nil || s.Question.Guess != nil || choice < 0 || choice >= len(s.Question.Choices) {
				return false
			}
			s.Question.Guess = &choice
			return true
		})
	case "POST next":
		a.take(w, r, func(s *State, _ int) bool {
			was := s.IsResting
			s.IsResting = false
			return was
		})
	default:
		http.NotFound(w, r)
	}
}

// take reads a request of the user, and rejects late or invalid ones.
func (a *Audience) take(w http.ResponseWriter, r *http.Request, accept func(s *State, choice int) bool) {
	var sent struct{ Number, Choice int }
	if err := json.NewDecoder(io.LimitReader(r.Body, mostRead)).Decode(&sent); err != nil {
		http.Error(w, `send {"number": …, "choice": …}`, http.StatusBadRequest)
		return
	}
	accepted := false
	a.change(func(s *State) { accepted = sent.Number == s.Number && accept(s, sent.Choice) })
	if !accepted {
		http.Error(w, "nobody asks for that any more", http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// watch sends the state, now and at each change.
func (a *Audience) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	for {
		s, changed := a.now()
		text, err := json.Marshal(s)
		if err != nil {
			return // every field can be encoded
		}
		_, _ = fmt.Fprintf(w, "event: state\ndata: %s\n\n", text)
		if http.NewResponseController(w).Flush() != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}
