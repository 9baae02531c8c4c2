package disruption

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// fixture is a reconciler whose caches hold what the server has.
type fixture struct {
	*reconciler
	shared *controller.Context
	client *fake.Clientset
	events *record.FakeRecorder
	clock  *clocktesting.FakeClock
	live   []string // the controllers whose scale was read from the server
}

func newFixture(t *testing.T, objects ...runtime.Object) *fixture {
	t.Helper()
	f := &fixture{client: fake.NewClientset(objects...), events: record.NewFakeRecorder(100), clock: clocktesting.NewFakeClock(epoch)}
	shared, err := controller.NewContext(f.client, f.clock, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.shared, f.reconciler = shared, newReconciler(shared)
	f.reconciler.events = f.events
	f.scales.live = func(_ context.Context, _ string, ref *metav1.OwnerReference) (*scale, error) {
		f.live = append(f.live, ref.Name)
		switch ref.Name {
		case "custom":
			return &scale{ref.UID, 5}, nil
		case "job":
			return nil, uncountableError("jobs.batch does not implement the scale subresource")
		case "unreachable":
			return nil, errors.New("no answer")
		}
		return nil, nil
	}
	for _, obj := range objects {
		if err := informerOf(shared, obj).GetIndexer().Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func informerOf(shared *controller.Context, obj runtime.Object) cache.SharedIndexInformer {
	switch obj.(type) {
	case *corev1.Pod:
		return shared.Informers.Pods.Informer()
	case *policyv1.PodDisruptionBudget:
		return shared.Informers.PodDisruptionBudgets.Informer()
	case *appsv1.ReplicaSet:
		return shared.Informers.ReplicaSets.Informer()
	case *appsv1.Deployment:
		return shared.Informers.Deployments.Informer()
	case *appsv1.StatefulSet:
		return shared.Informers.StatefulSets.Informer()
	}
	return shared.Informers.ReplicationControllers.Informer()
}

// by makes a controller, named after its uid, the owner of an object.
func by(apiVersion, kind, name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: new(true)}}
}

func ownedBy(apiVersion, kind, name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.OwnerReferences = by(apiVersion, kind, name) }
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name)}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
}

func replicaSet(name string, replicas int32, owners ...metav1.OwnerReference) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: named(name), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: template()}}
	set.OwnerReferences = owners
	return set
}

func deployment(replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: named("web"), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: template()}}
}

func TestExpectedPodsAreCountedOncePerController(t *testing.T) {
	statefulSet := &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(2))}}
	replication := &corev1.ReplicationController{ObjectMeta: named("old"), Spec: corev1.ReplicationControllerSpec{Replicas: new(int32(7))}}
	inSet := func(name, set string) *corev1.Pod { return pod(name, ownedBy("apps/v1", "ReplicaSet", set)) }
	for name, test := range map[string]struct {
		objects   []runtime.Object
		pods      []*corev1.Pod
		want      int32
		unmanaged string
		live      string
		fails     string
	}{
		"no pods":       {},
		"a replica set": {objects: []runtime.Object{replicaSet("set", 3)}, pods: []*corev1.Pod{inSet("a", "set"), inSet("b", "set")}, want: 3},
		"a deployment in a rollout counts once": {
			objects: []runtime.Object{deployment(4), replicaSet("one", 3, by("apps/v1", "Deployment", "web")...), replicaSet("two", 2, by("apps/v1", "Deployment", "web")...)},
			pods:    []*corev1.Pod{inSet("a", "one"), inSet("b", "two")}, want: 4,
		},
		"the deployment is gone":          {objects: []runtime.Object{replicaSet("one", 3, by("apps/v1", "Deployment", "web")...)}, pods: []*corev1.Pod{inSet("a", "one")}, want: 3},
		"a set of another's controller":   {objects: []runtime.Object{replicaSet("one", 3, by("argoproj.io/v1alpha1", "Rollout", "web")...)}, pods: []*corev1.Pod{inSet("a", "one")}, want: 3},
		"the oldest version of the group": {objects: []runtime.Object{replicaSet("set", 3)}, pods: []*corev1.Pod{pod("a", ownedBy("extensions/v1beta1", "ReplicaSet", "set"))}, want: 3},
		"each controller counts": {
			objects: []runtime.Object{statefulSet, replication},
			pods:    []*corev1.Pod{pod("a", ownedBy("apps/v1", "StatefulSet", "db")), pod("b", ownedBy("v1", "ReplicationController", "old"))}, want: 9,
		},
		"a custom resource, read once": {pods: []*corev1.Pod{pod("a", ownedBy("example.com/v1", "Cluster", "custom")), pod("b", ownedBy("example.com/v1", "Cluster", "custom"))}, want: 5, live: "custom"},
		"without a controller":         {objects: []runtime.Object{replicaSet("set", 3)}, pods: []*corev1.Pod{inSet("a", "set"), pod("bare")}, want: 3, unmanaged: "bare"},
		"another set of that name": {
			objects: []runtime.Object{&appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set", UID: "new"}, Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(1))}}},
			pods:    []*corev1.Pod{inSet("a", "set")}, live: "set", fails: `found no controllers for pod "a"`,
		},
		"a controller that is gone": {pods: []*corev1.Pod{inSet("a", "set")}, live: "set", fails: `found no controllers for pod "a"`},
		"a kind without a scale":    {pods: []*corev1.Pod{pod("a", ownedBy("batch/v1", "Job", "job"))}, live: "job", fails: "jobs.batch does not implement the scale subresource"},
		"a server without answers":  {pods: []*corev1.Pod{pod("a", ownedBy("example.com/v1", "Cluster", "unreachable"))}, live: "unreachable", fails: "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.objects...)
			got, unmanaged, err := f.scales.sum(t.Context(), test.pods)
			if got != test.want || strings.Join(unmanaged, " ") != test.unmanaged || strings.Join(f.live, " ") != test.live {
				t.Errorf("%d, without a controller %v, read %v", got, unmanaged, f.live)
			}
			if test.fails == "" && err != nil || test.fails != "" && (err == nil || err.Error() != test.fails) {
				t.Errorf("error %v, want %q", err, test.fails)
			}
		})
	}
}

