package job

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	webhookerrors "k8s.io/apiserver/pkg/admission/plugin/webhook/errors"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

// A pod that the server does not delete has the place of a pod, and holds back no other one.
func TestPlanBesidePodsThatAreNotDeleted(t *testing.T) {
	none := func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(0)) }
	runPlans(t, map[string]planTest{
		"not tried yet: it is replaced when it is terminating": {
			job: jobWith(), pods: []string{"a free"},
			want: "discard a | active 1 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"refused: another one runs beside it": {
			job: jobWith(), pods: []string{"a free"}, refused: "a",
			want: "discard a create | active 1 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"refused, and all places are taken": {
			job: jobWith(), pods: []string{"a free", "b"}, refused: "a",
			want: "discard a | active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"one is refused, the other was not tried": {
			job: jobWith(func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(3)) }), pods: []string{"a free", "b free"}, refused: "a",
			want: "discard a,b | active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"more than the job may run": {
			job: jobWith(none), pods: []string{"a free", "b"}, refused: "a b",
			want: "discard a,b | active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"its index stays taken": {
			job: jobWith(indexed, func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(3)) }), pods: []string{"a free index=1"}, refused: "a",
			want: "discard a create:0 create:2 | active 1 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"a second pod of an index": {
			job: jobWith(indexed, func(j *batchv1.Job) { j.Spec.Parallelism = new(int32(3)) }), pods: []string{"a index=1", "b index=1"}, refused: "b",
			want: "discard b create:0 | active 2 ready 0 terminating 0 succeeded 0 failed 0",
		},
		"an index that is done": {
			job:  jobWith(indexed, func(j *batchv1.Job) { j.Status.CompletedIndexes, j.Status.Succeeded = "0", 1 }),
			pods: []string{"a index=0"}, refused: "a",
			want: "discard a create:1 | active 1 ready 0 terminating 0 succeeded 1 failed 0 completed 0",
		},
	})
}

// cluster is a job with its pods on a server, and the controller that acts on them.
type cluster struct {
	*testing.T
	client     *fake.Clientset
	shared     *controller.Context
	controller *controller.Controller
}

// newCluster returns a cluster whose server answers deletions of the pod a with the given errors. A nil error stands for
// success.
func newCluster(t *testing.T, dryRun, real error, lines ...string) cluster {
	t.Helper()
	job := jobWith(selecting, func(j *batchv1.Job) { j.Spec.Template.Labels = map[string]string{"job": "j"} })
	objects := []runtime.Object{job}
	for _, line := range lines {
		p := pod(t, line)
		p.Labels, p.OwnerReferences = job.Spec.Selector.MatchLabels, []metav1.OwnerReference{*metav1.NewControllerRef(job, kind())}
		objects = append(objects, p)
	}
	client := fake.NewClientset(objects...)
	client.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request, _ := action.(clienttesting.DeleteActionImpl)
		isDryRun := len(request.DeleteOptions.DryRun) > 0
		if request.Name == "a" {
			if isDryRun {
				return true, nil, dryRun
			}
			return real != nil, nil, real
		}
		return isDryRun, nil, nil // the fake server deletes in a dry run
	})
	made := 0
	client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		created, _ := action.(clienttesting.CreateActionImpl).Object.(*corev1.Pod)
		made++
		created.Name, created.Status.Phase = fmt.Sprint("new-", made), corev1.PodRunning
		created.UID = types.UID(created.Name)
		return false, nil, nil
	})
	shared, c := newController(t, client, job)
	return cluster{t, client, shared, c}
}

