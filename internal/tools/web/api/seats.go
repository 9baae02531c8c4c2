package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
)

// cost says how much an answer may take, and so how many of them are given at once.
type cost int

const (
	// cheap answers are given at once.
	cheap cost = iota
	// costly answers read a part of the graph, of the records or of the stories, or ask the API server.
	costly
	// lasting answers go on until the caller leaves, or up to a minute.
	lasting
)

// limits bound how many answers of one cost are given at once. Priority and fairness of the API server counts each
// request, too, but lets one user have all seats of a priority level that nobody else uses.
type limits struct {
	each    int // to one user
	all     int
	waiting int // requests of one user that wait for their turn
}

func limitsOf(c cost) limits {
	if c == lasting {
		return limits{each: 16, all: 256}
	}
	return limits{each: 2, all: 16, waiting: 32}
}

// seats bounds how many requests are answered at once. It is safe for concurrent use.
type seats struct {
	limits

	mu    sync.Mutex
	taken int              // guarded by mu
	users map[string]*line // guarded by mu; users that have a seat, or wait for one
	turn  []*line          // guarded by mu; users that wait, those in front whose turn it is
}

// line is the requests of one user.
type line struct {
	taken   int
	waiting []chan struct{} // in the order of arrival; closed when the request has its seat
}

func newSeats(l limits) *seats { return &seats{limits: l, users: map[string]*line{}} }

// take waits for a seat, and returns a function that leaves it. Users take turns. A user for whom too many requests wait
// is refused.
func (s *seats) take(ctx context.Context, user string) (leave func(), err error) {
	mine, err := s.enter(user)
	if err != nil {
		return nil, err
	}
	select {
	case <-mine:
		return func() { s.leave(user) }, nil
	case <-ctx.Done():
		s.abandon(user, mine)
		return nil, &refusal{http.StatusTooManyRequests, "other requests took too long for this one to have its turn: ask again later"}
	}
}

// enter puts a request in line.
func (s *seats) enter(user string) (chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.users[user]
	if l == nil {
		l = &line{}
	}
	if isFull := l.taken >= s.each || s.taken >= s.all; isFull && len(l.waiting) >= s.waiting {
		return nil, &refusal{http.StatusTooManyRequests, fmt.Sprintf("%d requests of yours are being answered, and %d wait: ask again later", l.taken, len(l.waiting))}
	}
	s.users[user] = l
	mine := make(chan struct{})
	if l.waiting = append(l.waiting, mine); len(l.waiting) == 1 {
		s.turn = append(s.turn, l)
	}
	s.give()
	return mine, nil
}

// give gives free seats to the users whose turn it is. The caller holds mu.
func (s *seats) give() {
	for n := 0; n < len(s.turn) && s.taken < s.all; {
		l := s.turn[n]
		if l.taken >= s.each {
			n++
			continue
		}
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		l.taken++
		s.taken++
		s.turn = append(s.turn[:n], s.turn[n+1:]...)
		if len(l.waiting) > 0 {
			s.turn = append(s.turn, l)
		}
	}
}

// leave leaves a seat.
func (s *seats) leave(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.users[user]
	l.taken--
	s.taken--
	s.give()
	if l.taken == 0 && len(l.waiting) == 0 {
		delete(s.users, user)
	}
}

// abandon takes a request out of line, or leaves the seat that it has got meanwhile.
func (s *seats) abandon(user string, mine chan struct{}) {
	s.mu.Lock()
	l := s.users[user]
	for n, other := range l.waiting {
		if other == mine {
			l.waiting = append(l.waiting[:n], l.waiting[n+1:]...)
			if len(l.waiting) == 0 {
				s.drop(user, l)
			}
			s.mu.Unlock()
			return
		}
	}
	s.mu.Unlock()
	s.leave(user)
}

// drop takes a user for whom nothing waits out of turn. The caller holds mu.
func (s *seats) drop(user string, l *line) {
	for n, other := range s.turn {
		if other == l {
			s.turn = append(s.turn[:n], s.turn[n+1:]...)
			break
		}
	}
	if l.taken == 0 {
		delete(s.users, user)
	}
}
