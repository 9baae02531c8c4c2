// Package history explains why an object is gone: who deleted it, when and with which policy, or which owner's deletion
// caused it, back to the first request. Its sources are the records and stories of a collector and lines of an API
// server's audit log, which the caller reads: the package has no side effects.
//
// The main flow:
//
//	log := history.NewLog(resourceOf)
//	log.AddRecords(records)        // actions of a collector
//	log.AddStory(summary, objects) // a deletion that a collector has observed (stories.go)
//	log.AddLine(line)              // lines of an audit log (audit.go)
//	explanation, ok := log.Explain(target)
//
// The package does not guess: if the only known deletion may have been of other objects, such as the deletion of a
// collection, the text says so.
package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize/english"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/collect/auditreason"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/explain"
)

// Gone is the state of an object that does not exist any longer.
const Gone explain.State = "Gone"

// Source is the origin of a fact.
type Source string

// The sources.
const (
	Records  Source = "Records"  // of a collector
	Stories  Source = "Stories"  // of a collector
	AuditLog Source = "AuditLog" // of an API server
)

// Explanation explains why an object is gone. Its JSON form is an item of the output of coppice explain.
type Explanation struct {
	Object explain.Ref   `json:"object"`
	State  explain.State `json:"state"`
	// Causes are the requests that ended the object: one, or several possible ones if no request names the object.
	Causes []Cause `json:"causes"`
}

// Cause is a request that ended an object, or may have.
type Cause struct {
	Says   string    `json:"says"`
	Time   time.Time `json:"time"`
	Source Source    `json:"source"`
	// By is the user in the audit log, or in a story.
	By string `json:"by,omitempty"`
	// Policy is the propagation policy of the deletion; empty if unknown.
	Policy string `json:"policy,omitempty"`
	// Uncertain causes may have affected only other objects.
	Uncertain bool `json:"uncertain,omitempty"`
	// Evidence are the reasons, as sentences without a full stop.
	Evidence []string `json:"evidence,omitempty"`
	// Because are the causes of this one: the deletions of the owners or of the namespace.
	Because []Explanation `json:"because,omitempty"`
}

// Target names an object that is gone: by its UID, or by its kind, namespace and name.
type Target struct {
	UID             ownership.UID
	Kind            ownership.Kind
	Namespace, Name string
}

// place is the resource, the namespace and the name of an object.
type place struct {
	resource        schema.GroupResource
	namespace, name string
}

// deletion is one known deletion.
type deletion struct {
	place  place
	uid    ownership.UID // empty if unknown
	at     time.Time
	source Source
	by     string
	agent  string
	did    string // "deleted", "evicted", "deleted all …"
	policy string
	reason *auditreason.Reason
	doubt  string // why the request may not have been executed
	// with is the object with which a story has the deletion; nil if it was requested.
	with *Target
	// lastWrite is the last write in the log after the deletion: it removed the last finalizer.
	lastWrite *write
}

type write struct {
	by string
	at time.Time
}

// letGo is the collector's removal of its finalizer from an object. That ends the object, but is not the reason.
const letGo = "let go"

// Log has the known deletions. Use NewLog to create it.
type Log struct {
	resourceOf  func(ownership.Kind) (schema.GroupResource, bool)
	deletions   map[place][]*deletion
	collections []*deletion // of all objects of a resource, in one namespace or in all
	places      map[ownership.UID]known
	renewals    map[place][]time.Time // when another object got the name of a deleted one
	observed    map[place][]*deletion // of stories, whose requests are not known
	refusals    map[ownership.UID][]string
}

// known is the kind, the namespace and the name of a known UID.
type known struct {
	kind            ownership.Kind
	namespace, name string
}

// NewLog returns an empty log. resourceOf returns the resource of a kind; if it does not know the kind, NewLog
// assumes the usual plural.
func NewLog(resourceOf func(ownership.Kind) (schema.GroupResource, bool)) *Log {
	return &Log{resourceOf: resourceOf, deletions: map[place][]*deletion{}, places: map[ownership.UID]known{}, renewals: map[place][]time.Time{}, observed: map[place][]*deletion{}, refusals: map[ownership.UID][]string{}}
}

// AddRecords adds the actions of a collector.
func (l *Log) AddRecords(records []report.Record) {
	for i := range records {
		r := &records[i]
		kind := kindOf(r.Object.Kind)
		l.places[ownership.UID(r.Object.UID)] = known{kind, r.Object.Namespace, r.Object.Name}
		reason := &auditreason.Reason{Decision: r.Decision, Policy: r.Policy, Owners: r.Owners, MoreOwners: r.MoreOwners}
		l.learn(reason)
		d := &deletion{
			place: l.placeOf(kind, r.Object.Namespace, r.Object.Name), uid: ownership.UID(r.Object.UID), at: r.Time, source: Records,
			policy: string(r.Policy), reason: reason,
		}
		switch r.Action {
		case report.ActionDelete:
			d.did = "deleted"
		case report.ActionRemoveFinalizer:
			d.did = letGo
		case report.ActionDetach, report.ActionUnblock, report.ActionOrphan, report.ActionDeleteInstances:
			continue // the object stays
		}
		if r.Answer == report.AnswerNone {
			continue // nothing was sent
		}
		if r.Answer == report.AnswerUnknown {
			d.doubt = "the server did not answer: " + r.Error
		}
		l.add(d)
	}
}

