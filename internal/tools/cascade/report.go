package cascade

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/escape"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// State is the state of a wait for a cascade.
type State string

// The states. All but Waiting are final.
const (
	// Waiting: objects that go still exist.
	Waiting State = "Waiting"
	// Gone: nothing that goes exists any more.
	Gone State = "Gone"
	// Stuck: it is proved that an object stays until somebody acts.
	Stuck State = "Stuck"
	// TimedOut: the time of the wait was over before.
	TimedOut State = "TimedOut"
)

// confirm is how long a cause must be stuck to end a wait. Controllers that are about to act, and users who do, take a
// moment.
const confirm = 5 * time.Second

// Report is the state of a cascade at a time. Its JSON form is a line of the output of coppice wait.
type Report struct {
	State State         `json:"state"`
	Time  time.Time     `json:"time"`
	Roots []explain.Ref `json:"roots"`
	// MoreRoots is the number of further requested objects.
	MoreRoots int `json:"moreRoots,omitempty"`
	// Gone is the number of known members that are gone, and Left of those that exist.
	Gone int `json:"gone"`
	Left int `json:"left"`
	// Causes are the causes of waiting, the stuck ones first.
	Causes     []explain.Group `json:"causes,omitempty"`
	MoreCauses int             `json:"moreCauses,omitempty"`
	// Stays are the objects that stay by rule.
	Stays     []Stay `json:"stays,omitempty"`
	MoreStays int    `json:"moreStays,omitempty"`
	// Unread are the resources that could not be read, whose objects the report does not cover.
	Unread []string `json:"unread,omitempty"`
}

// IsFinal reports whether the wait is over.
func (r *Report) IsFinal() bool { return r.State != Waiting }

// Conclude returns the state of the cascade. causes explain the objects that go.
func (c *Cascade) Conclude(inv *inventory.Inventory, part Part, causes []explain.Group, now time.Time) Report {
	isStuck := c.isStuck(part, causes, now)
	r := Report{State: Waiting, Time: now, Left: len(part.Going), Unread: texts(inv.Unread)}
	r.Roots, r.MoreRoots = slices.Clone(c.roots), c.further
	for uid := range c.members.uids {
		if inv.Object(uid) == nil {
			r.Gone++
		}
	}
	r.Causes, r.MoreCauses = boundedCauses(causes)
	r.Stays, r.MoreStays = sorted(c.stays), c.more
	switch {
	case c.isGone(inv, part):
		r.State = Gone
	case isStuck:
		r.State = Stuck
	}
	return r
}

// isGone reports whether nothing that goes was found in two observations in a row.
func (c *Cascade) isGone(inv *inventory.Inventory, part Part) bool {
	if readsLess := c.readsLess(inv); readsLess || len(part.Going) > 0 {
		c.empty = 0
		return false
	}
	c.empty++
	return c.empty > 1
}

// readsLess reports whether a resource could be read at the first observation, and cannot be read now: it may have an
// object that goes.
func (c *Cascade) readsLess(inv *inventory.Inventory) bool {
	key := func(u inventory.Unread) string { return u.Resource.String() + " " + u.Namespace }
	if c.unread == nil {
		c.unread = map[string]bool{}
		for _, u := range inv.Unread {
			c.unread[key(u)] = true
		}
	}
	return slices.ContainsFunc(inv.Unread, func(u inventory.Unread) bool { return !c.unread[key(u)] })
}

// isStuck reports whether a cause is stuck, and was before.
func (c *Cascade) isStuck(part Part, causes []explain.Group, now time.Time) bool {
	isGoing := make(map[ownership.UID]bool, len(part.Going))
	for _, uid := range part.Going {
		isGoing[uid] = true
	}
	stuck, isConfirmed := map[string]time.Time{}, false
	for n := range causes {
		leaf := &causes[n].Leaf
		isTransient := leaf.On == explain.OnUser && leaf.Object != nil && isGoing[leaf.Object.UID] // it is deleted, too
		if leaf.State != explain.Stuck || isTransient || len(stuck) >= mostCauses {
			continue
		}
		key := explain.Outline([]explain.Wait{*leaf})
		since, known := c.stuck[key]
		if !known {
			since = now
		}
		stuck[key] = since
		isConfirmed = isConfirmed || now.Sub(since) >= confirm
	}
	c.stuck = stuck
	return isConfirmed
}

func texts(unread []inventory.Unread) []string {
	all := inventory.TextsOf(unread[:min(len(unread), mostUnread)])
	for n := range all {
		all[n] = ownership.Excerpt(all[n], mostText)
	}
	if more := len(unread) - len(all); more > 0 {
		all = append(all, fmt.Sprintf("and %d more", more))
	}
	return all
}

// Outline returns the parts of a report that are worth a line when they change.
func (r *Report) Outline() string {
	var text strings.Builder
	for n := range r.Causes {
		g := &r.Causes[n]
		fmt.Fprintf(&text, "%s%v %d\n", explain.Outline([]explain.Wait{g.Leaf}), g.Objects, g.More)
	}
	fmt.Fprintf(&text, "%s %t %d %q", r.State, r.Left > 0, r.MoreCauses, r.Unread)
	return text.String()
}

// Progress returns a waiting report for people: a line with the numbers, and one for each cause.
func (r *Report) Progress() string {
	var text strings.Builder
	text.WriteString(escape.Sprintf("%d gone, %d left\n", r.Gone, r.Left))
	for n := range r.Causes {
		g := &r.Causes[n]
		names := make([]string, 0, len(g.Objects))
		for _, o := range g.Objects {
			names = append(names, o.String())
		}
		objects := strings.Join(names, ", ")
		if g.More > 0 {
			objects += fmt.Sprintf(" and %d more", g.More)
		}
		text.WriteString("  " + escape.Sprintf("%s: %s: %s\n", strings.ToLower(string(g.Leaf.State)), objects, g.Leaf.Says))
	}
	if r.MoreCauses > 0 {
		fmt.Fprintf(&text, "  further causes: %d\n", r.MoreCauses)
	}
	return text.String()
}

// Name names the requested objects.
func (r *Report) Name() string {
	if len(r.Roots) == 0 {
		return "the deletion"
	}
	name := r.Roots[0].String()
	if more := len(r.Roots) + r.MoreRoots - 1; more > 0 {
		name += fmt.Sprintf(" and %d more", more)
	}
	return name
}

func (r *Report) says() string {
	numbers := fmt.Sprintf("%d gone, %d left", r.Gone, r.Left)
	switch r.State {
	case Gone:
		if r.Gone == 0 {
			return "does not exist, and no object names it as an owner"
		}
		return fmt.Sprintf("gone, objects in all: %d", r.Gone)
	case Stuck:
		return "stuck, " + numbers
	case TimedOut:
		return "timed out, " + numbers
	case Waiting:
	}
	return "waiting, " + numbers
}

// Text returns a final report for people: the state, the evidence with the next steps if objects still exist, and the
// objects that stay.
func (r *Report) Text() string {
	var text strings.Builder
	text.WriteString(escape.Sprintf("%s: %s\n", r.Name(), r.says()))
	if r.State != Gone {
		text.WriteString(explain.TextOf(r.Causes, r.Time))
	}
	for _, s := range r.Stays {
		text.WriteString(escape.Sprintf("stays: %s, %s\n", s.Ref, s.Why))
	}
	if r.MoreStays > 0 {
		fmt.Fprintf(&text, "stays: %d more\n", r.MoreStays)
	}
	return text.String()
}
