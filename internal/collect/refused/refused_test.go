package refused

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coppice-dev/coppice/collector/report"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/refusal"
)

var (
	pod   = ownership.Kind{Kind: "Pod"}
	start = time.Unix(1_000_000, 0)
)

func object(n int) ownership.Object {
	uid := fmt.Sprintf("uid-%06d", n)
	return ownership.Object{Kind: pod, Namespace: "shop", Name: uid, UID: ownership.UID(uid), ResourceVersion: "1"}
}

// The details take a megabyte at most, and all objects are counted. An object gets the place of another that is gone.
func TestListIsBounded(t *testing.T) {
	for _, message := range []string{"no", strings.Repeat("m", refusal.MaxMessage)} {
		var l List
		const all = 5 * maxObjects
		for n := range all {
			l.Add(object(n), report.ActionDelete, refusal.Refusal{By: refusal.ByPolicy, Message: message}, start.Add(time.Duration(n)))
		}
		check := func(counted int) []report.RefusedObject {
			t.Helper()
			objects, counts := l.Status()
			bytes := 0
			for n := range objects {
				bytes += bytesOf(&objects[n])
			}
			if len(objects) > maxObjects || len(objects) < maxObjects/2 || bytes > maxBytes || bytes != l.bytes || len(objects) != len(l.listed) {
				t.Errorf("%d objects with %d bytes, counted as %d with %d", len(objects), bytes, len(l.listed), l.bytes)
			}
			if len(counts) != 1 || counts[0] != (report.RefusedCount{Kind: "Pod", By: "policy", Objects: counted}) {
				t.Errorf("counts %+v, want %d", counts, counted)
			}
			return objects
		}
		if objects := check(all); objects[0].UID != "uid-000000" {
			t.Errorf("the first one is %s", objects[0].UID)
		}
		for n := range maxObjects {
			l.Forget(object(n).UID)
		}
		for n := maxObjects; n < all; n++ {
			l.Add(object(n), report.ActionDelete, refusal.Refusal{By: refusal.ByPolicy, Message: message}, start.Add(time.Hour))
		}
		if objects := check(all - maxObjects); !objects[0].Since.Equal(start.Add(maxObjects)) || objects[0].Count != 2 {
			t.Errorf("the first one is refused since %v, %d times", objects[0].Since, objects[0].Count)
		}
		l.Sweep(func(ownership.UID) bool { return false })
		if objects, counts := l.Status(); len(objects)+len(counts)+l.bytes+len(l.listed)+len(l.counts)+len(l.told) != 0 {
			t.Errorf("something is left: %+v", l)
		}
	}
}

func TestTell(t *testing.T) {
	var l List
	policy := refusal.Refusal{By: refusal.ByPolicy, Name: "keep", Message: "at 12:00"}
	for _, step := range []struct {
		name  string
		after time.Duration
		by    refusal.Refusal
		want  bool
	}{
		{"the first", 0, policy, true},
		{"again", time.Second, policy, false},
		{"in other words", time.Second, refusal.Refusal{By: refusal.ByPolicy, Name: "keep", Message: "at 12:01"}, false},
		{"another policy", time.Minute, refusal.Refusal{By: refusal.ByPolicy, Name: "all"}, true},
		{"a webhook of that name", time.Minute, refusal.Refusal{By: refusal.ByWebhook, Name: "all"}, true},
		{"too many", time.Minute, refusal.Refusal{By: refusal.ByWebhook, Name: "more"}, false},
		{"when the Event has expired", time.Hour, policy, true},
		{"again after that", time.Hour + time.Second, policy, false},
	} {
		if got := l.Tell("a", step.by, start.Add(step.after)); got != step.want {
			t.Errorf("%s: %t, want %t", step.name, got, step.want)
		}
	}
	for n := range 2 * maxTold {
		l.Tell(object(n).UID, policy, start)
	}
	if len(l.told) > maxTold {
		t.Errorf("%d objects have Events", len(l.told))
	}
}
