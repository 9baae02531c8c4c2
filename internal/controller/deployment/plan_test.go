package deployment

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rolloutTest is a deployment with its replica sets, and simulates their controller and the
// nodes.
type rolloutTest struct {
	t    *testing.T
	now  time.Time
	d    *appsv1.Deployment
	sets []*appsv1.ReplicaSet
	// running counts the available pods of each set, pending the others.
	running, pending map[types.UID]int32
	held             time.Time // since when a status waits to be written; zero if none does
	log              []string
}

func newRolloutTest(t *testing.T, size int32, surge, unavailable string) *rolloutTest {
	t.Helper()
	labels := map[string]string{"app": "web"}
	limit, deadline, history := size, int32(600), int32(2)
	maxSurge, maxUnavailable := intstr.Parse(surge), intstr.Parse(unavailable)
	return &rolloutTest{
		t: t, now: epoch, running: map[types.UID]int32{}, pending: map[types.UID]int32{},
		d: &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web", UID: "web", Generation: 1},
			Spec: appsv1.DeploymentSpec{
				Replicas: &limit, Selector: &metav1.LabelSelector{MatchLabels: labels}, ProgressDeadlineSeconds: &deadline, RevisionHistoryLimit: &history,
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &maxSurge, MaxUnavailable: &maxUnavailable}},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Image: "web:1"}}}},
			},
		},
	}
}

func (w *rolloutTest) image(tag string) {
	w.d.Spec.Template.Spec.Containers[0].Image = "web:" + tag
	w.d.Generation++
}

func (w *rolloutTest) resize(size int32) {
	w.d.Spec.Replicas = &size
	w.d.Generation++
}

// step plans and carries out one step of the deployment's controller.
func (w *rolloutTest) step() Plan {
	w.t.Helper()
	old := false
	for _, set := range w.sets {
		old = old || !sameTemplate(&set.Spec.Template, &w.d.Spec.Template) && w.running[set.UID]+w.pending[set.UID] > 0
	}
	plan, err := Decide(Observed{Deployment: w.d, Sets: w.sets, OldPodsRun: old}, w.now)
	if err != nil {
		w.t.Fatal(err)
	}
	if plan.Create != nil {
		set := plan.Create.DeepCopy()
		set.UID, set.CreationTimestamp, set.Generation = types.UID(set.Name), metav1.NewTime(w.now), 1
		w.sets = append(w.sets, set)
		w.log = append(w.log, fmt.Sprintf("create %s with %d", set.Name, *set.Spec.Replicas))
	}
	for _, change := range plan.Update {
		i := slices.IndexFunc(w.sets, func(s *appsv1.ReplicaSet) bool { return s.UID == change.Set.UID })
		next := change.Set.DeepCopy()
		if !equality.Semantic.DeepEqual(next.Spec, w.sets[i].Spec) {
			next.Generation++
		}
		w.sets[i] = next
		if *change.Set.Spec.Replicas != change.From {
			w.log = append(w.log, fmt.Sprintf("scale %s from %d to %d", change.Set.Name, change.From, *change.Set.Spec.Replicas))
		}
	}
	for _, gone := range plan.Delete {
		w.sets = slices.DeleteFunc(w.sets, func(s *appsv1.ReplicaSet) bool { return s.UID == gone.UID })
	}
	w.write(plan)
	return plan
}

// refuse plans a step whose new set the server refuses.
func (w *rolloutTest) refuse() {
	w.t.Helper()
	before, sets := w.d.DeepCopy(), w.sets
	plan := w.step()
	w.d, w.sets = before, sets
	w.d.Status = notCreated(before, plan, "refused", w.now)
}

// lose removes the pods of a set.
func (w *rolloutTest) lose(set *appsv1.ReplicaSet) {
	w.running[set.UID], w.pending[set.UID] = 0, 0
	w.report(set)
}

// write writes the status and the revision of a plan, unless they may wait.
func (w *rolloutTest) write(plan Plan) {
	if plan.Interim > 0 && w.held.IsZero() {
		w.held = w.now
	}
	if plan.Interim > 0 && w.now.Sub(w.held) < plan.Interim {
		return
	}
	w.held = time.Time{}
	if plan.Revision != "" {
		metav1.SetMetaDataAnnotation(&w.d.ObjectMeta, annotationRevision, plan.Revision)
	}
	w.d.Status = plan.Status
}

