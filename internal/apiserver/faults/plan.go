// Package faults gives an API server faults that a highly available kube-apiserver may have, too, and that a server on
// loopback does not have by itself. docs/faults.md describes each fault, and says why it is admissible.
//
// A Plan lists faults (plan.go), and Draws decides which of them happen to a request (draw.go): both are pure.
// Injector keeps the current plan, and carries it out: its filters Requests and Answers refuse writes and lose answers
// (filter.go), its storage decorator Wrap delays and ends watches, and answers lists from a former state (watch.go,
// list.go) and those by which the server learns of definitions and webhooks (configuration.go), its Listener ends connections (connections.go), and Controllers stops and starts the controllers of the
// process (controllers.go). A journal has the latest faults (journal.go).
package faults

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is a kind of fault. Its text is its name in plans.
type Kind string

// The kinds of faults.
const (
	// WatchLag: the events of a watch, bookmarks too, come late, in their order.
	WatchLag Kind = "watch-lag"
	// WatchEnd: a watch ends after a time.
	WatchEnd Kind = "watch-end"
	// WatchExpired: a watch that resumes after a resourceVersion is answered with 410 Expired.
	WatchExpired Kind = "watch-expired"
	// StaleList: a list, or a watch, at resourceVersion 0 is answered from a former state.
	StaleList Kind = "stale-list"
	// RefusedWrite: a write is not carried out, and answered with 429, 500 or 503.
	RefusedWrite Kind = "refused-write"
	// LostAnswer: a write is carried out, and its answer does not arrive: the connection ends, or 504 comes instead.
	LostAnswer Kind = "lost-answer"
	// OtherWriter: somebody else changes an object, and changes it back, before an update or a patch.
	OtherWriter Kind = "other-writer"
	// ConnectionsEnd: all connections end at once, again and again.
	ConnectionsEnd Kind = "connections-end"
	// ControllersLate: the controllers of the control plane stop for a time, again and again, and begin from lists.
	ControllersLate Kind = "controllers-late"
	// DefinitionLate: a CustomResourceDefinition that is established is served, and is in discovery, after a time.
	DefinitionLate Kind = "definition-late"
	// WebhookLate: the configuration of a webhook takes effect after a time.
	WebhookLate Kind = "webhook-late"
)

// parameters are the parameters of a kind.
type parameters struct {
	rate, delay, every bool
	meaning            string // of the delay
	selects            bool   // requests, by resource, client and user
}

func parametersOf(k Kind) (parameters, bool) {
	switch k {
	case WatchLag:
		return parameters{delay: true, meaning: "how late an event comes", selects: true}, true
	case WatchEnd:
		return parameters{delay: true, meaning: "when the watch ends", selects: true}, true
	case StaleList:
		return parameters{delay: true, meaning: "how old the state is", selects: true}, true
	case WatchExpired, RefusedWrite, LostAnswer, OtherWriter:
		return parameters{rate: true, selects: true}, true
	case ConnectionsEnd:
		return parameters{every: true}, true
	case ControllersLate:
		return parameters{every: true, delay: true, meaning: "how long they stop"}, true
	case DefinitionLate, WebhookLate:
		return parameters{delay: true, meaning: "how late a change takes effect"}, true
	default:
		return parameters{}, false
	}
}

// kinds returns all kinds, in the order of docs/faults.md.
func kinds() []Kind {
	return []Kind{WatchLag, WatchEnd, WatchExpired, StaleList, RefusedWrite, LostAnswer, OtherWriter, ConnectionsEnd, ControllersLate, DefinitionLate, WebhookLate}
}

// Range is a range of durations, from which each is drawn evenly.
type Range struct{ Least, Most time.Duration }

// String returns the range as ParsePlan reads it.
func (r Range) String() string { return r.Least.String() + "-" + r.Most.String() }

// Fault is a fault of a plan.
type Fault struct {
	Kind Kind
	// Resource, Client and User select the requests to which the fault may happen; empty: all. They are patterns of
	// path.Match: of the resource with its group, such as deployments.apps; of the program in the User-Agent header,
	// such as manager in manager/v1.0 (linux/amd64); and of the name of the user.
	Resource, Client, User string
	// Rate is the share of the selected requests to which it happens, from 0 to 1.
	Rate float64
	// Delay is the range of the times of WatchLag, WatchEnd, StaleList, DefinitionLate and WebhookLate, and of the pauses of
	// ControllersLate.
	Delay Range
	// Every is the range of the times between two faults of a kind that does not belong to a request.
	Every Range
}

