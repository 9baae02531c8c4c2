package nodelifecycle

import (
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func tolerating(key string, seconds ...int64) corev1.Toleration {
	t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}
	if len(seconds) > 0 {
		t.TolerationSeconds = &seconds[0]
	}
	return t
}

func TestPodIsEvictedWhenItsTolerationEnds(t *testing.T) {
	unreachable, other := taint(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute), taint("gone", corev1.TaintEffectNoExecute)
	for name, test := range map[string]struct {
		tolerations []corev1.Toleration
		taints      []corev1.Taint
		leaves      bool
		after       time.Duration
	}{
		"no taints":                {},
		"only about scheduling":    {taints: []corev1.Taint{taint("gpu", corev1.TaintEffectNoSchedule)}},
		"not tolerated":            {taints: []corev1.Taint{unreachable}, leaves: true},
		"tolerated for a while":    {taints: []corev1.Taint{unreachable}, tolerations: []corev1.Toleration{tolerating(corev1.TaintNodeUnreachable, 300)}, leaves: true, after: 300 * time.Second},
		"tolerated for ever":       {taints: []corev1.Taint{unreachable}, tolerations: []corev1.Toleration{tolerating(corev1.TaintNodeUnreachable)}},
		"the shortest counts":      {taints: []corev1.Taint{unreachable}, tolerations: []corev1.Toleration{tolerating(corev1.TaintNodeUnreachable, 300), tolerating("", 5), tolerating("")}, leaves: true, after: 5 * time.Second},
		"a negative time is none":  {taints: []corev1.Taint{unreachable}, tolerations: []corev1.Toleration{tolerating("", -1)}, leaves: true},
		"the longest time":         {taints: []corev1.Taint{unreachable}, tolerations: []corev1.Toleration{tolerating("", math.MaxInt64)}, leaves: true, after: math.MaxInt64 / time.Second * time.Second},
		"one of two not tolerated": {taints: []corev1.Taint{unreachable, other}, tolerations: []corev1.Toleration{tolerating(corev1.TaintNodeUnreachable)}, leaves: true},
		"the first of two":         {taints: []corev1.Taint{unreachable, other}, tolerations: []corev1.Toleration{tolerating(corev1.TaintNodeUnreachable, 300), tolerating("gone", 20)}, leaves: true, after: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: test.tolerations}}
			at, leaves := exposed{pod, exposure(nil).observe(pod, test.taints, epoch)}.evictionTime(test.taints, grace)
			if after := max(0, at.Sub(epoch)); leaves != test.leaves || leaves && after != test.after {
				t.Errorf("leaves %t after %s, want %t after %s", leaves, after, test.leaves, test.after)
			}
		})
	}
}

// The process that first observes a pod with its taint at the epoch may be another one than when they met.
func TestTolerationBeginsWhenPodAndTaintMeet(t *testing.T) {
	minutesAgo := func(n int) metav1.Time { return metav1.NewTime(epoch.Add(-time.Duration(n) * time.Minute)) }
	scheduled := func(status corev1.ConditionStatus, ago int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: status, LastTransitionTime: minutesAgo(ago)}}
		}
	}
	for name, test := range map[string]struct {
		added   *metav1.Time
		pod     func(*corev1.Pod)
		seconds int64
		after   time.Duration
	}{
		"the taint has no time":                  {nil, func(*corev1.Pod) {}, 300, 5 * time.Minute},
		"just now":                               {new(minutesAgo(0)), func(*corev1.Pod) {}, 300, 5 * time.Minute},
		"the taint came later":                   {new(minutesAgo(3)), func(*corev1.Pod) {}, 300, 2 * time.Minute},
		"the pod was created later":              {new(minutesAgo(60)), func(p *corev1.Pod) { p.CreationTimestamp = minutesAgo(1) }, 300, 4 * time.Minute},
		"the pod was bound later":                {new(minutesAgo(60)), scheduled(corev1.ConditionTrue, 2), 300, 3 * time.Minute},
		"the pod could not be bound before":      {new(minutesAgo(60)), scheduled(corev1.ConditionFalse, 2), 300, grace},
		"the pod was started later":              {new(minutesAgo(60)), func(p *corev1.Pod) { p.Status.StartTime = new(minutesAgo(3)) }, 300, 2 * time.Minute},
		"long ago: the node may report":          {new(minutesAgo(60)), func(*corev1.Pod) {}, 300, grace},
		"long ago, and the pod waits for less":   {new(minutesAgo(60)), func(*corev1.Pod) {}, 7, 7 * time.Second},
		"the clock of who added it is wrong":     {new(minutesAgo(-60)), func(*corev1.Pod) {}, 300, 5 * time.Minute},
		"the clock of who started it is wrong":   {new(minutesAgo(60)), func(p *corev1.Pod) { p.Status.StartTime = new(minutesAgo(-60)) }, 300, 5 * time.Minute},
		"the clock was wrong before the process": {new(metav1.NewTime(time.Time{})), func(*corev1.Pod) {}, 300, grace},
	} {
		t.Run(name, func(t *testing.T) {
			taints := []corev1.Taint{{Key: "m", Effect: corev1.TaintEffectNoExecute, TimeAdded: test.added}}
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{tolerating("m", test.seconds)}}}
			pod.CreationTimestamp = minutesAgo(120)
			test.pod(pod)
			at, leaves := exposed{pod, exposure(nil).observe(pod, taints, epoch)}.evictionTime(taints, grace)
			if !leaves || at.Sub(epoch) != test.after {
				t.Errorf("leaves %t after %s, want %s", leaves, at.Sub(epoch), test.after)
			}
		})
	}
}

