package cronjob

import (
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// maxMissed is the number of missed times above which users are warned.
const maxMissed = 100

// longestLookBack is the number of years after which a missed time does not count. A duration has 292 years, and users may
// write any time into the status.
const longestLookBack = 100

// schedule is a cron schedule in a time zone.
type schedule struct {
	cron.Schedule
	zone *time.Location
}

// parseSchedule parses a schedule in the time zone of the clock.
func parseSchedule(text string, clock *time.Location) (schedule, error) {
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		return schedule{}, fmt.Errorf("unparseable schedule %q: %w", text, err)
	}
	return schedule{parsed, clock}, nil
}

// in returns the schedule in another time zone; nil keeps its own.
func (s schedule) in(zone *string) (schedule, error) {
	if zone == nil {
		return s, nil
	}
	location, err := time.LoadLocation(*zone)
	if err != nil {
		return schedule{}, fmt.Errorf("unknown time zone %q: %w", *zone, err)
	}
	return schedule{s.Schedule, location}, nil
}

// next returns the first scheduled time after t; zero if the schedule has no time for years.
func (s schedule) next(t time.Time) time.Time { return s.Next(t.In(s.zone)) }

// latest returns the last scheduled time after begin and not after now; zero if there is
// none. It looks back from now, twice as far at each step, so that a schedule that runs every
// minute and has missed a year takes no longer than one that has missed an hour.
func (s schedule) latest(begin, now time.Time) time.Time {
	if every, ok := s.Schedule.(cron.ConstantDelaySchedule); ok {
		begin = begin.Truncate(time.Second)
		if runs := now.Sub(begin) / every.Delay; runs > 0 {
			return begin.Add(runs * every.Delay).In(s.zone)
		}
		return time.Time{}
	}
	var found time.Time
	for back := time.Minute; found.IsZero(); back *= 2 {
		from := now.Add(-back)
		if !from.After(begin) {
			from = begin
		}
		for t := s.next(from); !t.IsZero() && !t.After(now); t = s.next(t) {
			found = t
		}
		if from.Equal(begin) {
			break
		}
	}
	return found
}

// missed returns the number of scheduled times after begin and not after now, but at most
// maxMissed+1.
func (s schedule) missed(begin, now time.Time) int {
	n := 0
	for t := s.next(begin); !t.IsZero() && !t.After(now) && n <= maxMissed; t = s.next(t) {
		n++
	}
	return n
}
