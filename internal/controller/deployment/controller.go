package deployment

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	name    = "deployment-controller"
	workers = 5
)

type reconciler struct {
	client      kubernetes.Interface
	deployments appslisters.DeploymentLister
	sets        *controller.RefManager[*appsv1.ReplicaSet]
	pods        *controller.RefManager[*corev1.Pod]
	events      record.EventRecorder
	now         func() time.Time
	// written and scaled hold the expectations about what was written to deployments and to their ReplicaSets. On older
	// ones, each further write would have a conflict.
	written, scaled *controller.Expectations
	held            *controller.Holds
}

func kind() schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind("Deployment") }

// New returns the controller of apps/v1 Deployment.
func New(shared *controller.Context) (*controller.Controller, error) {
	source := shared.Informers.Deployments
	sets, err := controller.NewRefManager(shared.Informers.ReplicaSets.Informer(),
		func(ctx context.Context, namespace, name string, kind types.PatchType, patch []byte) (*appsv1.ReplicaSet, error) {
			return shared.Client.AppsV1().ReplicaSets(namespace).Patch(ctx, name, kind, patch, metav1.PatchOptions{})
		})
	if err != nil {
		return nil, err
	}
	c := &reconciler{
		client: shared.Client, deployments: source.Lister(), sets: sets, pods: shared.Pods, events: shared.Events(name), now: shared.Clock.Now,
		written: controller.NewExpectations(source.Informer().GetIndexer()), scaled: controller.NewExpectations(sets.Indexer()),
		held: controller.NewHolds(shared.Clock),
	}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers, Holds: c.held,
		Sources: []controller.Source{
			controller.For(source.Informer(), c.written, c.scaled),
			sets.Source(kind(), c.matching),
			{Informer: shared.Informers.Pods.Informer(), Keys: c.recreating},
		},
	}, nil
}

func (c *reconciler) matching(set *appsv1.ReplicaSet) []cache.ObjectName {
	list, err := c.deployments.Deployments(set.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	return controller.MatchingOwners(set, list, func(d *appsv1.Deployment) *metav1.LabelSelector { return d.Spec.Selector })
}

// recreating returns the deployment that waits for the end of a pod before it creates new pods.
func (c *reconciler) recreating(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "ReplicaSet" {
		return nil
	}
	known, exists, err := c.sets.Indexer().GetByKey(pod.Namespace + "/" + owner.Name)
	set, ok := known.(*appsv1.ReplicaSet)
	if err != nil || !exists || !ok || set.UID != owner.UID {
		return nil
	}
	owner = metav1.GetControllerOfNoCopy(set)
	if owner == nil || owner.Kind != kind().Kind {
		return nil
	}
	d, err := c.deployments.Deployments(pod.Namespace).Get(owner.Name)
	if err != nil || d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(d)}
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	d, err := c.deployments.Deployments(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.held.End(key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !c.written.Satisfied(d.UID) || !c.scaled.Satisfied(d.UID) {
		return controller.LostEventPeriod, nil // the awaited event enqueues the key earlier
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return 0, fmt.Errorf("read the selector: %w", err)
	}
	sets, err := c.sets.AdoptAndRelease(ctx, controller.Owner{
		Object: d, Kind: kind(), Selector: selector,
		Live: func(ctx context.Context) (metav1.Object, error) {
			return c.client.AppsV1().Deployments(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		},
	}, c.scaled)
	if err != nil {
		return 0, err
	}
	plan, err := Decide(Observed{Deployment: d, Sets: sets, OldPodsRun: c.oldPodsRun(d, sets)}, c.now())
	if err != nil {
		return 0, err
	}
	held, err := c.carryOut(ctx, d, plan)
	return controller.Sooner(plan.RequeueAfter, held), err
}

func (c *reconciler) oldPodsRun(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) bool {
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		return false
	}
	for _, set := range sets {
		if sameTemplate(&set.Spec.Template, &d.Spec.Template) {
			continue
		}
		for _, pod := range c.pods.ControlledBy(set.UID) {
			if !pods.IsFinished(pod) {
				return true
			}
		}
	}
	return false
}

// carryOut carries out a plan, and returns for how long the status is held. Every write is conditioned on the objects
// that the plan is based on; the name of a new set contains a hash of the template, so there is only one for each
// template.
func (c *reconciler) carryOut(ctx context.Context, d *appsv1.Deployment, plan Plan) (held time.Duration, err error) {
	if plan.Create != nil {
		if err := c.create(ctx, d, &plan); err != nil {
			_, unreported := c.report(ctx, d, plan)
			return 0, errors.Join(err, unreported)
		}
	}
	var failed []error
	for _, change := range plan.Update {
		failed = append(failed, c.update(ctx, d, change))
	}
	for _, set := range plan.Delete {
		err := c.client.AppsV1().ReplicaSets(set.Namespace).Delete(ctx, set.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion},
		})
		if !controller.IsNotFound(err) {
			failed = append(failed, err)
		}
	}
	held, err = c.report(ctx, d, plan)
	return held, errors.Join(append(failed, err)...)
}

