package story

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/coppice-dev/coppice/internal/rules/escape"
)

// Text returns a story as text, for a chat or a ticket.
func (s *Summary) Text(objects []Object, now time.Time) string {
	var text strings.Builder
	say := func(format string, args ...any) { text.WriteString(escape.Sprintf(format, args...)) }
	state, until := "being deleted", now
	if s.Done {
		state, until = "deleted", *s.Ended
	}
	say("%s: %s (%s)", s.Root, state, s.Policy)
	if s.More > 0 {
		say(", with %d more that were asked for at once", s.More)
	}
	say("\nbegan %s, %s ago", s.Began.UTC().Format(time.RFC3339), now.Sub(s.Began).Round(time.Second))
	if s.Done {
		say(", took %s", until.Sub(s.Began).Round(time.Millisecond))
	}
	if s.By != nil {
		say(", asked by %s", s.By.User)
		if s.By.Agent != "" {
			say(" with %s", s.By.Agent)
		}
	}
	say("\n%d gone, %d waiting, %d kept\n", s.Gone, s.Waiting, s.Kept)
	if s.WaitsFor != "" {
		say("waits for %s\n", s.WaitsFor)
	}
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b Object) int { return strings.Compare(a.String(), b.String()) })
	sayRefusals(sorted, say)
	for _, o := range sorted {
		switch {
		case o.Fate == FateKept && len(o.KeptBy) > 0:
			say("stays: %s, owned by %s\n", o.Ref, o.KeptBy[0])
		case o.Protected:
			say("stays: %s, which is protected\n", o.Ref)
		case o.Fate == FateKept:
			say("stays: %s\n", o.Ref)
		}
	}
	return text.String()
}

// waitsFor describes the waits in words, as far as a reader may see them.
func waitsFor(all []wait, sees Sees) string {
	var seen []wait
	for _, w := range all {
		if sees != nil && !sees(w.first) {
			continue
		}
		at := slices.IndexFunc(seen, func(other wait) bool { return other.isLike(&w) })
		if at < 0 {
			seen = append(seen, w)
			continue
		}
		seen[at].count += w.count
		seen[at].due = max(seen[at].due, w.due)
	}
	slices.SortStableFunc(seen, func(a, b wait) int { return cmp.Or(cmp.Compare(a.on, b.on), cmp.Compare(b.count, a.count)) })
	var says []string
	for _, w := range seen {
		if w.on != onOthers || len(seen) == 1 { // these wait for the others
			says = append(says, w.String())
		}
	}
	return strings.Join(says, "; ")
}

// String describes the object that is waited for.
func (w *wait) String() string {
	some := w.first.String()
	if w.count > 1 {
		some += fmt.Sprintf(" and %d more", w.count-1)
	}
	switch w.on {
	case onProtected:
		return some + ", which " + map[bool]string{true: "are", false: "is"}[w.count > 1] + " protected"
	case onFinalizer:
		return "the finalizer " + w.holder + " of " + some
	case onRefused:
		return some + ", refused by " + w.holder
	case onGrace:
		return fmt.Sprintf("%s to stop, which is due at %s", some, time.Unix(w.due, 0).UTC().Format("15:04:05 UTC"))
	case onOthers:
		// All that the story has may have gone: a resource that cannot be read may have more (R15, R22).
		return some + ", whose dependents and contents are not known to be gone"
	case onRemoval:
	}
	return some + " to be removed"
}