var key = cache.ObjectName{Namespace: "team", Name: "guard"}

// written returns the status that was written, if any.
func (f *fixture) written(t *testing.T) *policyv1.PodDisruptionBudget {
	t.Helper()
	var last *policyv1.PodDisruptionBudget
	for _, action := range f.client.Actions() {
		update, ok := action.(clienttesting.UpdateAction)
		if !ok || action.GetResource().Resource != "poddisruptionbudgets" {
			continue
		}
		if action.GetSubresource() != "status" {
			t.Errorf("a write to %q", action.GetSubresource())
		}
		last, _ = update.GetObject().(*policyv1.PodDisruptionBudget)
	}
	return last
}

func (f *fixture) recorded() string {
	var all []string
	for len(f.events.Events) > 0 {
		all = append(all, strings.Fields(<-f.events.Events)[1])
	}
	return strings.Join(all, " ")
}

func TestStatusSaysHowManyDisruptionsAreAllowed(t *testing.T) {
	inSet := ownedBy("apps/v1", "ReplicaSet", "set")
	for name, test := range map[string]struct {
		objects      []runtime.Object
		allowed      int32
		reason       string
		requeueAfter time.Duration
		events       string
		fails        string
	}{
		"enough pods":          {objects: []runtime.Object{pdb(maxUnavailable("1")), replicaSet("set", 2), pod("a", inSet), pod("b", inSet)}, allowed: 1, reason: policyv1.SufficientPodsReason},
		"too few":              {objects: []runtime.Object{pdb(maxUnavailable("1")), replicaSet("set", 3), pod("a", inSet), pod("b", inSet)}, reason: policyv1.InsufficientPodsReason},
		"none":                 {objects: []runtime.Object{pdb(minAvailable("1"))}, reason: policyv1.InsufficientPodsReason, events: "NoPods"},
		"without a controller": {objects: []runtime.Object{pdb(maxUnavailable("1")), pod("a")}, reason: policyv1.InsufficientPodsReason, events: "UnmanagedPods"},
		"that does not matter": {objects: []runtime.Object{pdb(minAvailable("1")), pod("a"), pod("b")}, allowed: 1, reason: policyv1.SufficientPodsReason},
		"an evicted one":       {objects: []runtime.Object{pdb(minAvailable("1"), evicted("a", time.Minute)), pod("a"), pod("b")}, reason: policyv1.InsufficientPodsReason, requeueAfter: time.Minute},
		"not deleted":          {objects: []runtime.Object{pdb(minAvailable("1"), evicted("a", time.Hour)), pod("a"), pod("b")}, allowed: 1, reason: policyv1.SufficientPodsReason, events: "NotDeleted"},
		"uncountable": {
			objects: []runtime.Object{pdb(maxUnavailable("1")), pod("a", ownedBy("batch/v1", "Job", "job"))}, reason: policyv1.SyncFailedReason, requeueAfter: recheck,
			events: "CalculateExpectedPodCountFailed",
		},
		"unknown for now": {
			objects: []runtime.Object{pdb(maxUnavailable("1")), pod("a", ownedBy("example.com/v1", "Cluster", "unreachable"))}, reason: policyv1.SyncFailedReason, fails: "no answer",
			events: "CalculateExpectedPodCountFailed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t, test.objects...)
			requeueAfter, err := f.reconcile(t.Context(), key)
			if requeueAfter != test.requeueAfter || test.fails == "" && err != nil || test.fails != "" && (err == nil || err.Error() != test.fails) {
				t.Errorf("again in %s, %v", requeueAfter, err)
			}
			got := f.written(t)
			if got == nil {
				t.Fatal("nothing is written")
			}
			if got.ResourceVersion != "7" || got.UID != "guard" {
				t.Errorf("the write is about uid %q at %q", got.UID, got.ResourceVersion)
			}
			if got.Status.DisruptionsAllowed != test.allowed || got.Status.Conditions[0].Reason != test.reason {
				t.Errorf("%+v", got.Status)
			}
			if events := f.recorded(); events != test.events {
				t.Errorf("events %q", events)
			}
			f.client.ClearActions()
			if err := informerOf(f.shared, got).GetIndexer().Update(got); err != nil {
				t.Fatal(err)
			}
			f.clock.Step(time.Second)
			if _, err := f.reconcile(t.Context(), key); (err != nil) != (test.fails != "") {
				t.Error(err)
			}
			if got := f.written(t); got != nil || f.recorded() != "" {
				t.Errorf("written again: %+v", got)
			}
		})
	}
}

