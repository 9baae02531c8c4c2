package anomaly

import (
	"fmt"
	"slices"
	"time"
)

// The limits of writes that are repeated: so many within a period. A workqueue of client-go, which doubles its pauses from
// 5 ms on, repeats a write eleven times in it.
const (
	period       = 10 * time.Second
	mostReturns  = 10
	mostRefusals = 50
	// mostConflicts is the number of conflicts in a row after which a client had to read.
	mostConflicts = 3
	// reaction is the time that a client may take to act on an event: on a machine with far too much to do, an event took
	// six seconds from the server to the cache of a client.
	reaction = 30 * time.Second
)

// recent has the latest times of something.
type recent struct{ times []time.Time }

// add adds a time, and returns how many are within the period: at most mostRefusals, the greatest limit.
func (r *recent) add(now time.Time) int {
	r.times = append(slices.DeleteFunc(r.times, func(t time.Time) bool { return now.Sub(t) > period }), now)
	r.times = r.times[max(0, len(r.times)-mostRefusals):]
	return len(r.times)
}

// mostStates bounds the states of an object that are kept.
const mostStates = 32

// states has the latest states of an object.
type states struct {
	digests []uint64 // the latest comes last
	returns recent
	writers []Client
}

// add takes the state after a write. A return is a write by which the object comes to a state that it has had and left.
func (s *states) add(d *Detector, w Write, digest uint64) {
	if n := len(s.digests); n > 0 && s.digests[n-1] == digest {
		return
	}
	returns := slices.Contains(s.digests, digest)
	if len(s.digests) == mostStates {
		s.digests = s.digests[1:]
	}
	s.digests = append(s.digests, digest)
	if w.Client == (Client{}) {
		return
	}
	if !slices.Contains(s.writers, w.Client) && len(s.writers) < mostStates {
		s.writers = append(s.writers, w.Client)
	}
	if !returns {
		return
	}
	if n := s.returns.add(w.Time); n >= mostReturns {
		text := fmt.Sprintf("%s: the client has led it back to an earlier state %d times in %v", at(w.Object, w.Version), n, period)
		others := slices.DeleteFunc(slices.Clone(s.writers), func(c Client) bool { return c == w.Client })
		if len(others) > 0 {
			text += ", against the writes of " + others[0].Program
		}
		d.accuse(w.UID, Anomaly{Time: w.Time, Kind: NoRest, Client: w.Client, Object: w.Object, Text: text})
	}
}

// attempt is a write of a client, whatever its content.
type attempt struct {
	client      Client
	verb        string
	object      Name
	subresource string
}

// Refusal is a write that was answered with an error.
type Refusal struct {
	Time        time.Time
	Client      Client
	Verb        string
	Object      Name
	Subresource string
	Code        int
}

// conflicts are those of one attempt, one after the other, at one resourceVersion of the object.
type conflicts struct {
	version uint64
	number  int
	known   time.Time // since when the client's watches have shown that version; zero: not yet
	late    int       // conflicts after that
	read    uint64    // what the client had read at the first
}

// Refused takes a refused write, and checks whether its client learns from it. A write of an object without a name is left
// out: a client that begins may find that many objects exist.
func (d *Detector) Refused(r Refusal) {
	if r.Client == (Client{}) || r.Object.Name == "" {
		return
	}
	d.bound()
	key := attempt{r.Client, r.Verb, r.Object, r.Subresource}
	refusals := d.refusals[key]
	if refusals == nil {
		refusals = &recent{}
		d.refusals[key] = refusals
	}
	if n := refusals.add(r.Time); n >= mostRefusals {
		d.accuse(fmt.Sprint(key), Anomaly{
			Time: r.Time, Kind: Storm, Client: r.Client, Object: r.Object,
			Text: fmt.Sprintf("%s %s: refused %d times in %v, the last time with %d", r.Verb, r.Object, n, period, r.Code),
		})
	}
	if l := d.current[r.Object]; r.Code == 409 && l != nil {
		d.conflict(r, key, l)
	}
}

// conflict checks a write with a conflict. A client that reads from a cache repeats its write with the old state until
// its watches have shown the new one, which may end in between. A client that has only read single objects has no cache.
func (d *Detector) conflict(r Refusal, key attempt, l *life) {
	open, least := d.knowledge.openWatches(r.Client, l.name)
	read := d.knowledge.objects[sight{client: r.Client, uid: l.uid}]
	_, listed := d.knowledge.watched(r.Client, l.name)
	c := d.conflicts[key]
	if c == nil || c.version != l.version {
		c = &conflicts{version: l.version, read: read}
		d.conflicts[key] = c
	}
	c.number++
	switch {
	case open > 0 && least < l.version:
		c.known, c.late = time.Time{}, 0
		return
	case open > 0 && c.known.IsZero():
		c.known = r.Time
		return
	case open > 0 && r.Time.Sub(c.known) > reaction:
		c.late++
	}
	text := ""
	switch {
	case c.late >= mostConflicts:
		text = fmt.Sprintf("its watch had shown that %v before", r.Time.Sub(c.known).Round(time.Millisecond))
	case !listed && c.number >= mostConflicts && c.read > 0 && c.read < l.version && read == c.read:
		text = "it has not read the object in between"
	default:
		return
	}
	d.accuse(fmt.Sprint(key, l.uid), Anomaly{
		Time: r.Time, Kind: ConflictRepeated, Client: r.Client, Object: l.name,
		Text: fmt.Sprintf("%s of %s: conflict %d in a row with the same state: %s", r.Verb, at(l.name, l.version), c.number, text),
	})
}
