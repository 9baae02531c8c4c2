package simulated

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/node/agent/lifecycle"
)

// TestEndedSubjectsHaveNoEvents checks that nothing of a start, an instance or a pod stays in the queue of events when it
// is given up, has ended or is removed. Each step ends once.
func TestEndedSubjectsHaveNoEvents(t *testing.T) {
	const uid, container = types.UID("u"), "c"
	id := instanceID(uid, container, 0)
	start, preStop := lifecycle.Start{Container: container}, lifecycle.PreStop{ID: id, Container: container, Within: time.Hour}
	kill, removal := lifecycle.Kill{ID: id, Container: container}, lifecycle.RemoveSandbox{ID: string(uid), Final: true}
	for name, test := range map[string]struct {
		annotation string
		steps      []lifecycle.Step // after the sandbox was created; all but the last leave an event
		canceled   bool             // the start
	}{
		"given up":                        {startAfter, []lifecycle.Step{start, lifecycle.GiveUp{Container: container}}, true},
		"starting, pod removed":           {startAfter, []lifecycle.Step{start, removal}, true},
		"starting, sandbox created again": {startAfter, []lifecycle.Step{start, lifecycle.CreateSandbox{Attempt: 1}}, true},
		"exits later, killed":             {exitAfter, []lifecycle.Step{start, kill}, false},
		"exits later, removed":            {exitAfter, []lifecycle.Step{start, lifecycle.Remove{ID: id}}, false},
		"exits later, pod removed":        {exitAfter, []lifecycle.Step{start, removal}, false},
		"ends after TERM, killed":         {termTakes, []lifecycle.Step{start, lifecycle.Signal{ID: id, Container: container}, kill}, false},
		"ends after TERM, pod removed":    {termTakes, []lifecycle.Step{start, lifecycle.Signal{ID: id, Container: container}, removal}, false},
		"hook, killed":                    {hookTakes, []lifecycle.Step{start, preStop, kill}, false},
		"hook, pod removed":               {hookTakes, []lifecycle.Step{start, preStop, removal}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(clocktesting.NewFakeClock(time.Unix(1000, 0)))
			r.changed = func(types.UID) {}
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{UID: uid, Annotations: map[string]string{Prefix + test.annotation: "1000h"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container}}},
			}
			ended := map[lifecycle.Step][]error{}
			do := func(s lifecycle.Step) {
				r.Do(t.Context(), pod, s, func(err error) { ended[s] = append(ended[s], err) })
			}
			do(lifecycle.CreateSandbox{})
			last := len(test.steps) - 1
			for _, s := range test.steps[:last] {
				do(s)
			}
			if n := len(r.events); n != 1 {
				t.Fatalf("%d events before", n)
			}
			do(test.steps[last])
			if next := r.happen(); !next.IsZero() || len(r.events) != 0 || cap(r.events) > 0 && r.events[:1][0] != nil {
				t.Errorf("%d events, the next one at %s", len(r.events), next)
			}
			for _, s := range test.steps {
				if len(ended[s]) != 1 {
					t.Errorf("%T has ended with %v", s, ended[s])
				}
			}
			if err := errors.Join(ended[start]...); errors.Is(err, lifecycle.ErrCanceled) != test.canceled {
				t.Errorf("the start: %v", err)
			}
		})
	}
}

// TestEventsTakePlace checks that an event that was taken from the queue does not concern a later start of the container.
func TestEventsTakePlace(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1000, 0))
	r := New(now)
	r.changed = func(types.UID) {}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Annotations: map[string]string{Prefix + startAfter: "1h"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
	starts := 0
	do := func(s lifecycle.Step) {
		r.Do(t.Context(), pod, s, func(err error) {
			if _, isStart := s.(lifecycle.Start); isStart && err == nil {
				starts++
			}
		})
	}
	do(lifecycle.CreateSandbox{})
	do(lifecycle.Start{Container: "c", Image: "old"})
	taken := r.pods["u"].starting["c"].event
	do(lifecycle.GiveUp{Container: "c"})
	do(lifecycle.Start{Container: "c", Image: "new"})
	r.occur(taken)
	if r.happen(); starts != 0 || len(r.Observe("u").Instances) != 0 {
		t.Errorf("%d starts, too early", starts)
	}
	now.Step(time.Hour)
	if r.happen(); starts != 1 || len(r.Observe("u").Instances) != 1 {
		t.Errorf("%d starts", starts)
	}
}

// TestLongAnnotationsAreNotKept checks that the error of an invalid annotation, which is kept with each failed probe, has
// only the begin of its value.
func TestLongAnnotationsAreNotKept(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Prefix + exitAfter: strings.Repeat("x", 250_000)}}}
	if _, err := settingsOf(pod, "c"); err == nil || len(err.Error()) > 500 {
		t.Errorf("%.1000v", err)
	}
}