// An exposure ends with the taint, and with a toleration that has no limit.
func TestExposureHasTheTaintsThatAreToleratedForAWhile(t *testing.T) {
	const noExecute = corev1.TaintEffectNoExecute
	a, b, c := taint("a", noExecute), taint("b", noExecute), taint("c", corev1.TaintEffectNoSchedule)
	a2 := a
	a2.Value = "2"
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{tolerating("a", 300), tolerating("b"), tolerating("c", 300)}}}
	const length = 300 * time.Second
	first := exposure{"a": {since: epoch.Add(2), valueSince: epoch.Add(2), longest: length}}
	var e exposure
	for i, step := range []struct {
		taints []corev1.Taint
		want   exposure
	}{
		{nil, nil},
		{[]corev1.Taint{b, c}, nil},
		{[]corev1.Taint{a, b, c}, first},
		{[]corev1.Taint{c, a}, first},
		{[]corev1.Taint{a2}, exposure{"a": {since: epoch.Add(2), value: "2", valueSince: epoch.Add(4), longest: length}}},
		{nil, nil},
		{[]corev1.Taint{a}, exposure{"a": {since: epoch.Add(6), valueSince: epoch.Add(6), longest: length}}},
	} {
		before := maps.Clone(e)
		next := e.observe(pod, step.taints, epoch.Add(time.Duration(i)))
		if !maps.Equal(next, step.want) || (next == nil) != (step.want == nil) || !maps.Equal(e, before) {
			t.Errorf("step %d: %v, want %v", i, next, step.want)
		}
		e = next
	}
}

// A pod may tolerate each value of a taint for another time.
func TestValueThatIsToleratedForAnotherTime(t *testing.T) {
	values := func(text ...string) []string { return text }
	tolerates := func(value string, seconds int64) corev1.Toleration {
		return corev1.Toleration{Key: "m", Value: value, Operator: corev1.TolerationOpEqual, TolerationSeconds: &seconds}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{tolerates("soft", 3600), tolerates("hard", 60)}}}
	for name, test := range map[string]struct {
		values []string // every 30 s
		after  time.Duration
	}{
		"soft":                  {values("soft"), time.Hour},
		"hard":                  {values("hard"), time.Minute},
		"soft, then hard":       {values("soft", "soft", "soft", "soft", "hard"), 3 * time.Minute},
		"still hard":            {values("soft", "soft", "soft", "soft", "hard", "hard"), 3 * time.Minute},
		"soft again":            {values("soft", "hard", "soft"), time.Hour},
		"hard, then soft":       {values("hard", "soft"), time.Hour},
		"changes without end":   {slices.Repeat(values("soft", "hard"), 100), time.Hour},
		"hard for half an hour": {slices.Concat(slices.Repeat(values("soft"), 60), values("hard")), 31 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			var e exposure
			taints := []corev1.Taint{taint("m", corev1.TaintEffectNoExecute)}
			taints[0].TimeAdded = new(metav1.NewTime(epoch))
			for i, value := range test.values {
				taints[0].Value = value
				e = e.observe(pod, taints, epoch.Add(time.Duration(i)*30*time.Second))
			}
			at, leaves := exposed{pod, e}.evictionTime(taints, grace)
			if after := at.Sub(epoch); !leaves || after != test.after {
				t.Errorf("leaves %t after %s, want %s", leaves, after, test.after)
			}
		})
	}
}