func (l *Log) add(d *deletion) { l.deletions[d.place] = append(l.deletions[d.place], d) }

// learn keeps the names of owners, for targets that have only a UID.
func (l *Log) learn(reason *auditreason.Reason) {
	for _, o := range reason.Owners {
		if _, ok := l.places[ownership.UID(o.UID)]; !ok {
			l.places[ownership.UID(o.UID)] = known{kindOf(o.Kind), o.Namespace, o.Name}
		}
	}
}

// kindOf parses "ReplicaSet.apps".
func kindOf(text string) ownership.Kind {
	gk := schema.ParseGroupKind(text)
	return ownership.Kind{Group: gk.Group, Kind: gk.Kind}
}

func (l *Log) placeOf(kind ownership.Kind, namespace, name string) place {
	if l.resourceOf != nil {
		if r, ok := l.resourceOf(kind); ok {
			return place{r, namespace, name}
		}
	}
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: kind.Group, Version: "v1", Kind: kind.Kind})
	return place{plural.GroupResource(), namespace, name}
}

// Explain explains why an object is gone; it returns false if no cause is known.
func (l *Log) Explain(t Target) (Explanation, bool) {
	if k, ok := l.places[t.UID]; ok && t.UID != "" {
		t.Kind, t.Namespace, t.Name = k.kind, k.namespace, k.name
	}
	if t.Name == "" {
		return Explanation{}, false
	}
	return l.explain(t, time.Time{}, map[place]bool{})
}

func refOf(t Target) explain.Ref {
	return explain.Ref{Kind: t.Kind.String(), Namespace: t.Namespace, Name: t.Name, UID: t.UID}
}

// skew is the possible difference between the clocks of a collector and of a server.
const skew = 10 * time.Second

// maxOwners bounds how many owners of one object are explained.
const maxOwners = 4

// explain explains why a target is gone. Its deletion began at the time by or before; by is zero if unknown.
func (l *Log) explain(t Target, by time.Time, seen map[place]bool) (Explanation, bool) {
	at := l.placeOf(t.Kind, t.Namespace, t.Name)
	x := Explanation{State: Gone, Object: refOf(t)}
	if seen[at] {
		return x, false
	}
	seen[at] = true
	last := l.last(at, t.UID, by)
	if last == nil {
		last = l.lastOf(l.observed[at], t.UID, by)
	}
	if last == nil {
		x.Causes = l.guesses(at, seen)
		return x, len(x.Causes) > 0
	}
	if x.Object.UID == "" {
		x.Object.UID = last.uid
	}
	x.Causes = []Cause{l.cause(last, seen)}
	return x, true
}

// last returns the deletion that ended the last object at a place: its first request, because later ones, such as the
// kubelet's, only finish that deletion. It returns nil without a known deletion. It ignores deletions after by,
// unless by is zero: a later object of that name, such as another namespace, may be gone, too.
func (l *Log) last(at place, uid ownership.UID, by time.Time) *deletion {
	return l.lastOf(l.deletions[at], uid, by)
}

// lastOf is last for some deletions.
func (l *Log) lastOf(known []*deletion, uid ownership.UID, by time.Time) *deletion {
	all := slices.DeleteFunc(slices.Clone(known), func(d *deletion) bool {
		return uid != "" && d.uid != "" && d.uid != uid || !by.IsZero() && d.at.After(by.Add(skew))
	})
	if before := slices.DeleteFunc(slices.Clone(all), func(d *deletion) bool { return !by.IsZero() && d.at.After(by) }); len(before) > 0 {
		all = before
	}
	if len(all) == 0 {
		return nil
	}
	latest := slices.MaxFunc(all, func(a, b *deletion) int { return a.at.Compare(b.at) })
	all = slices.DeleteFunc(all, func(d *deletion) bool {
		return l.lives(d) != l.lives(latest) || d.uid != "" && latest.uid != "" && d.uid != latest.uid
	})
	return slices.MinFunc(all, func(a, b *deletion) int {
		return cmp.Or(rank(a.doubt != "")-rank(b.doubt != ""), rank(a.did == letGo)-rank(b.did == letGo), a.at.Compare(b.at), rank(a.reason == nil)-rank(b.reason == nil))
	})
}

// lives returns how many objects of the name were created before a deletion, and after the first known one.
func (l *Log) lives(d *deletion) int {
	n := 0
	for _, made := range l.renewals[d.place] {
		if made.Before(d.at) {
			n++
		}
	}
	return n
}

func rank(later bool) int { //nolint:revive // it only converts the flag
	if later {
		return 1
	}
	return 0
}

