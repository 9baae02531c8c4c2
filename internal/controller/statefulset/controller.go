package statefulset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	name    = "statefulset-controller"
	workers = 5
	// hashLabel is the label that holds the hash of a revision.
	hashLabel = "controller.kubernetes.io/hash"
	// defaultHistoryLimit is the number of old revisions kept if the set does not specify it.
	defaultHistoryLimit = 10
)

type reconciler struct {
	client     kubernetes.Interface
	sets       appslisters.StatefulSetLister
	claims     corelisters.PersistentVolumeClaimLister
	pods       *controller.RefManager[*corev1.Pod]
	revisions  *controller.RevisionControl
	podControl *controller.PodControl
	// written holds the expectations about statuses: only they record which revision is the
	// current one.
	written *controller.Expectations
	// volumeClaims holds the expectations about volume claims: a claim that the cache does not
	// show yet would outlive its pod.
	volumeClaims *controller.Expectations
	now          func() time.Time
}

// object is a StatefulSet as the caches show it.
type object struct {
	*appsv1.StatefulSet

	owner     controller.Owner
	revisions controller.Revisions
	mine      []*corev1.Pod
}

func kind() schema.GroupVersionKind { return appsv1.SchemeGroupVersion.WithKind("StatefulSet") }

// New returns the controller of apps/v1 StatefulSet.
func New(shared *controller.Context) (*controller.Controller, error) {
	revisions, err := controller.NewRevisionControl(shared, hashLabel)
	if err != nil {
		return nil, err
	}
	sets, claims := shared.Informers.StatefulSets, shared.Informers.PersistentVolumeClaims
	c := &reconciler{
		client: shared.Client, sets: sets.Lister(), claims: claims.Lister(), pods: shared.Pods, revisions: revisions,
		podControl: shared.PodControl(name), now: shared.Clock.Now,
		written: controller.NewExpectations(sets.Informer().GetIndexer()), volumeClaims: controller.NewExpectations(claims.Informer().GetIndexer()),
	}
	return &controller.Controller{
		Name: name, Reconcile: c.reconcile, Workers: workers,
		Sources: []controller.Source{
			controller.For(sets.Informer(), c.podControl.Expectations, revisions.Expectations(), c.written, c.volumeClaims),
			shared.Pods.Source(kind(), func(pod *corev1.Pod) []cache.ObjectName {
				return c.matching(pod, func(set *appsv1.StatefulSet) bool { return isMember(set, pod) })
			}),
			revisions.RefManager().Source(kind(), func(r *appsv1.ControllerRevision) []cache.ObjectName {
				return c.matching(r, func(*appsv1.StatefulSet) bool { return true })
			}),
			{Informer: claims.Informer(), Keys: c.setsOfClaim},
		},
	}, nil
}

func isMember(set *appsv1.StatefulSet, obj metav1.Object) bool {
	_, ok := ordinalOf(set.Name, obj.GetName())
	return ok
}

func (c *reconciler) matching(obj metav1.Object, may func(*appsv1.StatefulSet) bool) []cache.ObjectName {
	list, err := c.sets.StatefulSets(obj.GetNamespace()).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	list = slices.DeleteFunc(list, func(set *appsv1.StatefulSet) bool { return !may(set) })
	return controller.MatchingOwners(obj, list, func(set *appsv1.StatefulSet) *metav1.LabelSelector { return set.Spec.Selector })
}