// create creates the replica set of the plan. If another object has its name, it counts the collision in the planned
// status: the next name differs. If the server refuses the set, it puts the refusal into the planned status.
func (c *reconciler) create(ctx context.Context, d *appsv1.Deployment, plan *Plan) error {
	set := plan.Create
	created, err := c.client.AppsV1().ReplicaSets(d.Namespace).Create(ctx, set, metav1.CreateOptions{})
	switch {
	case err == nil:
		c.scaled.ExpectVersion(d.UID, created.ResourceVersion)
		c.events.Eventf(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from 0 to %d", set.Name, *set.Spec.Replicas)
		return nil
	case controller.IsNamespaceTerminating(err):
		return nil // no retry can succeed
	case !controller.IsAlreadyExists(err):
		message := fmt.Sprintf("Failed to create new replica set %q: %v", set.Name, err)
		c.events.Event(d, corev1.EventTypeWarning, reasonNotCreated, message)
		plan.Status, plan.Revision, plan.Interim = notCreated(d, *plan, message, c.now()), "", 0
		return fmt.Errorf("create replica set %s: %w", set.Name, err)
	}
	there, err := c.client.AppsV1().ReplicaSets(d.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	if err != nil {
		plan.Status, plan.Revision = d.Status, "" // the planned ones assume the creation
		return fmt.Errorf("read the replica set that has the name: %w", err)
	}
	if !collides(d, there) {
		return nil // created before; the cache does not show it yet
	}
	collisions := int32(1)
	if d.Status.CollisionCount != nil {
		collisions += *d.Status.CollisionCount
	}
	plan.Status, plan.Revision, plan.Interim = d.Status, "", 0
	plan.Status.CollisionCount = &collisions
	return nil
}

func (c *reconciler) update(ctx context.Context, d *appsv1.Deployment, change Change) error {
	set := change.Set
	written, err := c.client.AppsV1().ReplicaSets(set.Namespace).Update(ctx, set, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("change replica set %s: %w", set.Name, err)
	}
	c.scaled.ExpectVersion(d.UID, written.ResourceVersion)
	if to := *set.Spec.Replicas; to > change.From {
		c.events.Eventf(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled up replica set %s from %d to %d", set.Name, change.From, to)
	} else if to < change.From {
		c.events.Eventf(d, corev1.EventTypeNormal, "ScalingReplicaSet", "Scaled down replica set %s from %d to %d", set.Name, change.From, to)
	}
	return nil
}

// report writes the status, and the number of the revision with it, or returns for how long it holds an interim status.
func (c *reconciler) report(ctx context.Context, d *appsv1.Deployment, plan Plan) (held time.Duration, err error) {
	key := cache.MetaObjectToName(d)
	if plan.Revision == "" && equality.Semantic.DeepEqual(plan.Status, d.Status) {
		c.held.End(key)
		return 0, nil
	}
	if held := c.held.Remaining(key, plan.Interim); held > 0 {
		return held, nil
	}
	changed := d.DeepCopy()
	changed.Status = plan.Status
	if plan.Revision != "" {
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, annotationRevision, plan.Revision)
	}
	written, err := c.client.AppsV1().Deployments(d.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return 0, fmt.Errorf("write the status: %w", err)
	}
	c.held.End(key)
	c.written.ExpectVersion(d.UID, written.ResourceVersion)
	return 0, nil
}
