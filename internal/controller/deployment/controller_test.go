package deployment

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
	"github.com/coppice-dev/coppice/internal/testing/histories"
	"github.com/coppice-dev/coppice/internal/testing/laggingcache"
)

// R25: nobody else writes to a Deployment and its ReplicaSets, so that no write has a conflict, however late the caches
// show the writes of the controller, and whenever it is called.
func TestR25_DeploymentWaitsForItsWrites(t *testing.T) {
	begin := newRolloutTest(t, 4, "1", "1").d
	rapid.Check(t, func(t *rapid.T) {
		c, err := laggingcache.New(epoch, histories.Choices(t), New)
		if err != nil {
			t.Fatal(err)
		}
		laggingcache.Put(c, "deployments", begin.DeepCopy())
		for _, image := range []string{"2", "3"} {
			c.Adverse = true
			for range rapid.IntRange(0, 200).Draw(t, "steps") {
				c.Step(t.Context())
			}
			for range 4 { // an interim status waits
				if !c.Quiesce(t.Context()) {
					t.Fatal("it does not come to rest")
				}
				if !c.Wait(2 * pods.MaxStartHold) {
					break
				}
			}
			d := laggingcache.All[*appsv1.Deployment](c, "deployments")[0]
			if d.Status.ObservedGeneration != d.Generation || d.Annotations[annotationRevision] == "" {
				t.Fatalf("the status is %+v", d.Status)
			}
			d.Spec.Template.Spec.Containers[0].Image = "web:" + image
			laggingcache.Put(c, "deployments", d)
		}
		if n := c.Conflicts(); n > 0 || len(c.Errors) > 0 {
			t.Errorf("%d writes had a conflict; errors: %v", n, c.Errors)
		}
	})
}

// The status of a deployment whose replica set cannot be created says so, and is written once for many attempts.
func TestStatusReportsThatTheReplicaSetCannotBeCreated(t *testing.T) {
	c, err := laggingcache.New(epoch, func(int) int { return 0 }, New)
	if err != nil {
		t.Fatal(err)
	}
	attempts := 0
	c.Fate = func(verb, resource, _ string) laggingcache.Fate {
		if verb == "create" && resource == "replicasets" {
			attempts++
			return laggingcache.Refused
		}
		return laggingcache.Answered
	}
	laggingcache.Put(c, "deployments", newRolloutTest(t, 4, "1", "1").d)
	progressing := func(most time.Duration) (*appsv1.Deployment, *appsv1.DeploymentCondition) {
		c.Quiesce(t.Context())
		c.Wait(most)
		c.Quiesce(t.Context())
		d := laggingcache.All[*appsv1.Deployment](c, "deployments")[0]
		return d, conditionOf(d.Status.Conditions, appsv1.DeploymentProgressing)
	}
	first, condition := progressing(0)
	if condition == nil || condition.Status != corev1.ConditionFalse || condition.Reason != "ReplicaSetCreateError" || !strings.Contains(condition.Message, "refused") {
		t.Fatalf("%+v", condition)
	}
	if s := first.Status; s.UnavailableReplicas != 0 || s.ObservedGeneration != first.Generation {
		t.Errorf("there are no pods: %+v", s)
	}
	for attempts < 10 {
		if again, _ := progressing(time.Second); again.ResourceVersion != first.ResourceVersion {
			t.Fatalf("after %d attempts the status is written again: %+v", attempts, again.Status)
		}
	}
	c.Fate = nil
	_, _ = progressing(time.Second)
	d, condition := progressing(2 * pods.MaxStartHold)
	if condition.Status != corev1.ConditionTrue || d.Annotations[annotationRevision] != "1" || len(c.Errors) > 0 {
		t.Errorf("once it can be created: %+v, errors %v", condition, c.Errors)
	}
}

// R25: a ReplicaSet that was created and deleted while the watch was down has no event.
func TestR25_LostEventDelaysADeployment(t *testing.T) {
	for reconciliations := range 2 {
		c, err := laggingcache.New(epoch, func(int) int { return 0 }, New)
		if err != nil {
			t.Fatal(err)
		}
		laggingcache.Put(c, "deployments", newRolloutTest(t, 4, "1", "1").d)
		c.LoseCreation(t.Context(), "replicasets", reconciliations)
		c.Rest(t.Context(), 2*controller.LostEventPeriod)
		if n := len(laggingcache.All[*appsv1.ReplicaSet](c, "replicasets")); n != 1 || len(c.Errors) > 0 {
			t.Errorf("reconciled %d times before: %d replica sets; errors: %v", reconciliations, n, c.Errors)
		}
	}
}
