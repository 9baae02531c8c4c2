package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/podautoscaler"
)

// autoscaled returns an autoscaler with a target of half of the requested CPU.
func autoscaled(kind, apiVersion string, least int32) *autoscalingv2.HorizontalPodAutoscaler {
	return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: "web"}, MinReplicas: &least, MaxReplicas: 5,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
		}}},
	}}
}

// hasCondition waits until an autoscaler has a condition with that reason, and returns its message.
func hasCondition(ctx context.Context, client kubernetes.Interface, reason string) (message string, err error) {
	err = becomesTrue(ctx, "the autoscaler says "+reason, func(ctx context.Context) (bool, error) {
		hpa, err := client.AutoscalingV2().HorizontalPodAutoscalers("default").Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		i := slices.IndexFunc(hpa.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool { return c.Reason == reason })
		if i >= 0 {
			message = hpa.Status.Conditions[i].Message
		}
		return i >= 0, nil
	})
	return message, err
}

// TestPodAutoscalerWithoutMetrics checks that an autoscaler reports missing metrics, and keeps to its
// minimum nevertheless, with its own permissions.
func TestPodAutoscalerWithoutMetrics(t *testing.T) {
	runWith(t, ephemeral(t), func(ctx context.Context, client kubernetes.Interface) error {
		labels := map[string]string{"app": "web"}
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: boundPod("", "").Spec},
		}}
		if _, err := client.AppsV1().Deployments("default").Create(ctx, deployment, metav1.CreateOptions{}); err != nil {
			return err
		}
		hpas := client.AutoscalingV2().HorizontalPodAutoscalers("default")
		if _, err := hpas.Create(ctx, autoscaled("Deployment", "apps/v1", 1), metav1.CreateOptions{}); err != nil {
			return err
		}
		message, err := hasCondition(ctx, client, "FailedGetResourceMetric")
		if err != nil {
			return err
		}
		const missing = "unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)"
		if !strings.HasSuffix(message, missing) {
			return fmt.Errorf("the condition says %s", message)
		}
		err = becomesTrue(ctx, "an Event about it", func(ctx context.Context) (bool, error) {
			events, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler"})
			return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
				return e.Reason == "FailedGetResourceMetric" && strings.HasSuffix(e.Message, missing)
			}), err
		})
		if err != nil {
			return err
		}
		if _, err := hpas.Patch(ctx, "web", types.MergePatchType, []byte(`{"spec":{"minReplicas":2}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		return becomesTrue(ctx, "there are two replicas", func(ctx context.Context) (bool, error) {
			now, err := client.AppsV1().Deployments("default").Get(ctx, "web", metav1.GetOptions{})
			return err == nil && *now.Spec.Replicas == 2, err
		})
	})
}

// widgets is a custom resource that can be scaled.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}}
`

// metricsServer serves metrics.k8s.io in the transport of a client: each pod uses as many thousandths of a
// CPU as uses contains.
type metricsServer struct {
	rest http.RoundTripper
	uses *atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (m metricsServer) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path != "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods" || r.URL.Query().Get("labelSelector") != "app=web" {
		return m.rest.RoundTrip(r)
	}
	list := metricsv1beta1.PodMetricsList{TypeMeta: metav1.TypeMeta{APIVersion: "metrics.k8s.io/v1beta1", Kind: "PodMetricsList"}}
	for _, name := range []string{"one", "two"} {
		list.Items = append(list.Items, metricsv1beta1.PodMetrics{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Window: metav1.Duration{Duration: time.Minute}, Timestamp: metav1.Now(),
			Containers: []metricsv1beta1.ContainerMetrics{{Name: "c", Usage: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(m.uses.Load(), resource.DecimalSI)}}},
		})
	}
	text, err := json.Marshal(list)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))), Request: r,
	}, err
}

// TestPodAutoscalerScales checks that a custom resource is scaled by the CPU usage of its pods: up at once,
// and down after the window.
func TestPodAutoscalerScales(t *testing.T) {
	o := ephemeral(t)
	o.Workloads = Disabled
	runWithPlane(t, o, func(ctx context.Context, p Plane) error {
		client, err := kubernetes.NewForConfig(p.Config)
		if err != nil {
			return err
		}
		replicas, err := createWidget(ctx, client, p.Config)
		if err != nil {
			return err
		}
		clock := clocktesting.NewFakeClock(time.Now().Add(time.Hour)) // the pods have then started long ago
		shared, err := controller.NewContext(client, clock, slog.New(slog.DiscardHandler))
		if err != nil {
			return err
		}
		uses := &atomic.Int64{}
		uses.Store(1000)
		config := rest.CopyConfig(p.Config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return metricsServer{next, uses} })
		autoscaler, err := podautoscaler.New(shared, config)
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- shared.Run(running, autoscaler) }()
		defer func() {
			stop()
			<-ended
		}()
		if _, err := client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(ctx, autoscaled("Widget", "example.com/v1", 1), metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := becomesTrue(ctx, "there are four replicas", replicas(4)); err != nil {
			return err
		}
		message, err := hasCondition(ctx, client, "SucceededRescale")
		if err != nil || message != "the HPA controller was able to update the target scale to 4" {
			return fmt.Errorf("condition %q, %w", message, err)
		}
		uses.Store(100)
		return becomesTrue(ctx, "there is one replica after the window", func(ctx context.Context) (bool, error) {
			clock.Step(15 * time.Second)
			return replicas(1)(ctx)
		})
	})
}

// createWidget creates a Widget of two replicas with its pods, and returns a condition on its desired
// replicas.
func createWidget(ctx context.Context, client kubernetes.Interface, config *rest.Config) (func(int64) func(context.Context) (bool, error), error) {
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	crd := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(widgets), &crd.Object); err != nil {
		return nil, err
	}
	crds := objects.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	if _, err := crds.Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	widgets := objects.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"replicas": int64(2)},
	}}
	err = becomesTrue(ctx, "a Widget can be created", func(ctx context.Context) (bool, error) {
		_, err := widgets.Create(ctx, widget, metav1.CreateOptions{})
		return err == nil, unlessMissing(err)
	})
	if err != nil {
		return nil, err
	}
	status := `{"status":{"replicas":2,"selector":"app=web"}}`
	if _, err := widgets.Patch(ctx, "web", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		return nil, err
	}
	for _, name := range []string{"one", "two"} {
		pod := boundPod(name, "somewhere")
		pod.Labels = map[string]string{"app": "web"}
		pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		created, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		now := metav1.Now()
		created.ResourceVersion = "" // controllers may have written it since
		created.Status = corev1.PodStatus{Phase: corev1.PodRunning, StartTime: &now, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}}
		if _, err := client.CoreV1().Pods("default").UpdateStatus(ctx, created, metav1.UpdateOptions{}); err != nil {
			return nil, err
		}
	}
	return func(want int64) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			now, err := widgets.Get(ctx, "web", metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			replicas, _, err := unstructured.NestedInt64(now.Object, "spec", "replicas")
			return replicas == want, err
		}
	}, nil
}
