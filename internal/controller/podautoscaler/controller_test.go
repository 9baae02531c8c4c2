package podautoscaler

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	autoscalinglisters "k8s.io/client-go/listers/autoscaling/v2"
	scalefake "k8s.io/client-go/scale/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	metricsfake "k8s.io/metrics/pkg/client/clientset/versioned/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
)

// fixture is a reconciler on fake servers: of the API, of scales and of metrics. Its caches hold
// the objects that it was made with.
type fixture struct {
	*reconciler
	client  *fake.Clientset
	events  *record.FakeRecorder
	clock   *clocktesting.FakeClock
	store   cache.Indexer // of autoscalers
	scale   *autoscalingv1.Scale
	refusal error  // of the next write of the scale
	usage   string // of the CPU, by each pod; "" if no metrics are served
}

// resettable is a mapper that knows Deployments.
type resettable struct{ *meta.DefaultRESTMapper }

func (resettable) Reset() {}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{
		client: fake.NewClientset(objects...), events: record.NewFakeRecorder(100), clock: clocktesting.NewFakeClock(epoch), scale: scaleOf(2), usage: "1",
		store: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}),
	}
	f.scale.Name, f.scale.ResourceVersion = "web", "7"
	shared, err := controller.NewContext(f.client, f.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	mapper := resettable{meta.NewDefaultRESTMapper([]schema.GroupVersion{appsv1.SchemeGroupVersion})}
	mapper.Add(appsv1.SchemeGroupVersion.WithKind("Deployment"), meta.RESTScopeNamespace)
	f.reconciler = &reconciler{
		client: f.client, pods: shared.Informers.Pods.Lister(), podsSynced: func() bool { return true }, events: f.events,
		autoscalers: autoscalinglisters.NewHorizontalPodAutoscalerLister(f.store), now: f.clock.Now, known: map[cache.ObjectName]remembered{},
		scales: &scales{f.scaleServer(), mapper}, metrics: &metrics{resources: f.metricsServer().MetricsV1beta1()},
	}
	for _, obj := range objects {
		into := f.store
		if _, ok := obj.(*corev1.Pod); ok {
			into = shared.Informers.Pods.Informer().GetIndexer()
		}
		if err := into.Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fixture) scaleServer() *scalefake.FakeScaleClient {
	server := &scalefake.FakeScaleClient{}
	server.AddReactor("get", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.(clienttesting.GetAction).GetName() != f.scale.Name {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, a.(clienttesting.GetAction).GetName())
		}
		return true, f.scale.DeepCopy(), nil
	})
	server.AddReactor("update", "deployments", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if err := f.refusal; err != nil {
			f.refusal = nil
			return true, nil, err
		}
		sent := a.(clienttesting.UpdateAction).GetObject().(*autoscalingv1.Scale)
		if sent.ResourceVersion != f.scale.ResourceVersion {
			return true, nil, errors.New("the write is not conditioned on what was read")
		}
		f.scale = sent.DeepCopy()
		f.scale.Status.Replicas = sent.Spec.Replicas
		return true, sent, nil
	})
	return server
}

func (f *fixture) metricsServer() *metricsfake.Clientset {
	server := metricsfake.NewSimpleClientset()
	server.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if f.usage == "" {
			return true, nil, errors.New("the server could not find the requested resource (get pods.metrics.k8s.io)")
		}
		list := &metricsv1beta1.PodMetricsList{}
		for i := range f.scale.Status.Replicas {
			list.Items = append(list.Items, metricsv1beta1.PodMetrics{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"app": "web"}}, Timestamp: metav1.NewTime(f.clock.Now()), Window: metav1.Duration{Duration: time.Minute},
				Containers: []metricsv1beta1.ContainerMetrics{{Name: "web", Usage: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(f.usage)}}},
			})
		}
		return true, list, nil
	})
	return server
}

var key = cache.ObjectName{Namespace: "team", Name: "web"}

