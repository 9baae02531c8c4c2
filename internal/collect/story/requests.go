package story

import "github.com/coppice-dev/coppice/internal/rules/ownership"

const (
	// mostText bounds a text that a client chooses, in bytes.
	mostText = 253
	// mostRequests and mostRequestBytes bound the requests without a story: if a request has failed, no story begins.
	mostRequests     = 10_000
	mostRequestBytes = 4 << 20
)

// requests are the last requests to delete objects whose stories have not begun. They are in two halves: when the
// recent one is full, the older one is forgotten.
type requests struct {
	recent, older map[ownership.UID]*Request
	bytes         int // of the texts in recent
}

func newRequests() requests { return requests{recent: map[ownership.UID]*Request{}} }

// add adds a request, in place of an earlier one for the same object.
func (q *requests) add(r Request) {
	r.Key, r.Policy = ownership.Excerpt(r.Key, mostText), ownership.Excerpt(r.Policy, mostText)
	r.By = By{User: ownership.Excerpt(r.By.User, mostText), Agent: ownership.Excerpt(r.By.Agent, mostText)}
	q.take(r.UID)
	if len(q.recent) >= mostRequests/2 || q.bytes+r.bytes() > mostRequestBytes/2 {
		q.recent, q.older, q.bytes = map[ownership.UID]*Request{}, q.recent, 0
	}
	q.recent[r.UID] = &r
	q.bytes += r.bytes()
}

// of returns the request for an object; nil if there is none.
func (q *requests) of(uid ownership.UID) *Request {
	if r := q.recent[uid]; r != nil {
		return r
	}
	return q.older[uid]
}

// take removes the request for an object, whose story begins, and returns it; nil if there is none.
func (q *requests) take(uid ownership.UID) *Request {
	if r := q.recent[uid]; r != nil {
		delete(q.recent, uid)
		q.bytes -= r.bytes()
		return r
	}
	r := q.older[uid]
	delete(q.older, uid)
	return r
}

func (r *Request) bytes() int {
	return len(r.Key) + len(r.UID) + len(r.By.User) + len(r.By.Agent) + len(r.Policy)
}
