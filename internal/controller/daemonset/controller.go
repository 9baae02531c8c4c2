package daemonset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	name    = "daemonset-controller"
	workers = 2
	// defaultHistoryLimit is the number of old revisions kept if the set does not specify it.
	defaultHistoryLimit = 10
)

type reconciler struct {
	client     kubernetes.Interface
	sets       appslisters.DaemonSetLister
	nodes      corelisters.NodeLister
	pods       *controller.RefManager[*corev1.Pod]
	revisions  *controller.RevisionControl
	podControl *controller.PodControl
	// written holds the expectations about statuses: with an older DaemonSet, the next one would have a conflict.
	written  *controller.Expectations
	backoffs backoffs
	refusals *controller.Refusals
	now      func() time.Time
}

// object is a DaemonSet as the caches show it.
type object struct {
	*appsv1.DaemonSet

	owner     controller.Owner
	revisions controller.Revisions
	hash      string // of the current revision
	mine      []*corev1.Pod
}

func kind() schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind("DaemonSet") }

// New returns the controller of apps/v1 DaemonSet.
func New(shared *controller.Context) (*controller.Controller, error) {
	revisions, err := controller.NewRevisionControl(shared, appsv1.DefaultDaemonSetUniqueLabelKey)
	if err != nil {
		return nil, err
	}
	sets, nodes := shared.Informers.DaemonSets, shared.Informers.Nodes
	c := &reconciler{
		client: shared.Client, sets: sets.Lister(), nodes: nodes.Lister(), pods: shared.Pods, revisions: revisions,
		podControl: shared.PodControl(name), written: controller.NewExpectations(sets.Informer().GetIndexer()),
		backoffs: backoffs{byKey: map[backoffKey]backoff{}}, refusals: controller.NewRefusals(), now: shared.Clock.Now,
	}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers,
		Sources: []controller.Source{
			controller.For(sets.Informer(), c.podControl.Expectations, revisions.Expectations(), c.written),
			shared.Pods.Source(kind(), func(pod *corev1.Pod) []cache.ObjectName { return c.matching(pod) }),
			revisions.RefManager().Source(kind(), func(r *appsv1.ControllerRevision) []cache.ObjectName { return c.matching(r) }),
			{Informer: nodes.Informer(), Keys: c.all, Ignore: sameFit},
		},
	}, nil
}

func (c *reconciler) matching(obj metav1.Object) []cache.ObjectName {
	list, err := c.sets.DaemonSets(obj.GetNamespace()).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	return controller.MatchingOwners(obj, list, func(set *appsv1.DaemonSet) *metav1.LabelSelector { return set.Spec.Selector })
}

// all returns all DaemonSets: a node may fit any of them.
func (c *reconciler) all(any) []cache.ObjectName {
	list, err := c.sets.List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	keys := make([]cache.ObjectName, len(list))
	for i, set := range list {
		keys[i] = cache.MetaObjectToName(set)
	}
	return keys
}

// sameFit reports whether a change to a node does not affect which DaemonSets it fits.
func sameFit(before, now any) bool {
	a, ok := before.(*corev1.Node)
	b, both := now.(*corev1.Node)
	return ok && both && a.UID == b.UID && equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints)
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	set, err := c.sets.DaemonSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.refusals.Forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !c.podControl.Expectations.Satisfied(set.UID) || !c.revisions.Satisfied(set.UID) || !c.written.Satisfied(set.UID) {
		return controller.LostEventPeriod, nil // the awaited event enqueues the key earlier
	}
	o, err := c.observe(ctx, set)
	if err != nil || o.revisions.Update == nil {
		return 0, err // the set is being deleted and its revisions are gone: there is no status to report
	}
	seen, err := c.seen(o)
	if err != nil {
		return 0, err
	}
	plan := Decide(desired(o), seen, c.now())
	if set.DeletionTimestamp == nil {
		err = errors.Join(c.carryOut(ctx, o, plan), c.truncate(ctx, o))
	}
	again := controller.RequeueAfter(set.UID, c.podControl.Expectations, c.revisions.Expectations())
	return controller.Sooner(plan.RequeueAfter, again), errors.Join(err, c.writeStatus(ctx, o, plan.Counts))
}

// observe adopts and releases pods and revisions, and returns the set with the ones that it
// owns. A set that is being deleted gets no new revisions.
func (c *reconciler) observe(ctx context.Context, set *appsv1.DaemonSet) (object, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return object{}, fmt.Errorf("read the selector: %w", err)
	}
	o := object{DaemonSet: set, owner: controller.Owner{Object: set, Kind: kind(), Selector: selector, Live: func(ctx context.Context) (metav1.Object, error) {
		return c.client.AppsV1().DaemonSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	}}}
	subject := controller.RevisionSubject{Owner: o.owner, Template: &set.Spec.Template, Collisions: set.Status.CollisionCount}
	if set.DeletionTimestamp != nil {
		o.revisions, err = c.revisions.Get(subject)
	} else {
		o.revisions, err = c.revisions.Sync(ctx, subject)
	}
	if err != nil || o.revisions.Update == nil {
		return o, err
	}
	o.hash = c.revisions.Hash(set, o.revisions.Update)
	o.mine, err = c.pods.AdoptAndRelease(ctx, o.owner, c.podControl.Expectations)
	return o, err
}

