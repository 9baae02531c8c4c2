package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// cost is the cost of an answer. It determines how many such answers run at once.
type cost int

const (
	// cheap answers do not wait for a seat.
	cheap cost = iota
	// costly answers read a part of the graph, of the records or of the stories, or ask the API server.
	costly
	// lasting answers continue until the caller disconnects, for up to a minute.
	lasting
)

// within bounds the time in which a client must have read an answer of a cost; zero for no bound.
func (c cost) within() time.Duration {
	switch c {
	case costly:
		return longest
	case lasting:
		return longest + lastWrite // a stream ends by itself before
	case cheap:
	}
	return 0
}

// limits bound the number of answers of one cost that run at once. Priority and fairness of the API server counts each
// request, too, but lets one user take all seats of a priority level without other users.
type limits struct {
	each    int // for one user
	all     int
	waiting int // requests of one user that wait for their turn
}

func limitsOf(c cost) limits {
	if c == lasting {
		return limits{each: 16, all: 256}
	}
	return limits{each: 2, all: 16, waiting: 32}
}

// seats bounds the number of requests that are answered at once. It is safe for concurrent use.
type seats struct {
	limits

	mu    sync.Mutex
	taken int              // guarded by mu
	users map[string]*line // guarded by mu; users that have a seat, or wait for one
	turn  []*line          // guarded by mu; waiting users, in the order of their turns
}

// line holds the requests of one user.
type line struct {
	taken   int
	waiting []chan struct{} // in the order of arrival; closed when the request has its seat
}

func newSeats(l limits) *seats { return &seats{limits: l, users: map[string]*line{}} }

// take waits for a seat, and returns a function that leaves it. Users take turns. It refuses a user with too many
// waiting requests.
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
		return nil, &refusal{http.StatusTooManyRequests, "other requests took too long: try again later"}
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
		return nil, &refusal{http.StatusTooManyRequests, fmt.Sprintf("%d of your requests are being answered, and %d wait: try again later", l.taken, len(l.waiting))}
	}
	s.users[user] = l
	mine := make(chan struct{})
	if l.waiting = append(l.waiting, mine); len(l.waiting) == 1 {
		s.turn = append(s.turn, l)
	}
	s.give()
	return mine, nil
}

// give gives free seats to waiting users, in turn. The caller holds mu.
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

// abandon removes a waiting request, or leaves the seat that it has got meanwhile.
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

// drop removes a user without waiting requests from turn. The caller holds mu.
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
