package protected

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	authenticationuser "k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
)

// longestSurveyWait is the time that a deletion waits for the surveys of others. A server waits for 10 s for a webhook.
const longestSurveyWait = 8 * time.Second

// longestPage bounds the requests for one page of a survey. A survey ends at a page that takes longer: others wait for it.
const longestPage = 5 * time.Second

// longestSurvey bounds a survey: a tenant may define kinds whose pages are slow, and have no end.
const longestSurvey = 30 * time.Second

// Surveys bounds the lists of all objects of a server to one at a time: whoever may delete a workload can request one, and so
// can a dry run. It is shared by all that may request one. The parties who wait take turns: one with many deletions delays
// one of another party by two surveys at most. A party is a user, or all ServiceAccounts of a namespace: a tenant makes as many
// of them as it likes. NewSurveys makes one.
type Surveys struct {
	mu        sync.Mutex
	underWay  bool
	parties   []string                   // who wait, in the order of their turns; guarded by mu
	deletions map[string][]chan struct{} // of parties who wait, in their order; closed to let one begin; guarded by mu
}

// NewSurveys returns the bound of a server.
func NewSurveys() *Surveys { return &Surveys{deletions: map[string][]chan struct{}{}} }

// begin begins a survey, which the caller ends. It waits for the end of others: a request for a collection deletes several
// workloads at the same time. It returns false if they take too long, or if ctx ends.
func (s *Surveys) begin(ctx context.Context) (end func(), ok bool) {
	if s == nil {
		return func() {}, true
	}
	party := partyOf(ctx)
	turn := s.enter(party)
	if turn == nil {
		return s.end, true
	}
	ctx, cancel := context.WithTimeout(ctx, longestSurveyWait)
	defer cancel()
	select {
	case <-turn:
		return s.end, true
	case <-ctx.Done():
		s.giveUp(party, turn)
		return nil, false
	}
}

// bound returns the context of a survey that has begun.
func (s *Surveys) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if s == nil {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, longestSurvey)
}

// enter returns a channel that is closed when the survey of a party may begin; nil if it has begun.
func (s *Surveys) enter(party string) (turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.underWay {
		s.underWay = true
		return nil
	}
	turn = make(chan struct{})
	if len(s.deletions[party]) == 0 {
		s.parties = append(s.parties, party)
	}
	s.deletions[party] = append(s.deletions[party], turn)
	return turn
}

// end lets the next party begin. One with further deletions waits for the other parties then.
func (s *Surveys) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextLocked()
}

func (s *Surveys) nextLocked() {
	if len(s.parties) == 0 {
		s.underWay = false
		return
	}
	party := s.parties[0]
	s.parties = s.parties[1:]
	close(s.deletions[party][0])
	if s.deletions[party] = s.deletions[party][1:]; len(s.deletions[party]) > 0 {
		s.parties = append(s.parties, party)
		return
	}
	delete(s.deletions, party)
}

// giveUp removes a deletion, or passes its turn on if it got one just now.
func (s *Surveys) giveUp(party string, turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.Index(s.deletions[party], turn)
	if at < 0 {
		s.nextLocked()
		return
	}
	if s.deletions[party] = slices.Delete(s.deletions[party], at, at+1); len(s.deletions[party]) == 0 {
		delete(s.deletions, party)
		s.parties = slices.DeleteFunc(s.parties, func(p string) bool { return p == party })
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

// partyOf returns the party that takes a turn for a request.
func partyOf(ctx context.Context) string {
	user := userOf(ctx)
	if namespace, _, err := serviceaccount.SplitUsername(user); err == nil {
		return serviceaccount.MakeNamespaceGroupName(namespace)
	}
	return user
}