// pods acts as the replica set controller for one set: it creates and deletes pods, unavailable
// ones first.
func (w *rolloutTest) pods(set *appsv1.ReplicaSet) {
	excess := w.running[set.UID] + w.pending[set.UID] - *set.Spec.Replicas
	if excess < 0 {
		w.pending[set.UID] -= excess
		return
	}
	waiting := min(excess, w.pending[set.UID])
	w.pending[set.UID] -= waiting
	w.running[set.UID] -= excess - waiting
}

// start makes a pending pod of a set available.
func (w *rolloutTest) start(set *appsv1.ReplicaSet) {
	if w.pending[set.UID] > 0 && !strings.HasSuffix(set.Spec.Template.Spec.Containers[0].Image, "broken") {
		w.pending[set.UID]--
		w.running[set.UID]++
	}
}

// report updates a set's status, which may lag.
func (w *rolloutTest) report(set *appsv1.ReplicaSet) {
	set.Status = appsv1.ReplicaSetStatus{
		Replicas: w.running[set.UID] + w.pending[set.UID], ReadyReplicas: w.running[set.UID], AvailableReplicas: w.running[set.UID], ObservedGeneration: set.Generation,
	}
}

// settle runs all of them until nothing changes, and returns the last plan.
func (w *rolloutTest) settle() Plan {
	w.t.Helper()
	for range 200 {
		before := w.state()
		plan := w.step()
		for _, set := range w.sets {
			w.pods(set)
			w.start(set)
			w.report(set)
		}
		if w.state() == before {
			return plan
		}
		w.now = w.now.Add(time.Second)
	}
	w.t.Fatal("it does not settle:\n" + strings.Join(w.log, "\n"))
	return Plan{}
}

// state returns everything that determines whether there is more to do.
func (w *rolloutTest) state() string {
	statuses := []string{fmt.Sprint(w.running, w.pending, len(w.log), w.d.Status.AvailableReplicas, w.d.Status.Replicas)}
	for _, set := range w.sets {
		statuses = append(statuses, fmt.Sprint(set.Status.Replicas, set.Status.AvailableReplicas))
	}
	return strings.Join(statuses, " ")
}

func (w *rolloutTest) available() int32 {
	var n int32
	for _, set := range w.sets {
		n += w.running[set.UID]
	}
	return n
}

func (w *rolloutTest) total() int32 {
	var n int32
	for _, set := range w.sets {
		n += w.running[set.UID] + w.pending[set.UID]
	}
	return n
}

func (w *rolloutTest) newest() *appsv1.ReplicaSet {
	w.t.Helper()
	for _, set := range w.sets {
		if sameTemplate(&set.Spec.Template, &w.d.Spec.Template) {
			return set
		}
	}
	w.t.Fatal("no set has the deployment's template")
	return nil
}

func TestFirstRollout(t *testing.T) {
	w := newRolloutTest(t, 3, "25%", "25%")
	first := w.step()
	set := first.Create
	if set == nil || *set.Spec.Replicas != 3 || !strings.HasPrefix(set.Name, "web-") || first.Revision != "1" {
		t.Fatalf("%+v", first)
	}
	hash := strings.TrimPrefix(set.Name, "web-")
	for where, labels := range map[string]map[string]string{
		"set": set.Labels, "selector": set.Spec.Selector.MatchLabels, "template": set.Spec.Template.Labels,
	} {
		if labels["pod-template-hash"] != hash || labels["app"] != "web" {
			t.Errorf("labels of the %s: %v", where, labels)
		}
	}
	if owner := metav1.GetControllerOf(set); owner == nil || owner.UID != "web" || owner.BlockOwnerDeletion == nil || !*owner.BlockOwnerDeletion {
		t.Errorf("owner %+v", owner)
	}
	w.settle()
	if c := conditionOf(w.d.Status.Conditions, appsv1.DeploymentProgressing); c == nil || c.Reason != reasonComplete || c.Status != corev1.ConditionTrue {
		t.Errorf("%+v", c)
	}
	if s := w.d.Status; s.ReadyReplicas != 3 || s.UpdatedReplicas != 3 || s.UnavailableReplicas != 0 || s.ObservedGeneration != 1 {
		t.Errorf("%+v", s)
	}
}

