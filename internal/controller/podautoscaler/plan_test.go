package podautoscaler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var epoch = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// aPod is a ready pod that started an hour ago and whose container "web" requests one CPU.
func aPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, Labels: map[string]string{"app": "web"}}}
	p.Spec.Containers = []corev1.Container{{Name: "web"}}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	started := metav1.NewTime(epoch.Add(-time.Hour))
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &started, Conditions: []corev1.PodCondition{
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: started},
	}}
	for _, c := range change {
		c(p)
	}
	return p
}

func pods(n int) []*corev1.Pod {
	var all []*corev1.Pod
	for i := range n {
		all = append(all, aPod(fmt.Sprint("p", i)))
	}
	return all
}

// using is a reading about the pods p0, p1 and so on.
func using(values ...int64) Reading {
	r := Reading{Pods: map[string]Sample{}}
	for i, v := range values {
		r.Pods[fmt.Sprint("p", i)] = Sample{v, epoch, time.Minute}
	}
	return r
}

func failing(text string) Reading { return Reading{Err: errors.New(text)} }

func percent(n int32) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &n}
}

func value(q string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: new(resource.MustParse(q))}
}

func each(q string) autoscalingv2.MetricTarget {
	return autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: new(resource.MustParse(q))}
}

func ofResource(name corev1.ResourceName, t autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: t}}
}

func ofContainer(name string, t autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ContainerResourceMetricSourceType, ContainerResource: &autoscalingv2.ContainerResourceMetricSource{
		Name: corev1.ResourceCPU, Container: name, Target: t,
	}}
}

func ofPods(t autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.PodsMetricSourceType, Pods: &autoscalingv2.PodsMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: t,
	}}
}

func ofObject(t autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ObjectMetricSourceType, Object: &autoscalingv2.ObjectMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "requests"}, Target: t, DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "web"},
	}}
}

func external(t autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: t,
	}}
}

// anHPA keeps between 2 and 20 pods.
func anHPA(metrics ...autoscalingv2.MetricSpec) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "hpa"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MinReplicas: new(int32(2)), MaxReplicas: 20, Metrics: metrics,
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
		},
	}
}

func scaleOf(replicas int32) *autoscalingv1.Scale {
	s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: replicas}}
	s.Status = autoscalingv1.ScaleStatus{Replicas: replicas, Selector: "app=web"}
	return s
}

// text describes a plan, with the reasons of the existing conditions: AbleToScale, ScalingActive
// and ScalingLimited, the second and third with a minus if they are not true.
func text(p Plan) string {
	out := "stays"
	if p.Replicas != nil {
		out = fmt.Sprintf("%d, %s", *p.Replicas, p.Why)
	}
	for _, c := range p.Status.Conditions {
		sign := " "
		if c.Status == corev1.ConditionFalse {
			sign = " -"
		}
		out += sign + c.Reason
	}
	for _, e := range p.Events {
		out += " !" + e.Reason
	}
	return out
}

const (
	stays  = "stays ReadyForNewScale ValidMetricFound -DesiredWithinRange"
	more   = ", cpu resource utilization (percentage of request) above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"
	fewer  = ", All metrics below target ReadyForNewScale ValidMetricFound -DesiredWithinRange"
	unable = "stays SucceededGetScale -%s !%[1]s !FailedComputeMetricsReplicas"
)