func (c *reconciler) reconcile(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	set, err := c.sets.StatefulSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if !c.podControl.Expectations.Satisfied(set.UID) || !c.revisions.Satisfied(set.UID) || !c.written.Satisfied(set.UID) || !c.volumeClaims.Satisfied(set.UID) {
		return controller.LostEventPeriod, nil // the awaited event enqueues the key earlier
	}
	o := object{StatefulSet: set}
	if o.owner, err = c.owner(set); err != nil {
		return 0, err
	}
	if o.revisions, err = c.syncRevisions(ctx, set, o.owner); err != nil {
		return 0, err
	}
	o.owner.Match = func(obj metav1.Object) bool { return isMember(set, obj) }
	if o.mine, err = c.pods.AdoptAndRelease(ctx, o.owner, c.podControl.Expectations); err != nil {
		return 0, err
	}
	want := desired(set, o.revisions)
	plan := Decide(want, Observed{Mine: o.mine, Leaving: c.leaving(o)}, c.now())
	if !want.Ending {
		err = errors.Join(c.carryOut(ctx, o, plan), c.truncate(ctx, o))
	}
	again := controller.RequeueAfter(set.UID, c.podControl.Expectations, c.revisions.Expectations(), c.volumeClaims)
	return controller.Sooner(plan.RequeueAfter, again), errors.Join(err, c.writeStatus(ctx, o, want, plan))
}

func (c *reconciler) owner(set *appsv1.StatefulSet) (controller.Owner, error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return controller.Owner{}, fmt.Errorf("read the selector: %w", err)
	}
	return controller.Owner{Object: set, Kind: kind(), Selector: selector, Live: func(ctx context.Context) (metav1.Object, error) {
		return c.client.AppsV1().StatefulSets(set.Namespace).Get(ctx, set.Name, metav1.GetOptions{})
	}}, nil
}

// syncRevisions returns the revisions of the set. A set that is being deleted gets no new
// revisions.
func (c *reconciler) syncRevisions(ctx context.Context, set *appsv1.StatefulSet, owner controller.Owner) (controller.Revisions, error) {
	subject := controller.RevisionSubject{Owner: owner, Template: &set.Spec.Template, Collisions: set.Status.CollisionCount}
	if set.DeletionTimestamp != nil {
		return c.revisions.Get(subject)
	}
	return c.revisions.Sync(ctx, subject)
}

func desired(set *appsv1.StatefulSet, revisions controller.Revisions) Set {
	s := Set{
		Name: set.Name, Start: start(set), Replicas: replicas(set),
		Parallel: set.Spec.PodManagementPolicy == appsv1.ParallelPodManagement,
		OnDelete: set.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType,
		MinReady: time.Duration(set.Spec.MinReadySeconds) * time.Second,
		Current:  set.Status.CurrentRevision, Update: set.Status.UpdateRevision,
		Ending: set.DeletionTimestamp != nil, MaxUnavailable: 1,
	}
	if revisions.Update != nil {
		s.Update = revisions.Update.Name
	}
	if revisionNamed(revisions, s.Current) == nil && !s.Ending {
		s.Current = s.Update
	}
	for i := range set.Spec.VolumeClaimTemplates {
		s.Claims = append(s.Claims, set.Spec.VolumeClaimTemplates[i].Name)
	}
	if rolling := set.Spec.UpdateStrategy.RollingUpdate; rolling != nil {
		if rolling.Partition != nil {
			s.Partition = int(*rolling.Partition)
		}
		// Percentages are rounded down; validation has rejected values that cannot be scaled.
		if n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(rolling.MaxUnavailable, intstr.FromInt32(1)), s.Replicas, false); err == nil {
			s.MaxUnavailable = max(n, 1)
		}
	}
	return s
}