// The sizes through which an update goes.
func TestRollingUpdate(t *testing.T) {
	for _, test := range []struct {
		surge, unavailable string
		size               int32
		want               string
	}{
		{"1", "0", 3, "new 1, old 2, new 2, old 1, new 3, old 0"},
		{"0", "1", 3, "new 0, old 2, new 1, old 1, new 2, old 0, new 3"},
		{"0", "0", 2, "new 0, old 1, new 1, old 0, new 2"},
		{"100%", "0", 2, "new 2, old 1, old 0"},
		{"0", "100%", 2, "new 0, old 0, new 2"},
		{"25%", "25%", 4, "new 1, old 2, new 3, old 1, new 4, old 0"},
	} {
		t.Run(test.surge+" and "+test.unavailable, func(t *testing.T) {
			w := newRolloutTest(t, test.size, test.surge, test.unavailable)
			w.settle()
			old := w.newest().Name
			w.log = nil
			w.image("2")
			w.settle()
			got := strings.Join(w.log, ", ")
			for _, line := range w.log {
				words := strings.Fields(line)
				short := "new"
				if words[1] == old {
					short = "old"
				}
				got = strings.Replace(got, line, short+" "+words[len(words)-1], 1)
			}
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// Recreate creates no new pod before the last old one has ended.
func TestRecreateWaitsForTheLastOldPod(t *testing.T) {
	w := newRolloutTest(t, 2, "0", "0")
	w.d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	w.settle()
	w.image("2")
	if plan := w.step(); plan.Create != nil || len(plan.Update) != 1 {
		t.Fatalf("%+v", plan)
	}
	old := w.sets[0]
	w.report(old)
	if plan := w.step(); plan.Create != nil {
		t.Fatal("it does not wait for the old pods")
	}
	w.settle()
	if w.running[w.newest().UID] != 2 || w.running[old.UID] != 0 {
		t.Errorf("%v", w.running)
	}
}

// Recreate neither creates nor enlarges a new set before the old one is known to create no more pods, even if it has not
// created any yet.
func TestRecreateWaitsUntilTheOldSetCreatesNoPods(t *testing.T) {
	for name, next := range map[string]string{"a new template": "3", "an earlier one": "1"} {
		t.Run(name, func(t *testing.T) {
			w := newRolloutTest(t, 2, "0", "0")
			w.d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			w.image("1")
			w.settle()
			w.resize(0)
			w.image("2")
			w.settle()
			w.resize(2)
			w.step()
			w.report(w.newest()) // it has observed its size, and creates no pods yet
			old, sets := w.newest().Name, len(w.sets)
			w.image(next)
			for _, when := range []string{"at once", "before the old set has observed its size"} {
				w.step()
				if desired := sum(w.sets, specReplicas); desired != 0 || len(w.sets) > sets {
					t.Fatalf("%s: %d pods of %d sets are desired, of %d sets before", when, desired, len(w.sets), sets)
				}
			}
			for _, set := range w.sets {
				w.report(set)
			}
			w.settle()
			if n := w.running[w.newest().UID]; n != 2 || w.newest().Name == old {
				t.Errorf("%d pods of %s", n, w.newest().Name)
			}
		})
	}
}

// Scaling in the middle of an update is proportional.
func TestProportionalScaling(t *testing.T) {
	w := newRolloutTest(t, 10, "3", "2")
	w.settle()
	w.image("broken")
	w.settle()
	old, broken := w.sets[0], w.newest()
	if *old.Spec.Replicas != 8 || *broken.Spec.Replicas != 5 {
		t.Fatalf("stuck at %d and %d", *old.Spec.Replicas, *broken.Spec.Replicas)
	}
	w.resize(15)
	w.step()
	if o, n := *w.sets[0].Spec.Replicas, *w.newest().Spec.Replicas; o != 11 || n != 7 {
		t.Errorf("%d and %d, want 11 and 7", o, n)
	}
	w.resize(0)
	w.settle()
	if w.total() != 0 {
		t.Errorf("%d pods are left", w.total())
	}
}

func TestRollbackReusesTheReplicaSet(t *testing.T) {
	w := newRolloutTest(t, 1, "1", "0")
	w.d.Annotations = map[string]string{"kubernetes.io/change-cause": "first", corev1.LastAppliedConfigAnnotation: "x"}
	w.settle()
	first := w.newest().Name
	w.image("2")
	w.d.Annotations["kubernetes.io/change-cause"] = "second"
	w.settle()
	w.image("1")
	w.settle()
	set := w.newest()
	if set.Name != first || set.Annotations[annotationRevision] != "3" || set.Annotations[annotationHistory] != "1" || w.d.Annotations[annotationRevision] != "3" {
		t.Errorf("%s %v", set.Name, set.Annotations)
	}
	if _, ok := set.Annotations[corev1.LastAppliedConfigAnnotation]; ok || set.Annotations["kubernetes.io/change-cause"] != "second" {
		t.Errorf("%v", set.Annotations)
	}
}

func TestHistoryLimit(t *testing.T) {
	w := newRolloutTest(t, 1, "1", "0")
	for i := range 5 {
		w.image(fmt.Sprint(i))
		w.settle()
	}
	w.settle()
	if len(w.sets) != 3 {
		t.Errorf("%d sets are left, want the newest and two", len(w.sets))
	}
	for _, set := range w.sets {
		if revisionOf(set) < 3 {
			t.Errorf("revision %d is left", revisionOf(set))
		}
	}
}

func TestPausedDeploymentIsResizedAndNotRolledOut(t *testing.T) {
	w := newRolloutTest(t, 2, "1", "0")
	w.settle()
	w.d.Spec.Paused = true
	w.image("2")
	w.resize(4)
	w.settle()
	if len(w.sets) != 1 || w.available() != 4 {
		t.Errorf("%d sets, %d available: a paused deployment is resized and not rolled out", len(w.sets), w.available())
	}
	w.d.Spec.Paused = false
	w.settle()
	if w.running[w.newest().UID] != 4 || len(w.sets) != 2 {
		t.Errorf("%v", w.running)
	}
}

// A paused deployment without pods runs the template that it ran last, which need not be that of the youngest set.
func TestPausedDeploymentIsScaledUpFromZero(t *testing.T) {
	w := newRolloutTest(t, 2, "1", "0")
	for _, tag := range []string{"1", "2", "1"} {
		w.image(tag)
		w.settle()
	}
	last := w.newest().UID
	w.resize(0)
	w.settle()
	w.d.Spec.Paused = true
	w.image("3")
	w.settle()
	w.resize(4)
	w.settle()
	if w.running[last] != 4 || w.total() != 4 {
		t.Errorf("%d of %d pods have the last template", w.running[last], w.total())
	}
	w.d.Spec.Paused = false
	w.settle()
	if n := w.running[w.newest().UID]; n != 4 {
		t.Errorf("resumed: %d pods have the new template", n)
	}
}

func TestProgressDeadline(t *testing.T) {
	w := newRolloutTest(t, 1, "1", "0")
	w.settle()
	w.image("broken")
	if plan := w.settle(); plan.RequeueAfter <= 0 || plan.RequeueAfter > 600*time.Second {
		t.Errorf("looks again in %s", plan.RequeueAfter)
	}
	w.now = w.now.Add(601 * time.Second)
	w.step()
	c := conditionOf(w.d.Status.Conditions, appsv1.DeploymentProgressing)
	if c.Reason != reasonLate || c.Status != corev1.ConditionFalse {
		t.Errorf("%+v", c)
	}
	w.image("3")
	w.settle()
	if c := conditionOf(w.d.Status.Conditions, appsv1.DeploymentProgressing); c.Reason != reasonComplete {
		t.Errorf("%+v", c)
	}
}

// The deadline of a rollout begins with the rollout: not with the one before, which may have been completed or given up
// long ago, and whether or not the status could wait after the creation of the set.
func TestDeadlineBeginsWithTheRollout(t *testing.T) {
	const refused = "refused"
	const rolling, recreate = appsv1.RollingUpdateDeploymentStrategyType, appsv1.RecreateDeploymentStrategyType
	for _, test := range []struct {
		name, before, then string
		strategy           appsv1.DeploymentStrategyType
	}{
		{"an update", "2", "3", rolling},
		{"an undo", "2", "1", rolling},
		{"an update after a failure", "broken", "3", rolling},
		{"an update by recreation", "2", "3", recreate},
		{"an undo by recreation", "2", "1", recreate},
		{"an update by recreation after a failure", "broken", "3", recreate},
		{"an undo by recreation after a failure", "broken", "1", recreate},
		{"an undo after a refusal, while there are no pods", refused, "1", rolling},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newRolloutTest(t, 3, "1", "0")
			w.d.Spec.Strategy.Type = test.strategy
			w.image("1")
			w.settle()
			w.image(test.before)
			if test.before == refused {
				w.lose(w.sets[0])
				w.refuse()
				w.now = w.now.Add(time.Hour)
			} else {
				w.settle()
				w.now = w.now.Add(time.Hour)
				w.step()
			}
			w.image(test.then)
			begun := w.now
			late := func() bool {
				c := conditionOf(w.d.Status.Conditions, appsv1.DeploymentProgressing)
				return w.d.Status.ObservedGeneration == w.d.Generation && c.Reason == reasonLate
			}
			for !late() && w.now.Before(begun.Add(time.Hour)) { // no new pod becomes ready
				w.step()
				for _, set := range w.sets {
					w.pods(set)
					w.report(set)
				}
				w.now = w.now.Add(time.Second)
			}
			if took := w.now.Sub(begun); took < 600*time.Second || took > 620*time.Second {
				t.Errorf("late after %s\n%s", took, strings.Join(w.log, "\n"))
			}
		})
	}
}

// A refusal is reported once, whatever the texts of later ones are, and not without a deadline.
func TestRefusedReplicaSetIsReportedOnce(t *testing.T) {
	w := newRolloutTest(t, 1, "1", "0")
	for _, message := range []string{"first", "second"} {
		before := w.d.DeepCopy()
		w.d.Status = notCreated(before, w.step(), message, w.now)
		c := conditionOf(w.d.Status.Conditions, appsv1.DeploymentProgressing)
		if c.Status != corev1.ConditionFalse || c.Reason != reasonNotCreated || c.Message != "first" || !c.LastUpdateTime.Time.Equal(epoch) {
			t.Errorf("the %s refusal: %+v", message, c)
		}
		w.sets, w.now = nil, w.now.Add(time.Minute)
	}
	w.d.Spec.ProgressDeadlineSeconds = nil
	if s := notCreated(w.d, w.step(), "third", w.now); conditionOf(s.Conditions, appsv1.DeploymentProgressing) != nil {
		t.Errorf("without a deadline: %+v", s.Conditions)
	}
}

// A deployment that is being deleted leaves its replica sets to the garbage collector.
func TestDeletedDeploymentLeavesItsReplicaSets(t *testing.T) {
	w := newRolloutTest(t, 2, "1", "0")
	w.settle()
	ended := metav1.NewTime(w.now)
	w.d.DeletionTimestamp = &ended
	w.image("2")
	if plan := w.step(); plan.Create != nil || len(plan.Update)+len(plan.Delete) > 0 {
		t.Errorf("%+v", plan)
	}
}

// Random updates with lagging set controllers and statuses: there are never fewer pods
// available than the minimum, never more desired than the surge allows, and in the end
// all are new.
func TestUpdatesKeepTheirLimits(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		size, surge, unavailable := 1+r.Int32N(6), r.Int32N(3), r.Int32N(3)
		w := newRolloutTest(t, size, fmt.Sprint(surge), fmt.Sprint(unavailable))
		w.settle()
		if surge == 0 && unavailable == 0 {
			unavailable = 1
		}
		for version := range 3 {
			w.image(fmt.Sprint("v", version))
			for range 30 + r.IntN(60) {
				set := w.sets[r.IntN(len(w.sets))]
				switch r.IntN(4) {
				case 0:
					w.step()
				case 1:
					w.pods(set)
				case 2:
					w.start(set)
				case 3:
					w.report(set)
				}
				if desired := sum(w.sets, specReplicas); w.available() < size-unavailable || desired > int64(size+surge) {
					t.Fatalf("seed %d: %d available, %d desired, of %d with surge %d and unavailable %d\n%s",
						seed, w.available(), desired, size, surge, unavailable, strings.Join(w.log, "\n"))
				}
			}
		}
		w.settle()
		if n := w.running[w.newest().UID]; n != size || w.total() != size {
			t.Fatalf("seed %d: %d of %d are new, %d in all\n%s", seed, n, size, w.total(), strings.Join(w.log, "\n"))
		}
	}
}

// A status waits for the report of a new replica set, which comes soon. Bad news, and all that follows a report, do not
// wait.
func TestStatusWaitsForTheReportOfTheReplicaSet(t *testing.T) {
	w := newRolloutTest(t, 4, "1", "1")
	if plan := w.step(); plan.Create == nil || plan.Interim != pods.MaxStartHold {
		t.Errorf("when the replica set is created, the status waits for %s", plan.Interim)
	}
	w.sets[0].Generation = 1
	if plan := w.step(); plan.Interim != pods.MaxStartHold {
		t.Errorf("before the report of the replica set, the status waits for %s", plan.Interim)
	}
	w.d.Status.AvailableReplicas = 1
	if plan := w.step(); plan.Interim != 0 {
		t.Errorf("when pods have become unavailable, the status waits for %s", plan.Interim)
	}
	w.d.Status.AvailableReplicas, w.sets[0].Status.ObservedGeneration = 0, 1
	if plan := w.step(); plan.Interim != 0 {
		t.Errorf("after the report of the replica set, the status waits for %s", plan.Interim)
	}
	w.d.DeletionTimestamp = &metav1.Time{Time: epoch}
	if plan := w.step(); plan.Interim != pods.EndHold {
		t.Errorf("while the deployment is being deleted, the status waits for %s", plan.Interim)
	}
}