// TestMetricsCallForReplicas: the replicas that metrics call for, without earlier recommendations.
func TestMetricsCallForReplicas(t *testing.T) {
	cpu := ofResource(corev1.ResourceCPU, percent(50))
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	leaving := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }
	started := func(ago, ready time.Duration, status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.StartTime = new(metav1.NewTime(epoch.Add(-ago)))
			p.Status.Conditions[0].Status, p.Status.Conditions[0].LastTransitionTime = status, metav1.NewTime(epoch.Add(-ready))
		}
	}
	with := func(list []*corev1.Pod, more ...*corev1.Pod) []*corev1.Pod { return append(list, more...) }
	noRequest := func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests = nil }
	sidecar := func(p *corev1.Pod) {
		c := p.Spec.Containers[0].DeepCopy()
		c.Name, c.RestartPolicy = "side", new(corev1.ContainerRestartPolicyAlways)
		p.Spec.InitContainers = []corev1.Container{*c, {Name: "first"}}
	}
	podLevel := func(p *corev1.Pod) {
		p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}
	}
	for name, test := range map[string]struct {
		metric  autoscalingv2.MetricSpec
		pods    []*corev1.Pod
		reading Reading
		want    string
	}{
		"on target":                  {cpu, pods(3), using(500, 500, 500), stays},
		"hardly more":                {cpu, pods(3), using(550, 550, 550), stays},
		"hardly fewer":               {cpu, pods(3), using(450, 450, 450), stays},
		"more":                       {cpu, pods(3), using(700, 700, 700), "5" + more},
		"as much more as allowed":    {cpu, pods(3), using(2000, 2000, 2000), "6, cpu resource utilization (percentage of request) above target ReadyForNewScale ValidMetricFound ScaleUpLimit"},
		"four at least":              {cpu, pods(2), using(2000, 0), "4" + more},
		"fewer, but not yet":         {cpu, pods(6), using(250, 250, 250, 250, 250, 250), "stays ScaleDownStabilized ValidMetricFound -DesiredWithinRange"},
		"one without a sample, more": {cpu, pods(3), using(1000, 1000), "4" + more},
		"one without a sample, on which it depends": {cpu, pods(3), using(800, 800), stays},
		"one pending":                    {cpu, with(pods(2), aPod("p2", pending)), using(1000, 1000), "4" + more},
		"one pending, not needed":        {cpu, with(pods(2), aPod("p2", pending)), using(600, 600), stays},
		"one leaving":                    {cpu, with(pods(3), aPod("p3", leaving)), using(700, 700, 700, 2000), "5" + more},
		"one starting":                   {cpu, with(pods(3), aPod("p3", started(time.Minute, 10*time.Second, corev1.ConditionTrue))), using(500, 500, 500, 4000), stays},
		"one started":                    {cpu, with(pods(2), aPod("p2", started(3*time.Minute, 2*time.Minute, corev1.ConditionTrue))), using(700, 700, 700), "5" + more},
		"one that was never ready":       {cpu, with(pods(3), aPod("p3", started(10*time.Minute, 10*time.Minute, corev1.ConditionFalse))), using(500, 500, 500, 4000), stays},
		"one that is not ready any more": {cpu, with(pods(2), aPod("p2", started(10*time.Minute, time.Minute, corev1.ConditionFalse))), using(700, 700, 700), "5" + more},
		"all starting":                   {cpu, []*corev1.Pod{aPod("p0", started(time.Minute, 0, corev1.ConditionFalse))}, using(4000), fmt.Sprintf(unable, failedResource)},
		"memory of one starting":         {ofResource(corev1.ResourceMemory, each("1Gi")), []*corev1.Pod{aPod("p0", started(time.Minute, 0, corev1.ConditionFalse)), aPod("p1")}, using(2<<30*1000, 2<<30*1000), "4, memory resource above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"no requests":                    {cpu, []*corev1.Pod{aPod("p0", noRequest)}, using(500), fmt.Sprintf(unable, failedResource)},
		"sidecars request too":           {cpu, []*corev1.Pod{aPod("p0", sidecar), aPod("p1", sidecar)}, using(1000, 1000), "stays ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"the pod requests":               {cpu, []*corev1.Pod{aPod("p0", podLevel), aPod("p1", podLevel)}, using(3000, 3000), "3" + more},
		"no pods":                        {cpu, nil, using(500), fmt.Sprintf(unable, failedResource)},
		"not served":                     {cpu, pods(3), failing("the server could not find the requested resource"), fmt.Sprintf(unable, failedResource)},
		"an average":                     {ofResource(corev1.ResourceCPU, each("500m")), pods(2), using(1000, 1000), "4, cpu resource above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"a container":                    {ofContainer("side", percent(50)), []*corev1.Pod{aPod("p0", sidecar), aPod("p1", sidecar)}, using(700, 700), "3, cpu container resource utilization (percentage of request) above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"a container that is not there":  {ofContainer("other", percent(50)), pods(2), using(700, 700), fmt.Sprintf(unable, failedContainer)},
		"pods":                           {ofPods(each("10")), pods(3), using(20_000, 20_000, 20_000), "6, pods metric requests above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"pods, starting ones too":        {ofPods(each("10")), []*corev1.Pod{aPod("p0", started(time.Minute, 0, corev1.ConditionFalse)), aPod("p1")}, using(20_000, 20_000), "4, pods metric requests above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"pods, unknown":                  {ofPods(each("10")), pods(3), failing("none"), fmt.Sprintf(unable, failedPods)},
		"an object":                      {ofObject(value("10")), pods(3), Reading{Value: 20_000}, "6, Service metric requests above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"an object, on target":           {ofObject(value("10")), pods(3), Reading{Value: 10_900}, stays},
		"an object, only ready pods":     {ofObject(value("10")), with(pods(2), aPod("p2", pending)), Reading{Value: 20_000}, "4, Service metric requests above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"an object, for each pod":        {ofObject(each("10")), pods(3), Reading{Value: 41_000}, "5, external metric requests(nil) above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"an object, unknown":             {ofObject(each("10")), pods(3), failing("none"), fmt.Sprintf(unable, failedObject)},
		"external":                       {external(value("10")), pods(3), Reading{Values: []int64{12_000, 8_000}}, "6, external metric queue(nil) above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"external, for each pod":         {external(each("10")), pods(3), Reading{Values: []int64{31_000, 10_000}}, "5, external metric queue(nil) above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"external, endless":              {external(each("1m")), pods(3), Reading{Values: []int64{1 << 62, 1 << 62}}, "6, external metric queue(nil) above target ReadyForNewScale ValidMetricFound ScaleUpLimit"},
		"external, unknown":              {external(value("10")), pods(3), failing("none"), fmt.Sprintf(unable, failedExternal)},
	} {
		t.Run(name, func(t *testing.T) {
			current := int32(max(len(test.pods), 2))
			plan := Decide(anHPA(test.metric), Observed{Scale: scaleOf(current), Pods: test.pods, Readings: []Reading{test.reading}, Now: epoch})
			if got := text(plan); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestFewerWithoutSamples: pods without samples count as busy if the others call for fewer pods.
// Earlier recommendations are too old to matter.
func TestFewerWithoutSamples(t *testing.T) {
	long := Memory{recommendations: []recommendation{{20, epoch.Add(-time.Hour)}}}
	for name, test := range map[string]struct {
		reading Reading
		want    string
	}{
		"all":         {using(100, 100, 100, 100), "2, All metrics below target ReadyForNewScale ValidMetricFound TooFewReplicas"},
		"one of four": {using(100, 100, 100), "3" + fewer},
		"two":         {using(100, 100), stays},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(anHPA(ofResource(corev1.ResourceCPU, percent(50))), Observed{
				Scale: scaleOf(4), Pods: pods(4), Readings: []Reading{test.reading}, Now: epoch, Memory: long,
			})
			if got := text(plan); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestSeveralMetrics: the metric that calls for most decides. An unknown metric does not keep the
// others from scaling up, but from scaling down.
func TestSeveralMetrics(t *testing.T) {
	hpa := anHPA(ofPods(each("10")), external(each("10")))
	long := Memory{recommendations: []recommendation{{2, epoch.Add(-time.Hour)}}}
	for name, test := range map[string]struct {
		first, second Reading
		want          string
	}{
		"the first calls for more":  {using(20_000, 20_000, 20_000), Reading{Values: []int64{40_000}}, "6, pods metric requests above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"the second calls for more": {using(10_000, 10_000, 10_000), Reading{Values: []int64{40_000}}, "4, external metric queue(nil) above target ReadyForNewScale ValidMetricFound -DesiredWithinRange"},
		"both call for fewer":       {using(1000, 1000, 1000), Reading{Values: []int64{20_000}}, "2" + fewer},
		"more, one unknown":         {failing("none"), Reading{Values: []int64{40_000}}, "4, external metric queue(nil) above target ReadyForNewScale ValidMetricFound -DesiredWithinRange !" + failedPods},
		"fewer, one unknown":        {using(1000, 1000, 1000), failing("none"), fmt.Sprintf(unable, failedExternal)},
		"both unknown":              {failing("none"), failing("none"), "stays SucceededGetScale -" + failedPods + " !" + failedPods + " !" + failedExternal + " !FailedComputeMetricsReplicas"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(hpa, Observed{Scale: scaleOf(3), Pods: pods(3), Readings: []Reading{test.first, test.second}, Now: epoch, Memory: long})
			if got := text(plan); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// TestMessagesAreUpstreams: conditions, Events and the status have upstream's texts.
func TestMessagesAreUpstreams(t *testing.T) {
	hpa := anHPA(ofResource(corev1.ResourceCPU, percent(50)))
	missing := errors.New("unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)")
	plan := Decide(hpa, Observed{Scale: scaleOf(3), Pods: pods(3), Readings: []Reading{{Err: missing}}, Now: epoch})
	const inner = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: " +
		"the server could not find the requested resource (get pods.metrics.k8s.io)"
	events := []Event{
		{corev1.EventTypeWarning, "FailedGetResourceMetric", inner},
		{corev1.EventTypeWarning, "FailedComputeMetricsReplicas", "invalid metrics (1 invalid out of 1), first error is: failed to get cpu resource metric value: " + inner},
	}
	if !slices.Equal(plan.Events, events) {
		t.Errorf("Events %q", plan.Events)
	}
	active := plan.Status.Conditions[1]
	if active.Message != "the HPA was unable to compute the replica count: "+inner || !active.LastTransitionTime.Time.Equal(epoch) {
		t.Errorf("condition %+v", active)
	}
	if plan.Status.CurrentReplicas != 3 || plan.Status.DesiredReplicas != 0 || len(plan.Status.CurrentMetrics) != 1 {
		t.Errorf("status %+v", plan.Status)
	}

	plan = Decide(hpa, Observed{Scale: scaleOf(2), Pods: pods(2), Readings: []Reading{using(900, 700)}, Now: epoch})
	plan = Scaled(hpa, plan, nil, epoch)
	current := plan.Status.CurrentMetrics[0].Resource.Current
	if *current.AverageUtilization != 80 || current.AverageValue.String() != "800m" || plan.Status.DesiredReplicas != 4 || !plan.Status.LastScaleTime.Time.Equal(epoch) {
		t.Errorf("status %+v", plan.Status)
	}
	want := Event{corev1.EventTypeNormal, "SuccessfulRescale", "New size: 4; reason: cpu resource utilization (percentage of request) above target"}
	if len(plan.Events) != 1 || plan.Events[0] != want || plan.Status.Conditions[0].Message != "the HPA controller was able to update the target scale to 4" {
		t.Errorf("%q, %+v", plan.Events, plan.Status.Conditions[0])
	}
}

// TestWithoutMetrics: decisions without reading metrics.
func TestWithoutMetrics(t *testing.T) {
	for current, want := range map[int32]string{
		0:  "stays SucceededGetScale -ScalingDisabled",
		1:  "2, Current number of replicas below Spec.MinReplicas SucceededGetScale",
		21: "20, Current number of replicas above Spec.MaxReplicas SucceededGetScale",
	} {
		hpa := anHPA(ofPods(each("10")))
		if NeedsMetrics(hpa, scaleOf(current)) {
			t.Errorf("%d: metrics are needed", current)
		}
		if got := text(Decide(hpa, Observed{Scale: scaleOf(current), Now: epoch})); got != want {
			t.Errorf("%d: got %s, want %s", current, got, want)
		}
	}
	for _, current := range []int32{2, 20} {
		if !NeedsMetrics(anHPA(), scaleOf(current)) {
			t.Errorf("%d: no metrics are needed", current)
		}
	}
}

// TestScalesToZeroAndBack: an autoscaler wakes a target that it has scaled to zero, and no other.
func TestScalesToZeroAndBack(t *testing.T) {
	hpa := anHPA(ofObject(value("10")))
	hpa.Spec.MinReplicas, hpa.Generation = new(int32(0)), 7
	seen := func(replicas int32, measured int64) Observed {
		return Observed{
			Scale: scaleOf(replicas), Pods: pods(int(replicas)), Readings: []Reading{{Value: measured}}, Now: epoch,
			Memory: Memory{recommendations: []recommendation{{0, epoch.Add(-time.Minute)}}},
		}
	}
	asleep := Scaled(hpa, Decide(hpa, seen(3, 0)), nil, epoch)
	const zero = "0, All metrics below target SucceededRescale ValidMetricFound -DesiredWithinRange ScaledToZero !SuccessfulRescale"
	if got := text(asleep); got != zero || *asleep.Status.ObservedGeneration != 7 {
		t.Errorf("got %s, observed generation %v, want %s, 7", got, *asleep.Status.ObservedGeneration, zero)
	}
	raised, slept := hpa.DeepCopy(), hpa.DeepCopy()
	slept.Status, raised.Status, raised.Spec.MinReplicas = asleep.Status, asleep.Status, new(int32(2))
	withoutPods := slept.DeepCopy()
	withoutPods.Spec.Metrics = []autoscalingv2.MetricSpec{ofPods(each("10"))}
	for name, test := range map[string]struct {
		hpa      *autoscalingv2.HorizontalPodAutoscaler
		measured int64
		want     string
	}{
		"a user scaled to zero":          {hpa, 23_000, "stays SucceededGetScale -ScalingDisabled"},
		"metrics of pods":                {withoutPods, 0, "stays SucceededGetScale -ScalingDisabled -DesiredWithinRange ScaledToZero"},
		"the metric is above the target": {slept, 23_000, "3, Service metric requests above target ReadyForNewScale ValidMetricFound -DesiredWithinRange ScaledToZero"},
		"the metric is zero":             {slept, 0, "stays ReadyForNewScale ValidMetricFound -DesiredWithinRange ScaledToZero"},
		"there is a minimum now":         {raised, 0, "2, Current number of replicas below Spec.MinReplicas ReadyForNewScale ValidMetricFound TooFewReplicas ScaledToZero"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := Decide(test.hpa, seen(0, test.measured))
			if got := text(plan); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if plan.Replicas == nil {
				return
			}
			plan = Scaled(test.hpa, plan, nil, epoch)
			if c := plan.Status.Conditions[len(plan.Status.Conditions)-1]; c.Reason != "NotScaledToZero" {
				t.Errorf("after it was scaled up: %+v", c)
			}
		})
	}
}

func TestFailuresKeepTheDesiredReplicas(t *testing.T) {
	hpa := anHPA(ofPods(each("10")))
	hpa.Status.DesiredReplicas = 7
	for name, test := range map[string]struct {
		plan Plan
		want string
	}{
		"no scale":    {WithoutScale(hpa, errors.New("not found"), Memory{}, epoch), "stays -FailedGetScale !FailedGetScale"},
		"no selector": {decideWith(hpa, SelectorProblem("", nil, nil)), "stays SucceededGetScale -InvalidSelector !SelectorRequired !FailedComputeMetricsReplicas"},
		"a wrong one": {decideWith(hpa, SelectorProblem("a b", errors.New("no"), nil)), "stays SucceededGetScale -InvalidSelector !InvalidSelector !FailedComputeMetricsReplicas"},
		"two autoscalers": {
			decideWith(hpa, SelectorProblem("app=web", nil, []Autoscaler{{"a", "team"}, {"web", "team"}})),
			"stays SucceededGetScale -AmbiguousSelector !AmbiguousSelector !FailedComputeMetricsReplicas",
		},
		"not written": {
			Scaled(hpa, Decide(hpa, Observed{Scale: scaleOf(1), Now: epoch}), errors.New("forbidden"), epoch),
			"2, Current number of replicas below Spec.MinReplicas -FailedUpdateScale !FailedRescale",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := text(test.plan); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if test.plan.Status.DesiredReplicas != 7 {
				t.Errorf("desired are %d", test.plan.Status.DesiredReplicas)
			}
		})
	}
	p := SelectorProblem("app=web", nil, []Autoscaler{{"a", "team"}, {"web", "team"}})
	if !strings.HasSuffix(p.Message, "are controlled by multiple HPAs: [{a team} {web team}]") {
		t.Error(p.Message)
	}
	if SelectorProblem("app=web", nil, []Autoscaler{{"web", "team"}}) != nil {
		t.Error("one autoscaler is a problem")
	}
}

func decideWith(hpa *autoscalingv2.HorizontalPodAutoscaler, p *Problem) Plan {
	return Decide(hpa, Observed{Scale: scaleOf(3), Selector: p, Now: epoch})
}
