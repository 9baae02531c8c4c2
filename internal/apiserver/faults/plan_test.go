package faults

import (
	"strings"
	"testing"
	"time"
)

func TestPlansAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "seed=0",
		" ; ;":                                  "seed=0",
		"seed=7; mild":                          "seed=7; watch-lag delay=5ms-100ms; watch-end delay=30s-2m0s; stale-list delay=0s-100ms; refused-write rate=0.2%",
		"controllers-late delay=1s every=1m-2m": "seed=0; controllers-late delay=1s-1s every=1m0s-2m0s",
		"lost-answer rate=0.5":                  "seed=0; lost-answer rate=50%",
		"lost-answer rate=7%":                   "seed=0; lost-answer rate=7%",
		"mild client=manager resource=*.apps":   "seed=0; watch-lag delay=5ms-100ms resource=*.apps client=manager; watch-end delay=30s-2m0s resource=*.apps client=manager; stale-list delay=0s-100ms resource=*.apps client=manager; refused-write rate=0.2% resource=*.apps client=manager",
		"watch-lag delay=1s":                    "seed=0; watch-lag delay=1s-1s",
		"watch-expired  rate=25%":               "seed=0; watch-expired rate=25%",
		"refused-write client=manager* user=system:serviceaccount:* rate=3% resource=*.apps": "seed=0; refused-write rate=3% resource=*.apps client=manager* user=system:serviceaccount:*",
	} {
		plan, err := ParsePlan(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := plan.String(); got != want {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
		again, err := ParsePlan(plan.String())
		if err != nil || again.String() != want {
			t.Errorf("%q, written and read again, is %q (%v)", text, again.String(), err)
		}
	}
}

func TestWrongPlansSayWhatToDo(t *testing.T) {
	for text, want := range map[string]string{
		"wild":                                "neither a level (harsh, mild, realistic) nor a fault (watch-lag, watch-end, watch-expired, stale-list, refused-write, lost-answer, other-writer, connections-end, controllers-late, definition-late, webhook-late)",
		"mild rate=2%":                        `mild: "rate" is not one of its parameters`,
		"mild manager":                        `mild: "manager" is not a parameter: write name=value`,
		"mild user=a user=b":                  "mild: user is given twice",
		"seed=-1":                             "not a number from 0",
		"lost-answer":                         "needs rate=",
		"watch-lag":                           "needs delay=, how late an event comes, such as",
		"connections-end":                     "needs every=, the time between two of them, such as",
		"connections-end every=0s-1m":         "every=0s-1m: want more than 0s",
		"connections-end every=1s client=a":   `"client" is not one of its parameters`,
		"controllers-late every=1s":           "needs delay=, how long they stop, such as",
		"watch-end rate=2% delay=1s":          `"rate" is not one of its parameters`,
		"lost-answer rate=2":                  "a share from 0% to 100%",
		"lost-answer rate=NaN":                "a share from 0% to 100%",
		"lost-answer rate=2% rate=3%":         "rate is given twice",
		"lost-answer 2%":                      "write name=value",
		"lost-answer rate=2% client=":         "write name=value",
		"lost-answer rate=2% client=[":        "syntax error in pattern",
		"watch-lag delay=2s-1s":               "want a duration up to 1h0m0s",
		"watch-lag delay=2h":                  "want a duration up to 1h0m0s",
		"watch-lag delay=fast":                "want a duration up to 1h0m0s",
		"watch-lag delay=-1s":                 "want a duration up to 1h0m0s",
		"realistic; seed=1; lost-answer=on":   "neither a level",
		"watch-lag delay=1s resource=pods x=": "write name=value",
	} {
		if _, err := ParsePlan(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// Each level has what the level below has, and is harsher.
func TestLevelsAreInOrder(t *testing.T) {
	last := map[Kind]Fault{}
	for _, level := range []string{"mild", "realistic", "harsh"} {
		plan, err := ParsePlan(level)
		if err != nil {
			t.Fatal(err)
		}
		this := map[Kind]Fault{}
		for _, f := range plan.Faults {
			this[f.Kind] = f
		}
		for kind, before := range last {
			now, ok := this[kind]
			harsher := now.Rate > before.Rate || now.Delay.Most > before.Delay.Most
			if kind == WatchEnd {
				harsher = now.Delay.Most < before.Delay.Most
			}
			if kind == ConnectionsEnd {
				harsher = now.Every.Most < before.Every.Most
			}
			if !ok || !harsher {
				t.Errorf("%s: %v is not harsher than %v", level, now, before)
			}
		}
		last = this
	}
	if len(last) != len(kinds()) || last[WatchLag].Delay.Most < time.Second {
		t.Errorf("harsh has %v", last)
	}
}