// Variable is the environment variable with the plan of a control plane that a test starts.
const Variable = "COPPICE_FAULTS"

// Plan is a list of faults and the seed of all draws. Of the faults of one kind that select a request, the last one
// counts. The zero value has no faults.
type Plan struct {
	Seed   uint64
	Faults []Fault
}

// levels are the named plans.
func levels() map[string]string {
	return map[string]string{
		"mild": "watch-lag delay=5ms-100ms; watch-end delay=30s-2m; stale-list delay=0s-100ms; refused-write rate=0.2%",
		"realistic": "watch-lag delay=20ms-1s; watch-end delay=10s-1m; watch-expired rate=25%; stale-list delay=0s-2s; " +
			"refused-write rate=1%; lost-answer rate=1%; other-writer rate=1%; connections-end every=30s-2m; controllers-late every=30s-2m delay=1s-5s; " +
			"definition-late delay=0s-1s; webhook-late delay=0s-1s",
		"harsh": "watch-lag delay=100ms-5s; watch-end delay=2s-20s; watch-expired rate=50%; stale-list delay=0s-10s; " +
			"refused-write rate=5%; lost-answer rate=5%; other-writer rate=5%; connections-end every=5s-30s; controllers-late every=5s-30s delay=1s-10s; " +
			"definition-late delay=0s-4s; webhook-late delay=0s-5s",
	}
}

// ParsePlan reads a plan: items with semicolons between them, each of which is a level (mild, realistic, harsh), a fault
// with its parameters (watch-lag delay=1s-2s resource=pods), or seed=N. A level that selects requests (harsh
// client=manager) has those of its faults that happen to requests. Errors are for users.
func ParsePlan(text string) (Plan, error) {
	var plan Plan
	for item := range strings.SplitSeq(text, ";") {
		words := strings.Fields(item)
		if len(words) == 0 {
			continue
		}
		if seed, ok := strings.CutPrefix(words[0], "seed="); ok && len(words) == 1 {
			number, err := strconv.ParseUint(seed, 10, 64)
			if err != nil {
				return Plan{}, fmt.Errorf("seed %q is not a number from 0 to 2^64-1", seed)
			}
			plan.Seed = number
			continue
		}
		if text, ok := levels()[words[0]]; ok {
			level, err := parseLevel(text, words)
			if err != nil {
				return Plan{}, err
			}
			plan.Faults = append(plan.Faults, level...)
			continue
		}
		fault, err := parseFault(words[0], words[1:])
		if err != nil {
			return Plan{}, err
		}
		plan.Faults = append(plan.Faults, fault)
	}
	return plan, nil
}

// parseLevel returns the faults of a level, whose name and selectors are words.
func parseLevel(text string, words []string) ([]Fault, error) {
	level, err := ParsePlan(text)
	if err != nil || len(words) == 1 {
		return level.Faults, err
	}
	var selects Fault
	if err := selects.setAll(parameters{selects: true}, words[1:]); err != nil {
		return nil, fmt.Errorf("%s: %w", words[0], err)
	}
	var chosen []Fault
	for _, f := range level.Faults {
		if has, _ := parametersOf(f.Kind); has.selects {
			f.Resource, f.Client, f.User = selects.Resource, selects.Client, selects.User
			chosen = append(chosen, f)
		}
	}
	return chosen, nil
}

// String returns the plan as ParsePlan reads it.
func (p Plan) String() string {
	items := []string{"seed=" + strconv.FormatUint(p.Seed, 10)}
	for _, f := range p.Faults {
		items = append(items, f.String())
	}
	return strings.Join(items, "; ")
}

// percentDigits are the digits of a rate in percent. With all digits, 7% would be 7.000000000000001%.
const percentDigits = 12