func (c cluster) job() *batchv1.Job {
	c.Helper()
	job, err := c.client.BatchV1().Jobs("team").Get(c.Context(), "j", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return job
}

func (c cluster) pods() []corev1.Pod {
	c.Helper()
	list, err := c.client.CoreV1().Pods("team").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return list.Items
}

// change changes the job.
func (c cluster) change(do func(*batchv1.Job)) {
	c.Helper()
	job := c.job()
	do(job)
	if _, err := c.client.BatchV1().Jobs("team").Update(c.Context(), job, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// succeed ends a pod.
func (c cluster) succeed(name string) {
	c.Helper()
	p, err := c.client.CoreV1().Pods("team").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	p.Status.Phase = corev1.PodSucceeded
	if _, err := c.client.CoreV1().Pods("team").UpdateStatus(c.Context(), p, metav1.UpdateOptions{}); err != nil {
		c.Fatal(err)
	}
}

// reconcile reconciles several times with current caches, and returns the last error.
func (c cluster) reconcile() error {
	c.Helper()
	var err error
	for range 4 {
		var current []any
		for _, p := range c.pods() {
			current = append(current, &p)
		}
		if err := errors.Join(
			c.shared.Informers.Pods.Informer().GetIndexer().Replace(current, ""),
			c.shared.Informers.Jobs.Informer().GetIndexer().Update(c.job()),
		); err != nil {
			c.Fatal(err)
		}
		_, err = c.controller.Reconcile(c.Context(), cache.ObjectName{Namespace: "team", Name: "j"})
	}
	return err
}

// running returns the names of the pods that run, and whether they have the finalizer.
func (c cluster) running() []string {
	c.Helper()
	var names []string
	for _, p := range c.pods() {
		if p.Status.Phase == corev1.PodRunning {
			names = append(names, fmt.Sprintf("%s tracked=%t", p.Name, isTracked(&p)))
		}
	}
	slices.Sort(names)
	return names
}

func (c cluster) check(when string, want ...string) {
	c.Helper()
	if got := c.running(); !slices.Equal(got, want) {
		c.Errorf("%s: %q run, want %q", when, got, want)
	}
}

// R26: a pod that the server does not delete keeps its finalizer, so that the job counts it when it ends.
func TestR26_ProtectedPodCountsAfterASuspension(t *testing.T) {
	for name, refusal := range refusals() {
		t.Run(name, func(t *testing.T) { countsAfterASuspension(t, refusal) })
	}
}

// refusals are the ways to refuse the deletion of the pod a. Webhooks choose any code, also one that the server gives itself
// about pods that are gone or have changed.
func refusals() map[string]error {
	refusals := map[string]error{"protected": apierrors.NewForbidden(corev1.Resource("pods"), "a", errors.New("protected"))}
	for _, code := range []int32{0, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusInternalServerError, http.StatusGatewayTimeout} {
		refusals[fmt.Sprint("a webhook with the code ", code)] = webhookerrors.ToStatusErr("keep.example.com", &metav1.Status{Code: code, Message: "it is kept"})
	}
	return refusals
}

func countsAfterASuspension(t *testing.T, refusal error) {
	t.Helper()
	c := newCluster(t, refusal, refusal, "a", "b")
	c.change(func(j *batchv1.Job) { j.Spec.Suspend = new(true) })
	if err := c.reconcile(); !errors.Is(err, refusal) {
		t.Error(err)
	}
	c.check("suspended", "a tracked=true")
	c.change(func(j *batchv1.Job) { j.Spec.Suspend = new(false) })
	if err := c.reconcile(); err != nil {
		t.Error(err)
	}
	c.check("resumed", "a tracked=true", "new-1 tracked=true")
	c.succeed("a")
	if err := c.reconcile(); err != nil {
		t.Error(err)
	}
	c.check("when it has succeeded", "new-1 tracked=true", "new-2 tracked=true")
	if n := c.job().Status.Succeeded; n != 1 {
		t.Errorf("%d pods have succeeded", n)
	}
}

// A webhook that supports no dry run may refuse the deletion of a pod that has lost its finalizer. The job goes on.
func TestJobGoesOnBesideAPodThatIsNotDeleted(t *testing.T) {
	for name, refusal := range refusals() {
		t.Run(name, func(t *testing.T) { goesOnBesideAPod(t, refusal) })
	}
}

func goesOnBesideAPod(t *testing.T, refusal error) {
	t.Helper()
	c := newCluster(t, webhookerrors.NewDryRunUnsupportedErr("keep.example.com"), refusal, "a", "b ready", "c ready")
	if err := c.reconcile(); !errors.Is(err, refusal) {
		t.Error(err)
	}
	c.check("one too many", "a tracked=false", "b tracked=true", "c tracked=true")
	c.succeed("b")
	c.succeed("c")
	if err := c.reconcile(); !errors.Is(err, refusal) {
		t.Error(err)
	}
	c.check("when the others have succeeded", "a tracked=false", "new-1 tracked=true")
	if n := c.job().Status.Succeeded; n != 2 {
		t.Errorf("%d pods have succeeded", n)
	}
}