func start(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

func replicas(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

func revisionNamed(revisions controller.Revisions, name string) *appsv1.ControllerRevision {
	for _, r := range revisions.All {
		if r.Name == name {
			return r
		}
	}
	return nil
}

func (c *reconciler) leaving(o object) map[types.UID]bool {
	shown := make(map[types.UID]bool, len(o.mine))
	for _, pod := range o.mine {
		shown[pod.UID] = pods.IsTerminating(pod)
	}
	return c.podControl.Expectations.PendingDeletions(o.UID, shown)
}

// carryOut carries out the plan. The owners of volume claims come first: they determine the
// fate of a volume claim when its pod is gone.
func (c *reconciler) carryOut(ctx context.Context, o object, plan Plan) error {
	if err := c.setClaimOwners(ctx, o); err != nil {
		return err
	}
	if err := controller.IgnoreNamespaceTerminating(c.recreateClaims(ctx, o)); err != nil {
		return err
	}
	for _, pod := range plan.Label {
		if err := c.label(ctx, o, pod); err != nil {
			return err
		}
	}
	created := controller.SlowStartBatch(ctx, len(plan.Create), func(ctx context.Context, i int) error {
		return c.create(ctx, o, plan.Create[i])
	})
	// A deletion may make room for a pod that a quota refuses.
	removed := controller.AttemptAll(plan.Delete, func(pod *corev1.Pod) error { return c.podControl.Delete(ctx, o.owner, o.StatefulSet, pod) })
	return errors.Join(controller.IgnoreNamespaceTerminating(created), removed, c.reportIncomplete(ctx, o, plan.Incomplete))
}

func (c *reconciler) create(ctx context.Context, o object, at Place) error {
	template := &o.Spec.Template
	if r := revisionNamed(o.revisions, at.Revision); r != nil && r != o.revisions.Update {
		var err error
		if template, err = controller.TemplateOf(r); err != nil {
			return err
		}
	}
	pod := newPod(o.StatefulSet, template, at.Revision, at.Ordinal)
	if usable, err := c.ensureClaims(ctx, o, pod.Name); err != nil || !usable {
		return err
	}
	return c.podControl.Create(ctx, o.owner, o.StatefulSet, pod)
}

// label adds the identity labels to an adopted pod.
func (c *reconciler) label(ctx context.Context, o object, pod *corev1.Pod) error {
	ordinal, _ := ordinalOf(o.Name, pod.Name)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": pod.UID, "resourceVersion": pod.ResourceVersion, "labels": identityLabels(pod.Name, ordinal),
	}})
	if err != nil {
		return fmt.Errorf("write a patch: %w", err)
	}
	changed, err := c.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("label pod %s: %w", pod.Name, err)
	}
	c.podControl.Expectations.ExpectVersion(o.UID, changed.ResourceVersion)
	return nil
}

// truncate deletes revisions beyond the history limit that no pod has.
func (c *reconciler) truncate(ctx context.Context, o object) error {
	live := map[string]bool{o.Status.CurrentRevision: true, o.revisions.Update.Name: true}
	for _, pod := range o.mine {
		live[pod.Labels[appsv1.ControllerRevisionHashLabelKey]] = true
	}
	limit := int32(defaultHistoryLimit)
	if o.Spec.RevisionHistoryLimit != nil {
		limit = *o.Spec.RevisionHistoryLimit
	}
	return c.revisions.Truncate(ctx, o.revisions, func(r *appsv1.ControllerRevision) bool { return live[r.Name] }, limit)
}

func (c *reconciler) writeStatus(ctx context.Context, o object, want Set, plan Plan) error {
	n := plan.Counts
	status := appsv1.StatefulSetStatus{
		ObservedGeneration: o.Generation, Conditions: o.Status.Conditions, CollisionCount: &o.revisions.Collisions,
		Replicas: n.Replicas, ReadyReplicas: n.Ready, AvailableReplicas: n.Available, CurrentReplicas: n.Current, UpdatedReplicas: n.Updated,
		CurrentRevision: want.Current, UpdateRevision: want.Update,
	}
	if plan.Updated {
		status.CurrentRevision, status.CurrentReplicas = want.Update, n.Updated
	}
	if equality.Semantic.DeepEqual(status, o.Status) {
		return nil
	}
	changed := o.DeepCopy()
	changed.Status = status
	written, err := c.client.AppsV1().StatefulSets(o.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	c.written.ExpectVersion(o.UID, written.ResourceVersion)
	return nil
}
