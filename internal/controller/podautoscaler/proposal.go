package podautoscaler

import (
	"errors"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Reading is the value of a metric, or the error of reading it.
type Reading struct {
	Pods   map[string]Sample // of metrics about pods, by name
	Value  int64             // of a metric about an object, in thousandths
	Values []int64           // of an external metric, in thousandths
	Err    error
}

// proposal is the number of replicas that a metric calls for.
type proposal struct {
	replicas int32
	name     string // of the metric, for messages
	status   autoscalingv2.MetricStatus
}

// failure is the reason why a metric gives no proposal.
type failure struct {
	reason string // of the condition and the Event
	inner  string // their text
	text   string // inner with the name of the metric
}

// Reasons of failures.
const (
	failedResource  = "FailedGetResourceMetric"
	failedContainer = "FailedGetContainerResourceMetric"
	failedPods      = "FailedGetPodsMetric"
	failedObject    = "FailedGetObjectMetric"
	failedExternal  = "FailedGetExternalMetric"
	invalidSource   = "InvalidMetricSourceType"
)

func failed(reason, about string, err error) *failure {
	return &failure{reason: reason, inner: err.Error(), text: about + err.Error()}
}

// proposal returns how many replicas a metric calls for.
func (d *decision) proposal(spec *autoscalingv2.MetricSpec, reading *Reading) (*proposal, *failure) {
	p := &proposal{status: autoscalingv2.MetricStatus{Type: spec.Type}}
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		source := spec.Resource
		p.status.Resource = &autoscalingv2.ResourceMetricStatus{Name: source.Name}
		if err := d.ofResource(p, &p.status.Resource.Current, reading, wantedResource{name: source.Name, target: source.Target}); err != nil {
			return nil, failed(failedResource, fmt.Sprintf("failed to get %s resource metric value: ", source.Name), err)
		}
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		source := spec.ContainerResource
		p.status.ContainerResource = &autoscalingv2.ContainerResourceMetricStatus{Name: source.Name, Container: source.Container}
		wanted := wantedResource{name: source.Name, container: source.Container, target: source.Target}
		if err := d.ofResource(p, &p.status.ContainerResource.Current, reading, wanted); err != nil {
			return nil, failed(failedContainer, fmt.Sprintf("failed to get %s container metric value: ", source.Container), err)
		}
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		if err := d.ofPods(p, spec.Pods, reading); err != nil {
			return nil, failed(failedPods, "failed to get pods metric value: ", err)
		}
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		if err := d.ofObject(p, spec.Object, reading); err != nil {
			return nil, failed(failedObject, "failed to get object metric value: ", err)
		}
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		if err := d.ofExternal(p, spec.External, reading); err != nil {
			return nil, failed(failedExternal, fmt.Sprintf("failed to get %s external metric value: ", spec.External.Metric.Name), err)
		}
	default:
		return nil, failed(invalidSource, "", fmt.Errorf("unknown metric source type %q", spec.Type))
	}
	return p, nil
}

// tolerances returns the tolerances of the spec; a tenth by default.
func (d *decision) tolerances() tolerances {
	const usual = 0.1
	t := tolerances{usual, usual}
	if b := d.hpa.Spec.Behavior; b != nil {
		if b.ScaleDown != nil && b.ScaleDown.Tolerance != nil {
			t.down = b.ScaleDown.Tolerance.AsApproximateFloat64()
		}
		if b.ScaleUp != nil && b.ScaleUp.Tolerance != nil {
			t.up = b.ScaleUp.Tolerance.AsApproximateFloat64()
		}
	}
	return t
}

// wantedResource is the desired usage of a resource by the pods, or by one container of
// each.
type wantedResource struct {
	name      corev1.ResourceName
	container string
	target    autoscalingv2.MetricTarget
}

func (d *decision) ofResource(p *proposal, now *autoscalingv2.MetricValueStatus, reading *Reading, wanted wantedResource) error {
	measure := "utilization"
	if wanted.target.AverageValue != nil {
		measure = "usage"
	} else if wanted.target.AverageUtilization == nil {
		return errors.New("invalid resource metric source: neither an average utilization target nor an average value (usage) target was set")
	}
	wrap := func(err error) error { return fmt.Errorf("failed to get %s %s: %w", wanted.name, measure, err) }
	if reading.Err != nil {
		return wrap(fmt.Errorf("unable to get metrics for resource %s: %w", wanted.name, reading.Err))
	}
	c, err := newCensus(d.seen.Pods, reading.Pods, wanted.name, d.seen.Now)
	if err != nil {
		return wrap(err)
	}
	current := d.seen.Scale.Spec.Replicas
	if target := wanted.target.AverageValue; target != nil {
		p.name = fmt.Sprintf("%s resource", wanted.name)
		now.AverageValue = quantityOf(wanted.name, average(c.values))
		p.replicas, err = c.replicas(current, averageUsage(target.MilliValue()), d.tolerances())
		return err
	}
	requests, err := requestsOf(d.seen.Pods, wanted.container, wanted.name)
	if err != nil {
		return wrap(err)
	}
	percent, each, err := utilization(c.values, requests)
	if err != nil {
		return wrap(err)
	}
	p.name = fmt.Sprintf("%s resource utilization (percentage of request)", wanted.name)
	if wanted.container != "" {
		p.name = fmt.Sprintf("%s container resource utilization (percentage of request)", wanted.name)
	}
	now.AverageUtilization, now.AverageValue = &percent, quantityOf(wanted.name, each)
	if p.replicas, err = c.replicas(current, utilizationUsage(requests, *wanted.target.AverageUtilization), d.tolerances()); err != nil {
		return wrap(err)
	}
	return nil
}

