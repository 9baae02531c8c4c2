package stage

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

// BrowserPath is the prefix of the paths of Browser.
const BrowserPath = "/coppice/demo/"

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

// Browser plays stories to the users of a page: it asks for the effect of a command, waits for a guess, and shows
// whether the guess was right. It is a Display, an Audience, and the HTTP handler for the requests of the page:
//
//	GET  /coppice/demo/watch    the State, as server-sent events: one now, and one at each change
//	POST /coppice/demo/answer   {"number": 2, "choice": 1}: a guess for the question with this number
//	POST /coppice/demo/next     {"number": 3}: go on after the rest with this number
//
// It is safe for concurrent use.
type Browser struct {
	mu      sync.Mutex
	state   State         // guarded by mu
	changed chan struct{} // guarded by mu: closed at the next change
}

// NewBrowser returns the connection for some stories.
func NewBrowser(stories []demo.Story) *Browser {
	b := &Browser{changed: make(chan struct{}), state: State{Story: -1, Said: []string{}}}
	for _, s := range stories {
		b.state.Stories = append(b.state.Stories, Story{s.Name, s.Title, s.Namespace})
	}
	return b
}

// change changes the state, and notifies all watches.
func (b *Browser) change(how func(s *State)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	how(&b.state)
	close(b.changed)
	b.changed = make(chan struct{})
}

// now returns a copy of the state, and a channel that is closed when the state changes.
func (b *Browser) now() (State, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.state
	s.Said = slices.Clone(s.Said)
	if s.Question != nil {
		question := *s.Question
		s.Question = &question
	}
	return s, b.changed
}

// until waits until a condition of the state holds, or ctx ends.
func (b *Browser) until(ctx context.Context, holds func(s State) bool) {
	for {
		s, changed := b.now()
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
func (b *Browser) Begin(story int) {
	b.change(func(s *State) { s.Story, s.Said, s.Question = story, []string{}, nil })
}

// End ends the demo with a result.
func (b *Browser) End(says string) {
	b.change(func(s *State) { s.Ended, s.IsResting = says, false })
}

// Say implements Display.
func (b *Browser) Say(lines ...string) {
	b.change(func(s *State) {
		for _, line := range lines {
			if line = strings.TrimSpace(line); line != "" {
				s.Said = append(s.Said, line)
			}
		}
	})
}

// Change implements Display. It does nothing: the page has a picture of the deletion.
func (*Browser) Change(string, *demo.View) {}

// Pause implements Display. It does nothing: the story waits for guesses anyway.
func (*Browser) Pause(context.Context) {}

// Ask implements Audience. It returns after the user's guess.
func (b *Browser) Ask(ctx context.Context, step demo.Step) {
	q := &Question{Tells: step.Text(), Command: step.Command(), Asks: step.Question.Asks}
	for _, c := range step.Question.Choices {
		q.Choices = append(q.Choices, c.Says)
	}
	number := 0
	b.change(func(s *State) {
		s.Number++
		number, s.Question = s.Number, q
	})
	b.until(ctx, func(s State) bool { return s.Number == number && s.Question.Guess != nil })
}

// Judge implements Audience. It shows whether the guess was right.
func (b *Browser) Judge(_ context.Context, step demo.Step, v *demo.View) error {
	right, ok := step.Question.Right(v)
	if !ok {
		return fmt.Errorf("of the answers to %q, not exactly one is right", step.Question.Asks)
	}
	b.change(func(s *State) {
		s.Question.Right = &right
		s.Asked++
		if s.Question.Guess != nil && *s.Question.Guess == right {
			s.Right++
		}
	})
	return nil
}

// Rest returns when the user wants to go on.
func (b *Browser) Rest(ctx context.Context) {
	number := 0
	b.change(func(s *State) {
		s.Number++
		number, s.IsResting = s.Number, true
	})
	b.until(ctx, func(s State) bool { return s.Number == number && !s.IsResting })
}

// ServeHTTP implements http.Handler.
func (b *Browser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method + " " + strings.TrimPrefix(r.URL.Path, BrowserPath) {
	case "GET watch":
		b.watch(w, r)
	case "POST answer":
		b.take(w, r, func(s *State, choice int) bool {
			if s.Question == nil || s.Question.Guess != nil || choice < 0 || choice >= len(s.Question.Choices) {
				return false
			}
			s.Question.Guess = &choice
			return true
		})
	case "POST next":
		b.take(w, r, func(s *State, _ int) bool {
			was := s.IsResting
			s.IsResting = false
			return was
		})
	default:
		http.NotFound(w, r)
	}
}

// take reads a request of the user, and rejects late or invalid ones.
func (b *Browser) take(w http.ResponseWriter, r *http.Request, accept func(s *State, choice int) bool) {
	var sent struct{ Number, Choice int }
	if err := json.NewDecoder(io.LimitReader(r.Body, mostRead)).Decode(&sent); err != nil {
		http.Error(w, `send {"number": …, "choice": …}`, http.StatusBadRequest)
		return
	}
	accepted := false
	b.change(func(s *State) { accepted = sent.Number == s.Number && accept(s, sent.Choice) })
	if !accepted {
		http.Error(w, "nobody asks for that any more", http.StatusConflict)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// watch sends the state, now and at each change.
func (b *Browser) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	for {
		s, changed := b.now()
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
