package devicetainteviction

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcelisters "k8s.io/client-go/listers/resource/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/controller/pods"
)

const (
	name      = "device-taint-eviction"
	rulesName = "device-taint-eviction-rules"
	workers   = 4

	// statusPeriod is the shortest time between two updates of a rule's status while the rule stays the same.
	statusPeriod = 10 * time.Second

	// byConsumer is the index of claims by the UIDs of the pods that they are reserved for.
	byConsumer = "consumer"
)

type reconciler struct {
	client kubernetes.Interface
	pods   corelisters.PodLister
	claims resourcelisters.ResourceClaimLister
	index  cache.Indexer // of claims
	slices resourcelisters.ResourceSliceLister
	rules  resourcelisters.DeviceTaintRuleLister
	events record.EventRecorder
	clock  clock.WithTicker

	mu      sync.Mutex
	evicted map[types.UID]int // guarded by mu: pods, by the rule that they were evicted for
}

// Controllers returns the controller that evicts pods, and the one of the status of rules.
func Controllers(shared *controller.Context) ([]*controller.Controller, error) {
	informers := shared.Informers
	claims := informers.ResourceClaims.Informer()
	if err := claims.AddIndexers(cache.Indexers{byConsumer: consumerKeys}); err != nil {
		return nil, fmt.Errorf("index resource claims by the pods that they are reserved for: %w", err)
	}
	c := &reconciler{
		client: shared.Client, pods: informers.Pods.Lister(), claims: informers.ResourceClaims.Lister(), index: claims.GetIndexer(),
		slices: informers.ResourceSlices.Lister(), rules: informers.DeviceTaintRules.Lister(), events: shared.Events(name),
		clock: shared.Clock, evicted: map[types.UID]int{},
	}
	rules, slices := informers.DeviceTaintRules.Informer(), informers.ResourceSlices.Informer()
	return []*controller.Controller{
		{Name: name, Reconcile: c.reconcilePod, Workers: workers, Sources: []controller.Source{
			{Informer: informers.Pods.Informer(), Keys: c.podWithReservations},
			{Informer: claims, Keys: consumers},
			{Informer: slices, Keys: c.podsOfSlice},
			{Informer: rules, Keys: c.podsOfRule},
		}},
		{Name: rulesName, Reconcile: c.reconcileRule, Workers: 1, Sources: []controller.Source{
			controller.For(rules),
			{Informer: claims, Keys: c.rulesOfClaim},
			{Informer: informers.Pods.Informer(), Keys: c.rulesOfPod},
		}},
	}, nil
}

func consumerKeys(obj any) ([]string, error) {
	claim, ok := obj.(*resourcev1.ResourceClaim)
	if !ok {
		return nil, nil
	}
	var keys []string
	for _, r := range claim.Status.ReservedFor {
		keys = append(keys, string(r.UID))
	}
	return keys, nil
}

// consumers returns the pods that a claim is reserved for.
func consumers(obj any) []cache.ObjectName {
	claim, ok := obj.(*resourcev1.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil
	}
	var keys []cache.ObjectName
	for _, r := range claim.Status.ReservedFor {
		if r.APIGroup == "" && r.Resource == "pods" {
			keys = append(keys, cache.NewObjectName(claim.Namespace, r.Name))
		}
	}
	return keys
}

func (c *reconciler) podWithReservations(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok || len(c.reserved(pod)) == 0 {
		return nil
	}
	return []cache.ObjectName{cache.MetaObjectToName(pod)}
}

// reserved returns the claims in the cache that are reserved for a pod.
func (c *reconciler) reserved(pod *corev1.Pod) []*resourcev1.ResourceClaim {
	objects, err := c.index.ByIndex(byConsumer, string(pod.UID))
	if err != nil {
		return nil // the only error is a missing index
	}
	var claims []*resourcev1.ResourceClaim
	for _, obj := range objects {
		if claim, ok := obj.(*resourcev1.ResourceClaim); ok && claim.Namespace == pod.Namespace {
			claims = append(claims, claim)
		}
	}
	return claims
}

// podsOfSlice returns the pods that use a device of the pool of a slice: a slice of a new generation replaces the others.
func (c *reconciler) podsOfSlice(obj any) []cache.ObjectName {
	slice, ok := obj.(*resourcev1.ResourceSlice)
	if !ok {
		return nil
	}
	return c.cachedPodsUsing(func(d resourcev1.DeviceRequestAllocationResult) bool {
		return d.Driver == slice.Spec.Driver && d.Pool == slice.Spec.Pool.Name
	})
}

func (c *reconciler) podsOfRule(obj any) []cache.ObjectName {
	rule, ok := obj.(*resourcev1.DeviceTaintRule)
	if !ok {
		return nil
	}
	return c.cachedPodsUsing(func(d resourcev1.DeviceRequestAllocationResult) bool {
		return selects(rule, d.Driver, d.Pool, d.Device)
	})
}