func (d *decision) ofPods(p *proposal, source *autoscalingv2.PodsMetricSource, reading *Reading) error {
	if reading.Err != nil {
		return fmt.Errorf("unable to get metric %s: %w", source.Metric.Name, reading.Err)
	}
	if source.Target.AverageValue == nil {
		return errors.New("invalid pods metric source: no average value target was set")
	}
	c, err := newCensus(d.seen.Pods, reading.Pods, "", d.seen.Now)
	if err != nil {
		return err
	}
	p.name = "pods metric " + source.Metric.Name
	p.status.Pods = &autoscalingv2.PodsMetricStatus{
		Metric: source.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: thousandths(average(c.values))},
	}
	p.replicas, err = c.replicas(d.seen.Scale.Spec.Replicas, averageUsage(source.Target.AverageValue.MilliValue()), d.tolerances())
	return err
}

func (d *decision) ofObject(p *proposal, source *autoscalingv2.ObjectMetricSource, reading *Reading) error {
	metric, about := source.Metric, source.DescribedObject
	status := &autoscalingv2.ObjectMetricStatus{DescribedObject: about, Metric: metric}
	p.status.Object = status
	var unread error
	if reading.Err != nil {
		unread = fmt.Errorf("unable to get metric %s: %w on %s %s/%s", metric.Name, reading.Err, about.Kind, d.hpa.Namespace, about.Name)
	}
	scale := d.seen.Scale
	switch target := source.Target; {
	case target.Type == autoscalingv2.ValueMetricType && target.Value != nil:
		if unread != nil {
			return unread
		}
		p.name = fmt.Sprintf("%s metric %s", about.Kind, metric.Name)
		status.Current.Value = thousandths(reading.Value)
		var err error
		p.replicas, err = replicasForRatio(scale.Spec.Replicas, float64(reading.Value)/float64(target.Value.MilliValue()), d.seen.Pods, d.tolerances())
		return err
	case target.Type == autoscalingv2.AverageValueMetricType && target.AverageValue != nil:
		if unread != nil {
			return fmt.Errorf("failed to get %s object metric: %w", metric.Name, unread)
		}
		p.name = fmt.Sprintf("external metric %s(%+v)", metric.Name, metric.Selector)
		var each int64
		p.replicas, each = replicasPerPod(scale.Status.Replicas, reading.Value, target.AverageValue.MilliValue(), d.tolerances())
		status.Current.AverageValue = thousandths(each)
		return nil
	}
	return errors.New("invalid object metric source: neither a value target nor an average value target was set")
}

func (d *decision) ofExternal(p *proposal, source *autoscalingv2.ExternalMetricSource, reading *Reading) error {
	metric := source.Metric
	p.name = fmt.Sprintf("external metric %s(%+v)", metric.Name, metric.Selector)
	status := &autoscalingv2.ExternalMetricStatus{Metric: metric}
	p.status.External = status
	var unread error
	if reading.Err != nil {
		unread = fmt.Errorf("unable to get external metric %s/%s/%+v: %w", d.hpa.Namespace, metric.Name, metric.Selector, reading.Err)
	}
	used := sum(reading.Values)
	scale := d.seen.Scale
	switch target := source.Target; {
	case target.AverageValue != nil:
		if unread != nil {
			return fmt.Errorf("failed to get %s external metric: %w", metric.Name, unread)
		}
		var each int64
		p.replicas, each = replicasPerPod(scale.Status.Replicas, used, target.AverageValue.MilliValue(), d.tolerances())
		status.Current.AverageValue = thousandths(each)
		return nil
	case target.Value != nil:
		if unread == nil {
			status.Current.Value = thousandths(used)
			p.replicas, unread = replicasForRatio(scale.Spec.Replicas, float64(used)/float64(target.Value.MilliValue()), d.seen.Pods, d.tolerances())
		}
		if unread != nil {
			return fmt.Errorf("failed to get external metric %s: %w", metric.Name, unread)
		}
		return nil
	}
	return errors.New("invalid external metric source: neither a value target nor an average value target was set")
}

func thousandths(n int64) *resource.Quantity { return resource.NewMilliQuantity(n, resource.DecimalSI) }

// quantityOf formats memory as metrics servers do.
func quantityOf(name corev1.ResourceName, n int64) *resource.Quantity {
	if name == corev1.ResourceMemory {
		return resource.NewMilliQuantity(n, resource.BinarySI)
	}
	return thousandths(n)
}
