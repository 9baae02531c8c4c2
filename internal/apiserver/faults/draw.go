package faults

import (
	"hash/fnv"
	"math/rand/v2"
	"path"
	"slices"
	"time"
)

// Request has the properties of a request on which its faults depend.
type Request struct {
	// User is the user's name; Client is the program in the User-Agent header.
	User, Client string
	// Verb is the verb of the API: get, list, watch, create, update, patch, delete, deletecollection.
	Verb string
	// Resource is the resource with its group, such as deployments.apps; Subresource may be empty.
	Resource, Subresource string
	// Namespace and Name identify the object; empty in requests without one.
	Namespace, Name string
	// AtAnyVersion: a list or a watch at resourceVersion 0.
	AtAnyVersion bool
	// Own: a request of the control plane's own controllers, which meets only faults that select users.
	Own bool
	// Resumes: a watch begins after a state that its client has seen, and does not ask for that state.
	Resumes bool
}

// isWrite reports whether the request changes objects. A stream to a pod does not, although it has a verb of writes.
func (r Request) isWrite() bool {
	return slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, r.Verb) &&
		!slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, r.Subresource)
}

// changes reports whether the request changes an object that exists.
func (r Request) changes() bool { return r.Verb == "update" || r.Verb == "patch" }

// Refusal is how a write is refused; empty: it is not.
type Refusal string

// The refusals of kube-apiserver that clients meet without having done anything wrong.
const (
	// TooMany is 429 with Retry-After, of priority and fairness.
	TooMany Refusal = "429 too many requests"
	// LeaderChanged is 500, of an etcd that elects.
	LeaderChanged Refusal = "500 leader changed"
	// Unavailable is 503, of a server that begins or stops.
	Unavailable Refusal = "503 unavailable"
)

// Loss is how an answer is lost; empty: it is not.
type Loss string

// The ways in which an answer is lost.
const (
	// Reset: the connection, or the stream of HTTP/2, ends without an answer.
	Reset Loss = "connection reset"
	// TimedOut: the answer is 504.
	TimedOut Loss = "504 timeout"
)

// Fate has the faults of one request. The zero value has none.
type Fate struct {
	Refusal Refusal
	Loss    Loss
	// OtherWriter: somebody else writes before.
	OtherWriter bool
	// Age is the age of the state from which a list is answered, or with which a watch begins; 0: the newest.
	Age time.Duration
	// Lag is the range of the lags of the events of a watch.
	Lag Range
	// End is when the watch ends; 0: it does not.
	End time.Duration
	// Expired: the watch is not resumed.
	Expired bool

	events *rand.Rand
}

// isNothing reports whether nothing happens.
func (f Fate) isNothing() bool {
	return f.Refusal == "" && f.Loss == "" && f.Lag == Range{} && f.End == 0 && !f.Expired && f.Age == 0 && !f.OtherWriter
}

// NextLag draws the lag of the next event of a watch.
func (f Fate) NextLag() time.Duration {
	if f.events == nil {
		return 0
	}
	return drawn(f.events, f.Lag)
}

// mostCounted is the number of different requests that Draws counts, 12 bytes each.
const mostCounted = 1 << 16

// Draws decides what happens to requests. It is a function of the plan, of the request, and of how many equal requests
// came before: the same seed and the same requests have the same faults, in whatever order different requests come.
// After mostCounted different requests, it counts from the beginning again. It is not safe for concurrent use.
type Draws struct {
	plan  Plan
	count map[uint64]uint32
}

// NewDraws returns the draws of a plan.
func NewDraws(p Plan) *Draws { return &Draws{plan: p, count: map[uint64]uint32{}} }

// Next draws what happens to a request.
func (d *Draws) Next(r Request) Fate {
	key := r.hash()
	if _, ok := d.count[key]; !ok && len(d.count) >= mostCounted {
		clear(d.count)
	}
	number := d.count[key]
	d.count[key]++
	source := func(k Kind) *rand.Rand { return d.plan.source(k, key+uint64(number)*0x9e3779b97f4a7c15) }
	var fate Fate
	if f, ok := d.plan.last(StaleList, r); ok && r.AtAnyVersion {
		fate.Age = drawn(source(StaleList), f.Delay)
	}
	switch {
	case r.Verb == "watch":
		d.watch(r, source, &fate)
	case r.isWrite():
		d.write(r, source, &fate)
	}
	return fate
}

// watch draws the faults of a watch.
func (d *Draws) watch(r Request, source func(Kind) *rand.Rand, fate *Fate) {
	if f, ok := d.plan.last(WatchExpired, r); ok && r.Resumes {
		fate.Expired = source(WatchExpired).Float64() < f.Rate
	}
	if f, ok := d.plan.last(WatchEnd, r); ok {
		fate.End = drawn(source(WatchEnd), f.Delay)
	}
	if f, ok := d.plan.last(WatchLag, r); ok {
		// Each watch has a part of the range of its own, so that watches lag differently, and stay behind for a while.
		fate.events = source(WatchLag)
		middle, width := drawn(fate.events, f.Delay), (f.Delay.Most-f.Delay.Least)/4
		fate.Lag = Range{max(f.Delay.Least, middle-width), min(f.Delay.Most, middle+width)}
	}
}

// write draws the faults of a write. A write that is refused has no answer that could be lost.
func (d *Draws) write(r Request, source func(Kind) *rand.Rand, fate *Fate) {
	if f, ok := d.plan.last(RefusedWrite, r); ok {
		if random := source(RefusedWrite); random.Float64() < f.Rate {
			fate.Refusal = []Refusal{TooMany, LeaderChanged, Unavailable}[random.IntN(3)]
			return
		}
	}
	if f, ok := d.plan.last(OtherWriter, r); ok && r.changes() {
		fate.OtherWriter = source(OtherWriter).Float64() < f.Rate
	}
	if f, ok := d.plan.last(LostAnswer, r); ok {
		if random := source(LostAnswer); random.Float64() < f.Rate {
			fate.Loss = []Loss{Reset, TimedOut}[random.IntN(2)]
		}
	}
}

// last returns the last fault of a kind that selects a request.
func (p Plan) last(k Kind, r Request) (Fault, bool) {
	for _, f := range slices.Backward(p.Faults) {
		if r.Own && f.User == "" {
			continue
		}
		if f.Kind == k && matches(f.Resource, r.Resource) && matches(f.Client, r.Client) && matches(f.User, r.User) {
			return f, true
		}
	}
	return Fault{}, false
}

// matches reports whether a pattern, which ParsePlan has checked, is empty or matches.
func matches(pattern, text string) bool {
	matched, err := path.Match(pattern, text)
	return pattern == "" || err == nil && matched
}

// any returns the last fault of a kind, whatever requests it selects.
func (p Plan) any(k Kind) (Fault, bool) {
	for _, f := range slices.Backward(p.Faults) {
		if f.Kind == k {
			return f, true
		}
	}
	return Fault{}, false
}

// source returns the random numbers of a kind of faults, of which each stream is another sequence.
func (p Plan) source(k Kind, stream uint64) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(k))
	return rand.New(rand.NewPCG(p.Seed^h.Sum64(), stream))
}

func drawn(random *rand.Rand, r Range) time.Duration {
	if r.Most <= r.Least {
		return r.Least
	}
	return r.Least + time.Duration(random.Int64N(int64(r.Most-r.Least)+1))
}

// hash returns the same number for requests that are counted together.
func (r Request) hash() uint64 {
	h := fnv.New64a()
	for _, part := range []string{r.User, r.Client, r.Verb, r.Resource, r.Subresource, r.Namespace, r.Name} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	return h.Sum64()
}