// sync reconciles, and shows the cache the status that was written.
func (f *fixture) sync(t *testing.T) autoscalingv2.HorizontalPodAutoscalerStatus {
	t.Helper()
	requeueAfter, err := f.reconcile(t.Context(), key)
	if err != nil || requeueAfter != syncPeriod {
		t.Fatalf("again after %s, %v", requeueAfter, err)
	}
	return f.see(t)
}

func (f *fixture) see(t *testing.T) autoscalingv2.HorizontalPodAutoscalerStatus {
	t.Helper()
	now, err := f.client.AutoscalingV2().HorizontalPodAutoscalers("team").Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.store.Update(now); err != nil {
		t.Fatal(err)
	}
	return now.Status
}

func (f *fixture) recorded() []string {
	var all []string
	for {
		select {
		case e := <-f.events.Events:
			all = append(all, strings.Join(strings.Fields(e)[:2], " "))
		default:
			return all
		}
	}
}

// objects are an autoscaler of the CPU, and two pods.
func objects() []runtime.Object {
	return []runtime.Object{anHPA(ofResource(corev1.ResourceCPU, percent(50))), aPod("p0"), aPod("p1")}
}

// TestUpAndDown: a target is scaled up at once, and down when the window is over.
func TestUpAndDown(t *testing.T) {
	f := newFixture(t, objects()...)
	if status := f.sync(t); f.scale.Spec.Replicas != 4 || status.DesiredReplicas != 4 || status.CurrentReplicas != 2 || !status.LastScaleTime.Time.Equal(epoch) {
		t.Errorf("%d replicas, status %+v", f.scale.Spec.Replicas, status)
	}
	if got := f.recorded(); !slices.Equal(got, []string{"Normal SuccessfulRescale"}) {
		t.Errorf("Events %q", got)
	}
	f.usage = "100m"
	for range 20 {
		f.clock.Step(syncPeriod)
		f.sync(t)
		if f.scale.Spec.Replicas != 4 {
			t.Fatalf("%d replicas after %s", f.scale.Spec.Replicas, f.clock.Now().Sub(epoch))
		}
	}
	f.clock.Step(syncPeriod)
	if status := f.sync(t); f.scale.Spec.Replicas != 2 || status.DesiredReplicas != 2 {
		t.Errorf("%d replicas, status %+v", f.scale.Spec.Replicas, status)
	}
}

// TestNoMetricsServed: nothing is scaled, and the condition and Events say why, without an error
// that would repeat it sooner.
func TestNoMetricsServed(t *testing.T) {
	f := newFixture(t, objects()...)
	f.usage = ""
	status := f.sync(t)
	i := slices.IndexFunc(status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive
	})
	if i < 0 || status.Conditions[i].Status != corev1.ConditionFalse || status.Conditions[i].Reason != failedResource || f.scale.Spec.Replicas != 2 {
		t.Errorf("%d replicas, conditions %+v", f.scale.Spec.Replicas, status.Conditions)
	}
	if got := f.recorded(); !slices.Equal(got, []string{"Warning FailedGetResourceMetric", "Warning FailedComputeMetricsReplicas"}) {
		t.Errorf("Events %q", got)
	}
	before := len(f.client.Actions())
	f.clock.Step(syncPeriod)
	f.sync(t)
	if writes := f.client.Actions()[before:]; len(writes) != 1 { // what sync reads
		t.Errorf("the same status was written again: %v", writes)
	}
}

// TestChangedTarget: if the target has changed since it was read, it is decided anew, and nothing
// is recorded.
func TestChangedTarget(t *testing.T) {
	f := newFixture(t, objects()...)
	f.refusal = apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web", errors.New("it has changed"))
	if _, err := f.reconcile(t.Context(), key); !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	if status := f.see(t); len(status.Conditions) != 0 || len(f.recorded()) != 0 {
		t.Errorf("status %+v", status)
	}
	f.scale.ResourceVersion = "8"
	if f.sync(t); f.scale.Spec.Replicas != 4 {
		t.Errorf("%d replicas", f.scale.Spec.Replicas)
	}
}

