package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const workers = 5

type reconciler struct {
	kind       kind
	pods       *controller.RefManager[*corev1.Pod]
	podControl *controller.PodControl
	now        func() time.Time
	// written holds the expectations about statuses: with an older object, the next one would have a conflict.
	written  *controller.Expectations
	held     *controller.Holds
	refusals *controller.Refusals
	hasNodes func() bool
}

// ReplicaSets returns the controller of apps/v1 ReplicaSet.
func ReplicaSets(shared *controller.Context) *controller.Controller {
	return newController(shared, newReplicaSets(shared.Client, shared.Informers))
}

// ReplicationControllers returns the controller of v1 ReplicationController.
func ReplicationControllers(shared *controller.Context) *controller.Controller {
	return newController(shared, newReplicationControllers(shared.Client, shared.Informers))
}

func newController(shared *controller.Context, k kind) *controller.Controller {
	c := &reconciler{
		kind: k, pods: shared.Pods, podControl: shared.PodControl(k.name()), now: shared.Clock.Now,
		written: controller.NewExpectations(k.informer().GetIndexer()), held: controller.NewHolds(shared.Clock), refusals: controller.NewRefusals(), hasNodes: shared.HasNodes,
	}
	return &controller.Controller{
		Name: k.name(), Reconcile: c.reconcile, Workers: workers, Holds: c.held,
		Sources: []controller.Source{
			controller.For(k.informer(), c.podControl.Expectations, c.written),
			shared.Pods.Source(k.groupVersionKind(), k.matching),
		},
	}
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	obj, err := c.kind.get(key, c.now)
	if err != nil {
		return 0, err
	}
	if obj == nil {
		c.held.End(key)
		c.refusals.Forget(key)
		return 0, nil
	}
	if !c.podControl.Expectations.Satisfied(obj.GetUID()) {
		return controller.LostEventPeriod, nil // the awaited event enqueues the key earlier
	}
	mine, err := c.pods.AdoptAndRelease(ctx, obj.Owner, c.podControl.Expectations)
	if err != nil {
		return 0, err
	}
	shown := make(map[types.UID]bool, len(mine))
	for _, pod := range mine {
		shown[pod.UID] = pods.IsTerminating(pod)
	}
	seen := Observed{Mine: mine, Leaving: c.podControl.Expectations.PendingDeletions(obj.GetUID(), shown), Refused: c.refusals.Present(key, shown), HasNodes: c.hasNodes()}
	if len(mine) > int(obj.Replicas) { // needed only to choose which pods to delete
		seen.Related = c.related(obj)
	}
	plan := Decide(obj.Set, seen, c.now())
	failed := c.carryOut(ctx, obj, plan)
	var reason *failure
	if failed != nil && !controller.IsConflict(failed) {
		reason = &failure{"FailedCreate", failed.Error()}
		if len(plan.Delete) > 0 {
			reason.reason = "FailedDelete"
		}
	}
	if reason != nil {
		plan.Interim = 0
	}
	held, err := c.report(ctx, obj, plan, obj.status(plan.Counts, reason))
	again := controller.RequeueAfter(obj.GetUID(), c.podControl.Expectations)
	return controller.Sooner(controller.Sooner(plan.RequeueAfter, held), again), errors.Join(controller.IgnoreNamespaceTerminating(failed), err)
}

// report writes the status, or returns for how long it holds an interim one. It does neither if the cache does not show
// the last status yet: its event enqueues the key again.
func (c *reconciler) report(ctx context.Context, obj *object, plan Plan, write writer) (held time.Duration, err error) {
	key := cache.MetaObjectToName(obj)
	if write == nil {
		c.held.End(key)
		return 0, nil
	}
	if !c.written.Satisfied(obj.GetUID()) {
		return 0, nil
	}
	if held := c.held.Remaining(key, plan.Interim); held > 0 {
		return held, nil
	}
	version, err := write(ctx)
	if err != nil {
		return 0, err
	}
	c.held.End(key)
	c.written.ExpectVersion(obj.GetUID(), version)
	return 0, nil
}

// related returns the pods of objects with the same controller: the pods of the other revisions
// of a Deployment.
func (c *reconciler) related(obj *object) []*corev1.Pod {
	owner := metav1.GetControllerOfNoCopy(obj)
	if owner == nil {
		return nil
	}
	indexed, err := c.kind.informer().GetIndexer().ByIndex(controller.ByController, string(owner.UID))
	if err != nil {
		return nil // not indexed by any controller
	}
	var related []*corev1.Pod
	for _, sibling := range indexed {
		if s, ok := sibling.(metav1.Object); ok && s.GetUID() != obj.GetUID() {
			related = append(related, c.pods.ControlledBy(s.GetUID())...)
		}
	}
	return related
}

func (c *reconciler) carryOut(ctx context.Context, obj *object, plan Plan) error {
	if plan.Create > 0 {
		err := controller.SlowStartBatch(ctx, plan.Create, func(ctx context.Context, _ int) error {
			pod := pods.FromTemplate(obj.Template, obj.GetNamespace())
			pod.GenerateName = pods.NamePrefix(obj.GetName())
			return c.podControl.Create(ctx, obj.Owner, obj.on, pod)
		})
		return err
	}
	err := controller.AttemptAll(plan.Delete, func(pod *corev1.Pod) error {
		err := c.podControl.Delete(ctx, obj.Owner, obj.on, pod)
		if controller.IsRefusal(err) {
			c.refusals.Add(cache.MetaObjectToName(obj), pod.UID)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	return nil
}