// cause returns a deletion as a cause, with its own causes.
func (l *Log) cause(d *deletion, seen map[place]bool) Cause {
	c := Cause{Time: d.at, Source: d.source, By: d.by, Policy: d.policy}
	who := "by " + d.by
	switch {
	case d.with != nil:
		who = "with " + refOf(*d.with).String()
	case d.by == "" && d.source == Stories:
		who = "by an unknown user"
	case d.source == Records:
		who = "by the garbage collector"
	case titleOf(d.by) != "":
		who = "by " + titleOf(d.by) + ", " + d.by
	case d.agent != "":
		who += ", with " + d.agent
	}
	c.Says = d.did + " " + who
	if d.policy != "" {
		c.Says += ", policy " + d.policy
	}
	if d.doubt != "" {
		c.Uncertain = true
		c.Evidence = append(c.Evidence, d.doubt)
	}
	c.Evidence = append(c.Evidence, l.refusals[d.uid]...)
	if d.lastWrite != nil {
		c.Evidence = append(c.Evidence, fmt.Sprintf("it was last written by %s, %s later: an object with finalizers goes when the last is removed",
			d.lastWrite.by, d.lastWrite.at.Sub(d.at).Round(time.Millisecond)))
	}
	switch {
	case d.with != nil:
		if x, ok := l.explain(*d.with, d.at, seen); ok {
			c.Because = append(c.Because, x)
		}
	case d.reason != nil:
		c.Says += ": " + d.reason.Decision
		l.owners(&c, d, seen)
	case titleOf(d.by) == collectorTitle:
		c.Evidence = append(c.Evidence, "the log does not name the deleted owner")
	case titleOf(d.by) == namespaceTitle && d.place.namespace != "":
		if x, ok := l.explain(Target{Kind: ownership.Kind{Kind: "Namespace"}, Name: d.place.namespace}, d.at, seen); ok {
			c.Because = append(c.Because, x)
		}
	}
	return c
}

// owners adds the evidence about the owners, and explains why absent ones are gone.
func (l *Log) owners(c *Cause, d *deletion, seen map[place]bool) {
	for _, o := range d.reason.Owners {
		says := fmt.Sprintf("the reference to %s %s is %s", o.Kind, o.Name, o.Standing)
		if o.Evidence != "" && o.Evidence != "none" {
			says += ", by " + article(o.Evidence)
		}
		c.Evidence = append(c.Evidence, says)
		if o.Standing == "solid" || len(c.Because) == maxOwners {
			continue
		}
		if x, ok := l.explain(Target{UID: ownership.UID(o.UID), Kind: kindOf(o.Kind), Namespace: o.Namespace, Name: o.Name}, d.at, seen); ok {
			c.Because = append(c.Because, x)
		}
	}
	if d.reason.MoreOwners > 0 {
		c.Evidence = append(c.Evidence, "it had "+english.Plural(d.reason.MoreOwners, "more owner", ""))
	}
}

func article(noun string) string {
	if strings.HasPrefix(noun, "o") {
		return "an " + noun
	}
	return "a " + noun
}

// guesses returns the deletions that may have included an object that no deletion names.
func (l *Log) guesses(at place, seen map[place]bool) []Cause {
	var of []*deletion
	for _, d := range l.collections {
		if d.place.resource == at.resource && (d.place.namespace == "" || d.place.namespace == at.namespace) {
			of = append(of, d)
		}
	}
	var causes []Cause
	if len(of) > 0 {
		last := slices.MaxFunc(of, func(a, b *deletion) int { return a.at.Compare(b.at) })
		c := l.cause(last, seen)
		c.Uncertain = true
		c.Evidence = append(c.Evidence, "no request names the object; this one was for all of its kind that it selected")
		return append(causes, c)
	}
	for _, above := range []struct {
		kind ownership.Kind
		name string
		says string
	}{
		{ownership.Kind{Kind: "Namespace"}, at.namespace, "no request names the object, but its namespace was deleted"},
		{
			ownership.Kind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"},
			at.resource.String(),
			"no request names the object, but the definition of its kind was deleted",
		},
	} {
		if above.name == "" {
			continue
		}
		x, ok := l.explain(Target{Kind: above.kind, Name: above.name}, time.Time{}, seen)
		if !ok {
			continue
		}
		first := x.Causes[0]
		causes = append(causes, Cause{Says: above.says, Time: first.Time, Source: first.Source, Uncertain: true, Because: []Explanation{x}})
	}
	return causes
}

// The controllers that delete on behalf of others.
const (
	collectorTitle = "the garbage collector"
	namespaceTitle = "the namespace controller"
)

// titleOf returns the title of a controller's user; empty for any other user.
func titleOf(user string) string {
	switch user {
	case "system:coppice:collector", "system:serviceaccount:kube-system:generic-garbage-collector":
		return collectorTitle
	case "system:coppice:namespace-controller", "system:serviceaccount:kube-system:namespace-controller":
		return namespaceTitle
	}
	return ""
}