func desired(o object) Set {
	s := Set{
		Hash: o.hash, MinReady: time.Duration(o.Spec.MinReadySeconds) * time.Second,
		OnDelete: o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType, Ending: o.DeletionTimestamp != nil,
	}
	if rolling := o.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		s.MaxUnavailable, s.MaxSurge = rolling.MaxUnavailable, rolling.MaxSurge
	}
	return s
}

func (c *reconciler) seen(o object) (Observed, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return Observed{}, err
	}
	seen := Observed{Mine: o.mine, Nodes: make(map[string]Fit, len(nodes)), Backoff: map[string]time.Duration{}}
	for _, node := range nodes {
		seen.Nodes[node.Name] = fitOf(&o.Spec.Template, node)
	}
	shown := make(map[types.UID]bool, len(o.mine))
	for _, pod := range o.mine {
		shown[pod.UID] = pods.IsTerminating(pod)
		if pod.Status.Phase == corev1.PodFailed {
			seen.Backoff[nodeOf(pod)] = c.backoffs.left(backoffKey{o.UID, o.hash, nodeOf(pod)}, c.now())
		}
	}
	seen.Leaving = c.podControl.Expectations.PendingDeletions(o.UID, shown)
	seen.Refused = c.refusals.Present(cache.MetaObjectToName(o), shown)
	return seen, nil
}

func (c *reconciler) carryOut(ctx context.Context, o object, plan Plan) error {
	removed := controller.AttemptAll(plan.Delete, func(pod *corev1.Pod) error {
		if err := c.podControl.Delete(ctx, o.owner, o.DaemonSet, pod); err != nil {
			if !controller.IsConflict(err) {
				c.refusals.Add(cache.MetaObjectToName(o), pod.UID)
			}
			return err
		}
		if pod.Status.Phase == corev1.PodFailed {
			c.backoffs.failed(backoffKey{o.UID, o.hash, nodeOf(pod)}, c.now())
			c.podControl.Events.Eventf(o.DaemonSet, corev1.EventTypeWarning, "FailedDaemonPod", "Pod %s has failed on node %s and was deleted", pod.Name, nodeOf(pod))
		}
		return nil
	})
	created := controller.SlowStartBatch(ctx, len(plan.Create), func(ctx context.Context, i int) error {
		pod := newPod(&o.Spec.Template, o.Namespace, plan.Create[i])
		pod.GenerateName = pods.NamePrefix(o.Name)
		metav1.SetMetaDataLabel(&pod.ObjectMeta, appsv1.DefaultDaemonSetUniqueLabelKey, o.hash)
		if generation, ok := o.Annotations[appsv1.DeprecatedTemplateGeneration]; ok {
			metav1.SetMetaDataLabel(&pod.ObjectMeta, extensionsv1beta1.DaemonSetTemplateGenerationKey, generation)
		}
		return c.podControl.Create(ctx, o.owner, o.DaemonSet, pod)
	})
	return errors.Join(removed, controller.IgnoreNamespaceTerminating(created))
}

// truncate deletes revisions beyond the history limit that no pod has.
func (c *reconciler) truncate(ctx context.Context, o object) error {
	live := map[string]bool{o.hash: true}
	for _, pod := range o.mine {
		live[pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]] = true
	}
	limit := int32(defaultHistoryLimit)
	if o.Spec.RevisionHistoryLimit != nil {
		limit = *o.Spec.RevisionHistoryLimit
	}
	return c.revisions.Truncate(ctx, o.revisions, func(r *appsv1.ControllerRevision) bool { return live[c.revisions.Hash(o, r)] }, limit)
}

func (c *reconciler) writeStatus(ctx context.Context, o object, n Counts) error {
	status := appsv1.DaemonSetStatus{
		ObservedGeneration: o.Generation, Conditions: o.Status.Conditions, CollisionCount: o.Status.CollisionCount,
		DesiredNumberScheduled: n.Desired, CurrentNumberScheduled: n.Current, NumberMisscheduled: n.Misscheduled,
		NumberReady: n.Ready, UpdatedNumberScheduled: n.Updated, NumberAvailable: n.Available, NumberUnavailable: n.Desired - n.Available,
	}
	if o.revisions.Collisions > 0 {
		status.CollisionCount = &o.revisions.Collisions
	}
	if equality.Semantic.DeepEqual(status, o.Status) {
		return nil
	}
	changed := o.DeepCopy()
	changed.Status = status
	written, err := c.client.AppsV1().DaemonSets(o.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	c.written.ExpectVersion(o.UID, written.ResourceVersion)
	return nil
}
