package collector

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/coppice-dev/coppice/internal/verdict"
)

// Histogram counts durations by upper bounds, as Prometheus does.
type Histogram struct {
	// Bounds are the upper bounds of the buckets, ascending.
	Bounds []time.Duration `json:"bounds"`
	// Counts are those of the buckets, not cumulative; the last one counts what is above all
	// bounds.
	Counts []int64       `json:"counts"`
	Sum    time.Duration `json:"sum"`
	Count  int64         `json:"count"`
}

// latency measures the time from the evidence that the last owner of an object is
// gone to the answer to the object's DELETE.
type latency struct{ histogram prometheus.Histogram }

func newLatency() latency {
	return latency{prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "coppice_cascade_seconds",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})}
}

// observe adds the deletion of an object with these owners.
func (l latency) observe(now time.Time, owners []verdict.Owner) {
	last := int64(0)
	for _, o := range owners {
		if o.Standing != verdict.Dangling {
			return // a foreground deletion: the owner still exists
		}
		last = max(last, o.Evidence.Time)
	}
	if last == 0 {
		return
	}
	l.histogram.Observe(max(0, now.Sub(time.Unix(0, last))).Seconds())
}

// read returns the counts so far.
func (l latency) read() Histogram {
	var metric dto.Metric
	if err := l.histogram.Write(&metric); err != nil {
		return Histogram{} // not the zero value, which has no buckets
	}
	written := metric.GetHistogram()
	h := Histogram{Sum: seconds(written.GetSampleSum()), Count: int64(written.GetSampleCount())}
	below := uint64(0)
	for _, b := range written.GetBucket() {
		h.Bounds = append(h.Bounds, seconds(b.GetUpperBound()))
		h.Counts = append(h.Counts, int64(b.GetCumulativeCount()-below))
		below = b.GetCumulativeCount()
	}
	h.Counts = append(h.Counts, h.Count-int64(below))
	return h
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }
