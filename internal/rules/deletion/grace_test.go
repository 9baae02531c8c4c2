package deletion

import (
	"math"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AS-15: a later DELETE only shortens the grace; the end is not put into the past, and never moves later (R19).
func TestR17_GraceOnlyShrinks(t *testing.T) {
	in := func(s int64) time.Time { return noon.Add(seconds(s)) }
	tests := map[string]struct {
		end       time.Time // of the stored object
		grace     int64
		requested *int64
		wantEnd   time.Time
		wantGrace int64
		wantKeep  bool
	}{
		"AS-15 nothing asked":                        {in(20), 30, nil, in(20), 30, true},
		"AS-15 longer":                               {in(20), 30, new(int64(60)), in(20), 30, true},
		"AS-15 equal":                                {in(20), 30, new(int64(30)), in(20), 30, true},
		"AS-15 shorter, its end ahead":               {in(20), 30, new(int64(15)), in(5), 15, false},
		"AS-15 shorter, ends now":                    {in(20), 30, new(int64(10)), in(0), 10, false},
		"AS-15 shorter, would end in the past":       {in(20), 30, new(int64(5)), in(0), 1, false},
		"AS-15 1 s, would end in the past":           {in(20), 30, new(int64(1)), in(0), 1, false},
		"AS-15 negative is 1 s":                      {in(30), 30, new(int64(-1)), in(1), 1, false},
		"AS-15 stored negative is 1 s":               {in(1), -7, new(int64(5)), in(1), -7, true},
		"AS-15 shorter, the grace was over":          {in(-5), 30, new(int64(10)), in(-5), 1, false},
		"AS-15 nothing asked, the grace was over":    {in(-5), 30, nil, in(-5), 30, true},
		"AS-09 grace 0 with an end ahead is due now": {in(20), 0, nil, in(0), 0, false},
		"AS-09 grace 0 with an end behind stays":     {in(-20), 0, nil, in(-20), 0, true},
		"AS-09 grace 0 with an end at now stays":     {in(0), 0, new(int64(5)), in(0), 0, true},
		"AS-15 0, its end ahead":                     {in(20), 30, new(int64(0)), in(0), 0, false},
		"AS-15 0, the grace was over":                {in(-5), 30, new(int64(0)), in(-5), 0, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The finalizer keeps the object, so that the test can see the write.
			stored := object(deleting(test.end, test.grace), finalizers(foreign))
			plan := decide(t, stored, &metav1.DeleteOptions{GracePeriodSeconds: test.requested}, pods())
			if _, kept := plan.(Keep); kept != test.wantKeep {
				t.Errorf("plan = %v, want Keep: %v", plan, test.wantKeep)
			}
			got := apply(t, stored, plan)
			if !got.DeletionTimestamp.Time.Equal(test.wantEnd) || *got.DeletionGracePeriodSeconds != test.wantGrace {
				t.Errorf("end %v, grace %d, want %v and %d", got.DeletionTimestamp.UTC(), *got.DeletionGracePeriodSeconds, test.wantEnd, test.wantGrace)
			}
		})
	}
}

// AS-15, the DELETE that marks: the requested grace, made representable.
func TestR17_FirstGrace(t *testing.T) {
	for name, test := range map[string]struct{ requested, want int64 }{
		"as asked":                 {45, 45},
		"negative is 1 s":          {-1, 1},
		"longest":                  {math.MaxInt64, longestGrace},
		"very negative is 1 s too": {math.MinInt64, 1},
	} {
		t.Run(name, func(t *testing.T) {
			marked := apply(t, object(), decide(t, object(), metav1.NewDeleteOptions(test.requested), pods()))
			if *marked.DeletionGracePeriodSeconds != test.want || marked.DeletionTimestamp.Time.Before(noon) {
				t.Errorf("grace %d, end %v, want %d", *marked.DeletionGracePeriodSeconds, marked.DeletionTimestamp, test.want)
			}
		})
	}
}

// AS-09: whatever a client requests, the end of a deletion never moves later and the grace never
// grows.
func TestR19_TheEndNeverMovesLater(t *testing.T) {
	for _, grace := range []int64{0, 1, 5, 30} {
		for end := int64(-40); end <= 40; end += 4 {
			for requested := int64(-1); requested <= 40; requested++ {
				stored := object(deleting(noon.Add(seconds(end)), grace), finalizers(foreign))
				got := apply(t, stored, decide(t, stored, metav1.NewDeleteOptions(requested), pods()))
				if got.DeletionTimestamp.After(stored.DeletionTimestamp.Time) {
					t.Errorf("grace %d, end %d s, requested %d: the end moved from %v to %v", grace, end, requested, stored.DeletionTimestamp, got.DeletionTimestamp)
				}
				if *got.DeletionGracePeriodSeconds > grace {
					t.Errorf("grace %d, end %d s, requested %d: the grace grew to %d", grace, end, requested, *got.DeletionGracePeriodSeconds)
				}
				if got.DeletionTimestamp.Time.Before(noon) && !got.DeletionTimestamp.Equal(stored.DeletionTimestamp) {
					t.Errorf("grace %d, end %d s, requested %d: the end was put into the past: %v", grace, end, requested, got.DeletionTimestamp)
				}
			}
		}
	}
}