// TestRefusedScale: a write that is refused is reported, and tried again in the next period.
func TestRefusedScale(t *testing.T) {
	f := newFixture(t, objects()...)
	f.refusal = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "web", errors.New("no"))
	status := f.sync(t)
	if c := status.Conditions[0]; c.Reason != "FailedUpdateScale" || !slices.Equal(f.recorded(), []string{"Warning FailedRescale"}) {
		t.Errorf("condition %+v", c)
	}
	if f.sync(t); f.scale.Spec.Replicas != 4 {
		t.Errorf("%d replicas", f.scale.Spec.Replicas)
	}
}

// TestTargetsThatCannotBeScaledAreReported: targets that cannot be scaled.
func TestTargetsThatCannotBeScaledAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		ref  autoscalingv2.CrossVersionObjectReference
		want string
	}{
		"no such kind":   {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Widget", Name: "web"}, "no matches for apps/, Resource=Widget"},
		"no such object": {autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "other"}, `deployments.apps "other" not found`},
		"no version":     {autoscalingv2.CrossVersionObjectReference{APIVersion: "a/b/c", Kind: "Deployment", Name: "web"}, "unexpected GroupVersion string: a/b/c"},
	} {
		t.Run(name, func(t *testing.T) {
			hpa := anHPA(ofResource(corev1.ResourceCPU, percent(50)))
			hpa.Spec.ScaleTargetRef = test.ref
			f := newFixture(t, hpa)
			status := f.sync(t)
			if c := status.Conditions[0]; c.Reason != "FailedGetScale" || !strings.HasSuffix(c.Message, ": "+test.want) || len(status.Conditions) != 1 {
				t.Errorf("conditions %+v", status.Conditions)
			}
		})
	}
	// Another version of the same group and kind will do.
	hpa := anHPA(ofResource(corev1.ResourceCPU, percent(50)))
	hpa.Spec.ScaleTargetRef.APIVersion = "apps/v1beta2"
	f := newFixture(t, hpa, aPod("p0"), aPod("p1"))
	if f.sync(t); f.scale.Spec.Replicas != 4 {
		t.Errorf("%d replicas", f.scale.Spec.Replicas)
	}
}

// TestTwoAutoscalers: autoscalers with the same pods do not scale, until one of them is gone.
func TestTwoAutoscalers(t *testing.T) {
	other := anHPA(ofResource(corev1.ResourceCPU, percent(50)))
	other.Name, other.UID = "other", "other"
	f := newFixture(t, append(objects(), other)...)
	if f.sync(t); f.scale.Spec.Replicas != 4 {
		t.Fatal("the first one does not scale")
	}
	f.scale = scaleOf(2)
	f.scale.Name = "web"
	otherKey := cache.ObjectName{Namespace: "team", Name: "other"}
	for _, k := range []cache.ObjectName{otherKey, key} {
		if _, err := f.reconcile(t.Context(), k); err != nil || f.scale.Spec.Replicas != 2 {
			t.Errorf("%s: %d replicas, %v", k, f.scale.Spec.Replicas, err)
		}
	}
	if got := f.recorded(); !slices.Contains(got, "Warning AmbiguousSelector") {
		t.Errorf("Events %q", got)
	}
	f.see(t)
	if err := f.store.Delete(other); err != nil {
		t.Fatal(err)
	}
	if requeueAfter, err := f.reconcile(t.Context(), otherKey); requeueAfter != 0 || err != nil {
		t.Fatal(requeueAfter, err)
	}
	if f.sync(t); f.scale.Spec.Replicas != 4 {
		t.Errorf("%d replicas", f.scale.Spec.Replicas)
	}
}

// TestNotYet: before the pods are known, nothing is decided.
func TestNotYet(t *testing.T) {
	f := newFixture(t, objects()...)
	f.podsSynced = func() bool { return false }
	if requeueAfter, err := f.reconcile(context.Background(), key); requeueAfter != untilSynced || err != nil || f.scale.Spec.Replicas != 2 {
		t.Error(requeueAfter, err)
	}
}
