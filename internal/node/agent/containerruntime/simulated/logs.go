package simulated

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/coppice-dev/coppice/internal/node/kubeletapi"
)

// mostTrouble is the maximum number of failed probes that an instance keeps. Older ones are dropped.
const mostTrouble = 20

// trouble is a logged event of an instance.
type trouble struct {
	at   time.Time
	text string
}

func (i *instance) note(at time.Time, text string) {
	if len(i.trouble) == mostTrouble {
		i.trouble = slices.Delete(i.trouble, 0, 1)
		i.dropped++
	}
	i.trouble = append(i.trouble, trouble{at, text})
	i.tell()
}

// lines returns the log of an instance: its start, its failed probes, TERM, and its end.
func (i *instance) lines() []trouble {
	lines := []trouble{{i.Started, fmt.Sprintf("simulated: container %s started, attempt %d", i.Container, i.Attempt)}}
	lines = append(lines, i.trouble...)
	if !i.told.IsZero() {
		lines = append(lines, trouble{i.told, "simulated: TERM"})
	}
	if !i.Alive() {
		text := fmt.Sprintf("simulated: exit code %d", i.ExitCode)
		if i.Reason != "" {
			text += ", " + i.Reason
		}
		lines = append(lines, trouble{i.Finished, text})
	}
	slices.SortStableFunc(lines, func(a, b trouble) int { return a.at.Compare(b.at) })
	return lines
}

// Logs implements agent.Runtime. A followed log ends with the instance.
func (r *Runtime) Logs(ctx context.Context, of *corev1.Pod, o *corev1.PodLogOptions) (io.ReadCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	run := r.run(of, o)
	if run == nil {
		which := "container"
		if o.Previous {
			which = "previous terminated container"
		}
		return nil, fmt.Errorf("%s %q in pod %q: %w", which, o.Container, of.Name, kubeletapi.ErrNoContainer)
	}
	if !o.Follow {
		return io.NopCloser(strings.NewReader(kubeletapi.SelectLines(run.since(0), o, r.clock.Now()))), nil
	}
	reader, writer := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	f := &follower{r, run, *o, 0}
	go func() {
		defer cancel()
		writer.CloseWithError(f.copyTo(ctx, writer))
	}()
	return &followed{reader, cancel}, nil
}

// Stream implements agent.Runtime.
func (r *Runtime) Stream(context.Context, *corev1.Pod, kubeletapi.StreamRequest) (*url.URL, error) {
	return nil, kubeletapi.ErrNoProcesses
}

// run returns the instance whose logs are requested. The caller holds the lock.
func (r *Runtime) run(of *corev1.Pod, o *corev1.PodLogOptions) *instance {
	p := r.pods[of.UID]
	if p == nil {
		return nil
	}
	var last, before *instance
	for _, run := range p.runs {
		if run.Container != o.Container {
			continue
		}
		switch {
		case last == nil || run.Attempt > last.Attempt:
			last, before = run, last
		case before == nil || run.Attempt > before.Attempt:
			before = run
		}
	}
	if o.Previous {
		return before
	}
	return last
}