// An eviction that the cache does not show yet leads to a conflict, and nothing is overwritten.
func TestReconcileConflict(t *testing.T) {
	f := newFixture(t, pdb(minAvailable("1")), pod("a"), pod("b"))
	conflict := apierrors.NewConflict(policyv1.Resource("poddisruptionbudgets"), "guard", errors.New("changed"))
	f.client.PrependReactor("update", "poddisruptionbudgets", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, conflict })
	if _, err := f.reconcile(t.Context(), key); !apierrors.IsConflict(err) {
		t.Errorf("%v", err)
	}
	if events := f.recorded(); events != "" {
		t.Errorf("events %q", events)
	}
	if _, err := f.reconcile(t.Context(), cache.ObjectName{Namespace: "team", Name: "gone"}); err != nil {
		t.Error(err)
	}
}

func TestEventsEnqueueTheBudgetsThatSelectTheirPods(t *testing.T) {
	other := pdb()
	other.Name, other.Spec.Selector = "other", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "other"}}
	none := pdb()
	none.Name, none.Spec.Selector = "none", nil
	f := newFixture(t, pdb(), other, none)
	elsewhere := pod("a")
	elsewhere.Namespace = "elsewhere"
	for name, test := range map[string]struct {
		keys []cache.ObjectName
		want []cache.ObjectName
	}{
		"a pod":            {f.ofPod(pod("a")), []cache.ObjectName{key}},
		"a pod elsewhere":  {f.ofPod(elsewhere), nil},
		"a deployment":     {f.ofWorkload(deployment(1)), []cache.ObjectName{key}},
		"a replica set":    {f.ofWorkload(replicaSet("set", 1)), []cache.ObjectName{key}},
		"without template": {f.ofWorkload(&corev1.ReplicationController{}), nil},
	} {
		if !slices.Equal(test.keys, test.want) {
			t.Errorf("%s: %v", name, test.keys)
		}
	}
	labelled := func(p *corev1.Pod) { p.Labels = map[string]string{"app": "other"} }
	annotated := func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} }
	for name, test := range map[string]struct {
		change func(*corev1.Pod)
		want   bool
	}{"annotated": {annotated, true}, "labelled": {labelled, false}, "unready": {unready, false}, "terminating": {terminating, false}, "adopted": {ownedBy("apps/v1", "ReplicaSet", "set"), false}} {
		if got := samePod(pod("a"), pod("a", test.change)); got != test.want {
			t.Errorf("%s: the same: %t", name, got)
		}
	}
	touched := deployment(1)
	touched.Status.Replicas = 1
	if !sameScale(deployment(1), touched) || sameScale(deployment(1), deployment(2)) || sameScale(replicaSet("a", 1), replicaSet("a", 1, by("apps/v1", "Deployment", "web")...)) {
		t.Error("changes of controllers")
	}
}

func TestDisruptionTargetIsWithdrawnAfterTwoMinutes(t *testing.T) {
	p := pod("a", target(corev1.ConditionTrue, "EvictionByEvictionAPI", time.Minute))
	p.ResourceVersion = "9"
	f := newFixture(t, p)
	keys := f.targeted(p)
	if len(keys) != 1 || f.targeted(pod("b")) != nil {
		t.Fatalf("%v", keys)
	}
	requeueAfter, err := f.withdraw(t.Context(), keys[0])
	if err != nil || requeueAfter != time.Minute || len(f.client.Actions()) > 0 {
		t.Fatalf("before it is stale: again in %s, %v, %v", requeueAfter, err, f.client.Actions())
	}
	f.clock.Step(requeueAfter)
	if requeueAfter, err = f.withdraw(t.Context(), keys[0]); err != nil || requeueAfter != 0 {
		t.Fatalf("again in %s, %v", requeueAfter, err)
	}
	actions := f.client.Actions()
	if len(actions) != 1 || actions[0].GetSubresource() != "status" {
		t.Fatalf("%v", actions)
	}
	got, ok := actions[0].(clienttesting.UpdateAction).GetObject().(*corev1.Pod)
	if !ok || got.ResourceVersion != "9" || got.UID != "a" || pods.Condition(got, corev1.DisruptionTarget).Status != corev1.ConditionFalse {
		t.Errorf("%+v", got)
	}
	if requeueAfter, err := f.withdraw(t.Context(), cache.ObjectName{Namespace: "team", Name: "gone"}); err != nil || requeueAfter != 0 {
		t.Errorf("of a pod that is gone: %s, %v", requeueAfter, err)
	}
}
