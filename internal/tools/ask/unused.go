package ask

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
	"github.com/coppice-dev/coppice/internal/tools/cascade"
	"github.com/coppice-dev/coppice/internal/tools/explain"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
	"github.com/coppice-dev/coppice/internal/tools/reader"
)

// Attempt tries to delete an object that nothing seems to need. It returns the refusal of the server if something does,
// such as an object that the user may not list.
type Attempt func() (refusal string, err error)

// WaitUnused waits until no other object needs an object that is protected in mode unused, and until an attempt then
// succeeds. It calls visit with a report whenever it has looked. If ctx ends first, the state of the last report is
// TimedOut if that was its deadline; otherwise it returns the error of ctx.
//
// The looks only tell when to try: the server decides in the deletion, in one step with it. A watch of the users that were
// found asks for the next look, and users without a watch are looked for after at most 10 seconds.
func (s *Sources) WaitUnused(ctx context.Context, o *inventory.Object, try Attempt, visit func(cascade.Report) error) (cascade.Report, error) {
	w := &waiting{Sources: s, report: cascade.Report{State: cascade.Waiting, Roots: []explain.Ref{refOf(o)}, Left: 1}}
	var err error
	if w.follower, err = reader.NewFollower(s.Config); err != nil {
		return w.report, err
	}
	defer w.follower.Stop()
	facts, err := reader.NewFacts(s.Config)
	if err != nil {
		return w.report, err
	}
	for interval := unasked; ; interval = min(2*interval, patient) {
		began, outline := s.Now(), w.report.Outline()
		remaining, refusal, err := lookOrTry(ctx, facts, o, try)
		if ctx.Err() != nil || err != nil {
			return w.unfinished(ctx, errors.Join(err, ctx.Err()))
		}
		if len(remaining) == 0 && refusal == "" {
			return w.report, nil
		}
		w.report.Time, w.report.Causes = s.Now(), usersOf(refOf(o), remaining, refusal)
		if err := visit(w.report); err != nil {
			return w.report, err
		}
		if w.report.Outline() != outline {
			interval = unasked
		}
		w.follower.Follow(ctx, facts.Users(remaining))
		reading := s.Now().Sub(began)
		if !w.pause(ctx, max(soon, reading), max(interval, share*reading)) {
			return w.unfinished(ctx, ctx.Err())
		}
	}
}

// lookOrTry looks up the objects that need an object, and tries to delete it if there are none. Without users and refusal,
// the object is deleted.
func lookOrTry(ctx context.Context, facts *reader.Facts, o *inventory.Object, try Attempt) (remaining []protection.Remaining, refusal string, err error) {
	p, err := facts.Protection(ctx, o)
	switch {
	case ctx.Err() != nil:
		return nil, "", ctx.Err()
	case err != nil:
		return nil, "", fmt.Errorf("it is unknown whether the server protects %s: %w", refOf(o), err)
	case !p.Enforced || p.Mode != protection.Unused:
		return nil, "", fmt.Errorf("%s is no longer protected in mode %s", refOf(o), protection.Unused)
	case len(p.Remaining) > 0:
		return p.Remaining, "", nil
	}
	refusal, err = try()
	return nil, refusal, err
}

// usersOf returns the causes for which an object stays: the objects that need it, or else the refusal of the server.
func usersOf(o explain.Ref, remaining []protection.Remaining, refusal string) []explain.Group {
	var causes []explain.Group
	add := func(leaf explain.Wait) {
		leaf.On, leaf.State = explain.OnUser, explain.Unknown
		causes = append(causes, explain.Group{Leaf: leaf, Objects: []explain.Ref{o}})
	}
	for _, r := range remaining {
		user := explain.Ref{Kind: r.GroupVersionKind().GroupKind().String(), Namespace: r.Namespace, Name: r.Name, UID: ownership.UID(r.UID)}
		leaf := explain.Wait{Says: "in use by " + r.String()}
		if r.Name != "" {
			leaf.Object = &user
		}
		if r.Field != "" {
			leaf.Says += " (" + r.Field + ")"
		}
		if r.Unknown != "" {
			leaf.Says += ": " + r.Unknown
		}
		add(leaf)
	}
	if refusal != "" {
		add(explain.Wait{Says: strings.TrimSpace(refusal)})
	}
	return causes
}

func refOf(o *inventory.Object) explain.Ref {
	return explain.Ref{Kind: o.Kind.String(), Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