func (c *reconciler) cachedPodsUsing(isOne func(resourcev1.DeviceRequestAllocationResult) bool) []cache.ObjectName {
	claims, err := c.claims.List(labels.Everything())
	if err != nil {
		return nil // a cache always answers
	}
	return podsUsing(claims, isOne)
}

// podsUsing returns the pods that use at least one device for which isOne is true.
func podsUsing(claims []*resourcev1.ResourceClaim, isOne func(resourcev1.DeviceRequestAllocationResult) bool) (keys []cache.ObjectName) {
	for _, claim := range claims {
		if claim.Status.Allocation != nil && slices.ContainsFunc(claim.Status.Allocation.Devices.Results, isOne) {
			keys = append(keys, consumers(claim)...)
		}
	}
	return keys
}

// rulesOfClaim returns the rules about a device of a claim.
func (c *reconciler) rulesOfClaim(obj any) []cache.ObjectName {
	claim, ok := obj.(*resourcev1.ResourceClaim)
	if !ok || claim.Status.Allocation == nil {
		return nil
	}
	rules, err := c.rules.List(labels.Everything())
	if err != nil {
		return nil // a cache always answers
	}
	var keys []cache.ObjectName
	for _, rule := range rules {
		if slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(d resourcev1.DeviceRequestAllocationResult) bool {
			return selects(rule, d.Driver, d.Pool, d.Device)
		}) {
			keys = append(keys, cache.MetaObjectToName(rule))
		}
	}
	return keys
}

// rulesOfPod returns the rules about a device that a pod uses.
func (c *reconciler) rulesOfPod(obj any) []cache.ObjectName {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	var keys []cache.ObjectName
	for _, claim := range c.reserved(pod) {
		keys = append(keys, c.rulesOfClaim(claim)...)
	}
	return keys
}

// cluster returns the slices and rules in the caches.
func (c *reconciler) cluster() (Cluster, error) {
	published, err := c.slices.List(labels.Everything())
	if err != nil {
		return Cluster{}, err
	}
	rules, err := c.rules.List(labels.Everything())
	return Cluster{Slices: published, Rules: rules}, err
}

