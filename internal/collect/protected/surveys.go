package protected

import (
	"context"
	"slices"
	"sync"
	"time"

	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// longestSurveyWait is the time that a deletion waits for the surveys of others. A server waits for 10 s for a webhook.
const longestSurveyWait = 8 * time.Second

// longestPage bounds the requests for one page of a survey. A survey ends at a page that takes longer: others wait for it.
const longestPage = 5 * time.Second

// Surveys bounds the lists of all objects of a server to one at a time: whoever may delete a workload can request one, and so
// can a dry run. It is shared by all that may request one. The users who wait take turns: a user with many deletions delays
// one of another user by two surveys at most. NewSurveys makes one.
type Surveys struct {
	mu        sync.Mutex
	underWay  bool
	users     []string                   // who wait, in the order of their turns; guarded by mu
	deletions map[string][]chan struct{} // of users who wait, in their order; closed to let one begin; guarded by mu
}

// NewSurveys returns the bound of a server.
func NewSurveys() *Surveys { return &Surveys{deletions: map[string][]chan struct{}{}} }

// begin begins a survey, which the caller ends. It waits for the end of others: a request for a collection deletes several
// workloads at the same time. It returns false if they take too long, or if ctx ends.
func (s *Surveys) begin(ctx context.Context) (end func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	user := userOf(ctx)
	turn := s.enter(user)
	if turn == nil {
		return s.end, true
	}
	ctx, cancel := context.WithTimeout(ctx, longestSurveyWait)
	defer cancel()
	select {
	case <-turn:
		return s.end, true
	case <-ctx.Done():
		s.giveUp(user, turn)
		return nil, false
	}
}

// enter returns a channel that is closed when the survey of a user may begin; nil if it has begun.
func (s *Surveys) enter(user string) (turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.underWay {
		s.underWay = true
		return nil
	}
	turn = make(chan struct{})
	if len(s.deletions[user]) == 0 {
		s.users = append(s.users, user)
	}
	s.deletions[user] = append(s.deletions[user], turn)
	return turn
}

// end lets the next user begin. A user with further deletions waits for the other users then.
func (s *Surveys) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextLocked()
}

func (s *Surveys) nextLocked() {
	if len(s.users) == 0 {
		s.underWay = false
		return
	}
	user := s.users[0]
	s.users = s.users[1:]
	close(s.deletions[user][0])
	if s.deletions[user] = s.deletions[user][1:]; len(s.deletions[user]) > 0 {
		s.users = append(s.users, user)
		return
	}
	delete(s.deletions, user)
}

// giveUp removes a deletion, or passes its turn on if it got one just now.
func (s *Surveys) giveUp(user string, turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.deletions[user], turn)
	if at < 0 {
		s.nextLocked()
		return
	}
	if s.deletions[user] = slices.Delete(s.deletions[user], at, at+1); len(s.deletions[user]) == 0 {
		delete(s.deletions, user)
		s.users = slices.DeleteFunc(s.users, func(u string) bool { return u == user })
	}
}

// forUser returns a context for a request of a user, as the handlers of an API server do.
func forUser(ctx context.Context, name string) context.Context {
	return genericrequest.WithUser(ctx, &authenticationuser.DefaultInfo{Name: name})
}

// userOf returns the name of the user of a request. It is empty for the server itself.
func userOf(ctx context.Context) string {
	if who, ok := genericrequest.UserFrom(ctx); ok {
		return who.GetName()
	}
	return ""
}
