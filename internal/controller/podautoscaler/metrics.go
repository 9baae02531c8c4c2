package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	resourceclient "k8s.io/metrics/pkg/client/clientset/versioned/typed/metrics/v1beta1"
	customclient "k8s.io/metrics/pkg/client/custom_metrics"
	externalclient "k8s.io/metrics/pkg/client/external_metrics"
)

const (
	// metricsTimeout bounds a request to a metrics server, which may hang.
	metricsTimeout = 30 * time.Second
	// usualWindow is the window of a custom metric that does not state one.
	usualWindow = time.Minute
)

// metrics reads metrics through the API server.
type metrics struct {
	resources resourceclient.PodMetricsesGetter
	custom    customclient.CustomMetricsClient
	external  externalclient.ExternalMetricsClient
	// versions finds the served version of custom metrics, mapper the resources of the objects that
	// they describe.
	versions customclient.AvailableAPIsGetter
	mapper   meta.ResettableRESTMapper
}

func newMetrics(config *rest.Config, known discovery.DiscoveryInterface, mapper meta.ResettableRESTMapper) (*metrics, error) {
	config = rest.CopyConfig(config)
	config.Timeout = metricsTimeout
	resources, err := resourceclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of resource metrics: %w", err)
	}
	external, err := externalclient.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create the client of external metrics: %w", err)
	}
	versions := customclient.NewAvailableAPIsGetter(known)
	return &metrics{
		resources: resources, external: external, custom: customclient.NewForConfig(config, mapper, versions), versions: versions, mapper: mapper,
	}, nil
}

// query has the pods whose metrics are read.
type query struct {
	namespace string
	pods      labels.Selector
}

// read reads a metric.
func (m *metrics) read(ctx context.Context, q query, spec *autoscalingv2.MetricSpec) Reading {
	var r Reading
	switch {
	case spec.Resource != nil:
		r.Pods, r.Err = m.ofResource(ctx, q, spec.Resource.Name, "")
	case spec.ContainerResource != nil:
		r.Pods, r.Err = m.ofResource(ctx, q, spec.ContainerResource.Name, spec.ContainerResource.Container)
	case spec.Pods != nil:
		r.Pods, r.Err = m.ofPods(q, &spec.Pods.Metric)
	case spec.Object != nil:
		r.Value, r.Err = m.ofObject(q, spec.Object)
	case spec.External != nil:
		r.Values, r.Err = m.ofExternal(q, &spec.External.Metric)
	}
	return r
}

// ofResource reads the usage of a resource by pods, or by one container of each.
func (m *metrics) ofResource(ctx context.Context, q query, resource corev1.ResourceName, container string) (map[string]Sample, error) {
	list, err := m.resources.PodMetricses(q.namespace).List(ctx, metav1.ListOptions{LabelSelector: q.pods.String()})
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	samples := make(map[string]Sample, len(list.Items))
	for i := range list.Items {
		pod := &list.Items[i]
		if used, ok := usedBy(pod.Containers, resource, container); ok {
			samples[pod.Name] = Sample{used, pod.Timestamp.Time, pod.Window.Duration}
		}
	}
	return samples, nil
}

// usedBy returns the usage of a resource by the container of that name, or by all containers;
// false if the usage of one is unknown.
func usedBy(containers []metricsv1beta1.ContainerMetrics, resource corev1.ResourceName, name string) (total int64, ok bool) {
	for i := range containers {
		if name != "" && containers[i].Name != name {
			continue
		}
		used, known := containers[i].Usage[resource]
		if !known {
			return 0, false
		}
		total, ok = total+used.MilliValue(), true
	}
	return total, ok
}

// failedCustom is the error for a custom metric that cannot be read. It resets discovery:
// another version of the API, or the kind that the metric describes, may be served by the next
// time.
func (m *metrics) failedCustom(err error) error {
	m.versions.Invalidate()
	m.mapper.Reset()
	return fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
}

func (m *metrics) ofPods(q query, metric *autoscalingv2.MetricIdentifier) (map[string]Sample, error) {
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return nil, err
	}
	list, err := m.custom.NamespacedMetrics(q.namespace).GetForObjects(schema.GroupKind{Kind: "Pod"}, q.pods, metric.Name, selector)
	if err != nil {
		return nil, m.failedCustom(err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	samples := make(map[string]Sample, len(list.Items))
	for i := range list.Items {
		item := &list.Items[i]
		window := usualWindow
		if item.WindowSeconds != nil {
			window = time.Duration(*item.WindowSeconds) * time.Second
		}
		samples[item.DescribedObject.Name] = Sample{item.Value.MilliValue(), item.Timestamp.Time, window}
	}
	return samples, nil
}

func (m *metrics) ofObject(q query, source *autoscalingv2.ObjectMetricSource) (int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(source.Metric.Selector)
	if err != nil {
		return 0, err
	}
	kind := schema.FromAPIVersionAndKind(source.DescribedObject.APIVersion, source.DescribedObject.Kind).GroupKind()
	from, name := m.custom.NamespacedMetrics(q.namespace), source.DescribedObject.Name
	if kind == (schema.GroupKind{Kind: "Namespace"}) {
		from, name = m.custom.RootScopedMetrics(), q.namespace // never another one
	}
	value, err := from.GetForObject(kind, name, source.Metric.Name, selector)
	if err != nil {
		return 0, m.failedCustom(err)
	}
	return value.Value.MilliValue(), nil
}

func (m *metrics) ofExternal(q query, metric *autoscalingv2.MetricIdentifier) ([]int64, error) {
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return nil, err
	}
	list, err := m.external.NamespacedMetrics(q.namespace).List(metric.Name, selector)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from external metrics API")
	}
	values := make([]int64, 0, len(list.Items))
	for i := range list.Items {
		values = append(values, list.Items[i].Value.MilliValue())
	}
	return values, nil
}