// String returns the fault as ParsePlan reads it.
func (f Fault) String() string {
	words := []string{string(f.Kind)}
	has, _ := parametersOf(f.Kind)
	if has.rate {
		words = append(words, "rate="+strconv.FormatFloat(f.Rate*100, 'g', percentDigits, 64)+"%")
	}
	if has.delay {
		words = append(words, "delay="+f.Delay.String())
	}
	if has.every {
		words = append(words, "every="+f.Every.String())
	}
	for _, selector := range []struct{ name, pattern string }{{"resource", f.Resource}, {"client", f.Client}, {"user", f.User}} {
		if selector.pattern != "" {
			words = append(words, selector.name+"="+selector.pattern)
		}
	}
	return strings.Join(words, " ")
}

// parseFault reads a fault and its parameters.
func parseFault(name string, words []string) (Fault, error) {
	f := Fault{Kind: Kind(name)}
	has, ok := parametersOf(f.Kind)
	if !ok {
		return Fault{}, fmt.Errorf("%q is neither a level (%s) nor a fault (%s)", name, strings.Join(slices.Sorted(maps.Keys(levels())), ", "), join(kinds()))
	}
	if err := f.setAll(has, words); err != nil {
		return Fault{}, fmt.Errorf("%s: %w", name, err)
	}
	given := func(parameter string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.HasPrefix(word, parameter+"=") })
	}
	switch {
	case has.rate && !given("rate"):
		return Fault{}, fmt.Errorf("%s needs rate=, the share of requests, such as 2%%", name)
	case has.every && !given("every"):
		return Fault{}, fmt.Errorf("%s needs every=, the time between two of them, such as 30s or 10s-1m", name)
	case has.delay && !given("delay"):
		return Fault{}, fmt.Errorf("%s needs delay=, %s, such as 1s or 100ms-2s", name, has.meaning)
	}
	return f, nil
}

// setAll sets the parameters in words.
func (f *Fault) setAll(has parameters, words []string) error {
	given := map[string]bool{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || value == "" {
			return fmt.Errorf("%q is not a parameter: write name=value", word)
		}
		if given[key] {
			return fmt.Errorf("%s is given twice", key)
		}
		given[key] = true
		if err := f.set(has, key, value); err != nil {
			return err
		}
	}
	return nil
}

// set sets one parameter.
func (f *Fault) set(has parameters, key, value string) (err error) {
	switch {
	case key == "rate" && has.rate:
		f.Rate, err = parseRate(value)
	case key == "delay" && has.delay:
		f.Delay, err = parseRange(value)
	case key == "every" && has.every:
		if f.Every, err = parseRange(value); err == nil && f.Every.Least == 0 {
			err = errors.New("want more than 0s between two of them")
		}
	case !has.selects:
		return fmt.Errorf("%q is not one of its parameters", key)
	case key == "resource":
		f.Resource, err = parsePattern(value)
	case key == "client":
		f.Client, err = parsePattern(value)
	case key == "user":
		f.User, err = parsePattern(value)
	default:
		return fmt.Errorf("%q is not one of its parameters", key)
	}
	if err != nil {
		return fmt.Errorf("%s=%s: %w", key, value, err)
	}
	return nil
}

func parsePattern(text string) (string, error) {
	_, err := path.Match(text, "")
	return text, err
}

// parseRate reads a share, such as 2% or 0.02.
func parseRate(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	rate, err := strconv.ParseFloat(number, 64)
	if percent {
		rate /= 100
	}
	if err != nil || !(rate >= 0 && rate <= 1) {
		return 0, errors.New("want a share from 0% to 100%")
	}
	return rate, nil
}

// mostDelay bounds delays. No test waits longer for an event.
const mostDelay = time.Hour

// parseRange reads a duration, or two with a hyphen between them.
func parseRange(text string) (Range, error) {
	least, most, isRange := strings.Cut(text, "-")
	if !isRange {
		most = least
	}
	from, err1 := time.ParseDuration(least)
	to, err2 := time.ParseDuration(most)
	if err1 != nil || err2 != nil || from < 0 || to < from || to > mostDelay {
		return Range{}, fmt.Errorf("want a duration up to %v, such as 1s, or a range, such as 100ms-2s", mostDelay)
	}
	return Range{from, to}, nil
}

func join(all []Kind) string {
	names := make([]string, 0, len(all))
	for _, k := range all {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}
