package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"pgregory.net/rapid"

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