// reconcilePod evicts a pod if its time has come.
func (c *reconciler) reconcilePod(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	pod, err := c.pods.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	cluster, err := c.cluster()
	if err != nil {
		return 0, err
	}
	now := c.clock.Now()
	eviction := cluster.Decide(pod, c.reserved(pod), now)
	if eviction.IsNeeded && !eviction.At.After(now) {
		if eviction, err = c.confirm(ctx, cluster, pod, eviction, now); err != nil {
			return 0, err
		}
	}
	if !eviction.IsNeeded {
		return 0, nil
	}
	if left := eviction.At.Sub(now); left > 0 {
		return left, nil
	}
	if err := c.evict(ctx, pod, now); err != nil {
		return 0, controller.IgnoreNotFound(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rule := range eviction.Rules() {
		c.evicted[rule]++
	}
	return 0, nil
}

// confirm decides again, with live reads of the claims, rules and slices. The caches may show a taint that was removed
// before the device was allocated. Their next events bring the pod back.
func (c *reconciler) confirm(ctx context.Context, cluster Cluster, pod *corev1.Pod, e Eviction, now time.Time) (Eviction, error) {
	live, err := c.live(ctx, cluster, e)
	if err != nil {
		return Eviction{}, err
	}
	var current []*resourcev1.ResourceClaim
	for _, known := range c.reserved(pod) {
		claim, err := c.client.ResourceV1().ResourceClaims(known.Namespace).Get(ctx, known.Name, metav1.GetOptions{})
		if current, err = ifThere(current, claim, err); err != nil {
			return Eviction{}, fmt.Errorf("read ResourceClaim %s/%s: %w", known.Namespace, known.Name, err)
		}
	}
	return live.Decide(pod, current, now), nil
}

// live returns the cluster with live reads of the rules and slices that an eviction is for, without other rules.
func (c *reconciler) live(ctx context.Context, cluster Cluster, e Eviction) (Cluster, error) {
	live := Cluster{Slices: slices.Clone(cluster.Slices)}
	read := map[types.UID]bool{}
	for _, taint := range e.Taints {
		if known := taint.Rule; known != nil && !read[known.UID] {
			read[known.UID] = true
			rule, err := c.client.ResourceV1().DeviceTaintRules().Get(ctx, known.Name, metav1.GetOptions{})
			if live.Rules, err = ifThere(live.Rules, rule, err); err != nil {
				return live, fmt.Errorf("read DeviceTaintRule %s: %w", known.Name, err)
			}
		}
		if known := taint.Slice; known != nil && !read[known.UID] {
			read[known.UID] = true
			live.Slices = slices.DeleteFunc(live.Slices, func(s *resourcev1.ResourceSlice) bool { return s.UID == known.UID })
			slice, err := c.client.ResourceV1().ResourceSlices().Get(ctx, known.Name, metav1.GetOptions{})
			if live.Slices, err = ifThere(live.Slices, slice, err); err != nil {
				return live, fmt.Errorf("read ResourceSlice %s: %w", known.Name, err)
			}
		}
	}
	return live, nil
}

// ifThere appends an object that was read, unless it is gone.
func ifThere[T any](to []T, obj T, err error) ([]T, error) {
	switch {
	case apierrors.IsNotFound(err):
		return to, nil
	case err != nil:
		return to, err
	}
	return append(to, obj), nil
}

// evict marks a pod, and deletes it with its own grace period: its node shuts it down.
func (c *reconciler) evict(ctx context.Context, pod *corev1.Pod, now time.Time) error {
	marked := pod.DeepCopy()
	pods.SetCondition(marked, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now),
		ObservedGeneration: marked.Generation, Reason: "DeletionByDeviceTaintManager", Message: "Device Taint manager: deleting due to NoExecute taint",
	})
	marked, err := c.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, marked, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("mark pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c.events.Event(pod, corev1.EventTypeNormal, "DeviceTaintManagerEviction", "Marking for deletion")
	err = c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &marked.UID, ResourceVersion: &marked.ResourceVersion},
	})
	if err != nil {
		return fmt.Errorf("evict pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// reconcileRule updates the condition of a rule.
func (c *reconciler) reconcileRule(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	rule, err := c.rules.Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.forget()
		return 0, nil
	}
	if err != nil || IsFinal(rule) {
		return 0, err
	}
	now := c.clock.Now()
	before := conditionOf(rule)
	if before != nil && before.ObservedGeneration == rule.Generation {
		if left := before.LastTransitionTime.Add(statusPeriod).Sub(now); left > 0 {
			return left, nil
		}
	}
	extent, err := c.extent(ctx, rule, now)
	if err != nil {
		return 0, err
	}
	condition := DecideStatus(rule, extent)
	var again time.Duration
	if condition.Status == metav1.ConditionTrue {
		again = statusPeriod // pods leave
	}
	if before != nil {
		condition.LastTransitionTime = before.LastTransitionTime
		if *before == condition {
			return again, nil
		}
	}
	condition.LastTransitionTime = metav1.NewTime(now)
	changed := rule.DeepCopy()
	meta.RemoveStatusCondition(&changed.Status.Conditions, condition.Type)
	changed.Status.Conditions = append(changed.Status.Conditions, condition)
	if _, err := c.client.ResourceV1().DeviceTaintRules().UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
		return 0, controller.IgnoreNotFound(fmt.Errorf("update the status of DeviceTaintRule %s: %w", rule.Name, err))
	}
	return again, nil
}

// extent counts the devices and pods that a rule selects.
func (c *reconciler) extent(ctx context.Context, rule *resourcev1.DeviceTaintRule, now time.Time) (Extent, error) {
	cluster, err := c.cluster()
	if err != nil {
		return Extent{}, err
	}
	users, err := c.usersFor(ctx, rule)
	if err != nil {
		return Extent{}, err
	}
	var e Extent
	c.mu.Lock()
	e.Evicted = c.evicted[rule.UID]
	c.mu.Unlock()
	if rule.Spec.Taint.Effect == resourcev1.DeviceTaintEffectNone {
		cluster = cluster.WithEffect(rule)
		e.Published, e.Allocated = cluster.Selected(rule, users.claims)
	}
	namespaces := map[string]bool{}
	asked := map[cache.ObjectName]bool{}
	for _, key := range podsUsing(users.claims, func(d resourcev1.DeviceRequestAllocationResult) bool {
		return selects(rule, d.Driver, d.Pool, d.Device)
	}) {
		if asked[key] {
			continue
		}
		asked[key] = true
		pod, err := users.pod(key)
		if err != nil {
			return Extent{}, err
		}
		if pod != nil && slices.Contains(cluster.Decide(pod, users.reserved(pod), now).Rules(), rule.UID) {
			e.Pods++
			namespaces[key.Namespace] = true
		}
	}
	e.Namespaces = len(namespaces)
	return e, nil
}

// forget drops the counts of rules that are gone.
func (c *reconciler) forget() {
	rules, err := c.rules.List(labels.Everything())
	if err != nil {
		return // a cache always answers
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for uid := range c.evicted {
		if !slices.ContainsFunc(rules, func(r *resourcev1.DeviceTaintRule) bool { return r.UID == uid }) {
			delete(c.evicted, uid)
		}
	}
}
