package replicaset

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

// object is a ReplicaSet or ReplicationController as the cache shows it.
type object struct {
	controller.Owner
	Set
	on runtime.Object
	// status returns a function that writes the status and returns the new resourceVersion; nil if the status equals the
	// one in the cache.
	status func(counts Counts, failure *failure) writer
}

type writer func(context.Context) (resourceVersion string, err error)

// failure is the reason why pods could not be created or deleted.
type failure struct{ reason, message string }

const conditionFailure = "ReplicaFailure"

// kind abstracts over the two kinds.
type kind interface {
	name() string
	groupVersionKind() schema.GroupVersionKind
	informer() cache.SharedIndexInformer
	// get returns nil for an object that is gone.
	get(cache.ObjectName, func() time.Time) (*object, error)
	// matching returns the objects that may adopt a pod.
	matching(*corev1.Pod) []cache.ObjectName
}

type replicaSets struct {
	client kubernetes.Interface
	cached cache.SharedIndexInformer
	lister appslisters.ReplicaSetLister
}

func newReplicaSets(client kubernetes.Interface, shared *controller.Informers) replicaSets {
	source := shared.ReplicaSets
	return replicaSets{client, source.Informer(), source.Lister()}
}

func (replicaSets) name() string { return "replicaset-controller" }
func (replicaSets) groupVersionKind() schema.GroupVersionKind {
	return appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
}
func (k replicaSets) informer() cache.SharedIndexInformer { return k.cached }

func (k replicaSets) get(key cache.ObjectName, now func() time.Time) (*object, error) {
	rs, err := k.lister.ReplicaSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil // gone
	}
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(rs.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector: %w", err)
	}
	return &object{
		Owner: controller.Owner{Object: rs, Kind: k.groupVersionKind(), Selector: selector, Live: func(ctx context.Context) (metav1.Object, error) {
			return k.client.AppsV1().ReplicaSets(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
		}},
		Set: Set{
			Replicas: replicas(rs.Spec.Replicas), Template: &rs.Spec.Template,
			MinReady: time.Duration(rs.Spec.MinReadySeconds) * time.Second, Ending: rs.DeletionTimestamp != nil,
			Reported: Counts{Replicas: rs.Status.Replicas, Ready: rs.Status.ReadyReplicas, Available: rs.Status.AvailableReplicas},
		},
		on: rs,
		status: func(c Counts, failed *failure) writer {
			status := appsv1.ReplicaSetStatus{
				Replicas: c.Replicas, FullyLabeledReplicas: c.FullyLabeled, ReadyReplicas: c.Ready, AvailableReplicas: c.Available,
				TerminatingReplicas: &c.Terminating, ObservedGeneration: rs.Generation, Conditions: slices.Clone(rs.Status.Conditions),
			}
			i := slices.IndexFunc(status.Conditions, func(c appsv1.ReplicaSetCondition) bool { return c.Type == conditionFailure })
			switch {
			case failed == nil && i >= 0:
				status.Conditions = slices.Delete(status.Conditions, i, i+1)
			case failed != nil && i < 0:
				status.Conditions = append(status.Conditions, appsv1.ReplicaSetCondition{
					Type: conditionFailure, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now()),
					Reason: failed.reason, Message: failed.message,
				})
			}
			if equality.Semantic.DeepEqual(status, rs.Status) {
				return nil
			}
			return func(ctx context.Context) (string, error) {
				changed := rs.DeepCopy()
				changed.Status = status
				written, err := k.client.AppsV1().ReplicaSets(key.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
				if err != nil {
					return "", err
				}
				return written.ResourceVersion, nil
			}
		},
	}, nil
}

func (k replicaSets) matching(pod *corev1.Pod) []cache.ObjectName {
	list, err := k.lister.ReplicaSets(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	return controller.MatchingOwners(pod, list, func(rs *appsv1.ReplicaSet) *metav1.LabelSelector { return rs.Spec.Selector })
}

type replicationControllers struct {
	client kubernetes.Interface
	cached cache.SharedIndexInformer
	lister corelisters.ReplicationControllerLister
}

func newReplicationControllers(client kubernetes.Interface, shared *controller.Informers) replicationControllers {
	source := shared.ReplicationControllers
	return replicationControllers{client, source.Informer(), source.Lister()}
}

func (replicationControllers) name() string { return "replication-controller" }
func (replicationControllers) groupVersionKind() schema.GroupVersionKind {
	return corev1.SchemeGroupVersion.WithKind("ReplicationController")
}
func (k replicationControllers) informer() cache.SharedIndexInformer { return k.cached }

func (k replicationControllers) get(key cache.ObjectName, now func() time.Time) (*object, error) {
	rc, err := k.lister.ReplicationControllers(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil // gone
	}
	if err != nil {
		return nil, err
	}
	return &object{
		Owner: controller.Owner{
			Object: rc, Kind: k.groupVersionKind(), Selector: labels.SelectorFromSet(rc.Spec.Selector),
			Live: func(ctx context.Context) (metav1.Object, error) {
				return k.client.CoreV1().ReplicationControllers(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
			},
		},
		Set: Set{
			Replicas: replicas(rc.Spec.Replicas), Template: rc.Spec.Template,
			MinReady: time.Duration(rc.Spec.MinReadySeconds) * time.Second, Ending: rc.DeletionTimestamp != nil,
			Reported: Counts{Replicas: rc.Status.Replicas, Ready: rc.Status.ReadyReplicas, Available: rc.Status.AvailableReplicas},
		},
		on: rc,
		status: func(c Counts, failed *failure) writer {
			status := corev1.ReplicationControllerStatus{
				Replicas: c.Replicas, FullyLabeledReplicas: c.FullyLabeled, ReadyReplicas: c.Ready, AvailableReplicas: c.Available,
				ObservedGeneration: rc.Generation, Conditions: slices.Clone(rc.Status.Conditions),
			}
			i := slices.IndexFunc(status.Conditions, func(c corev1.ReplicationControllerCondition) bool { return c.Type == conditionFailure })
			switch {
			case failed == nil && i >= 0:
				status.Conditions = slices.Delete(status.Conditions, i, i+1)
			case failed != nil && i < 0:
				status.Conditions = append(status.Conditions, corev1.ReplicationControllerCondition{
					Type: conditionFailure, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now()),
					Reason: failed.reason, Message: failed.message,
				})
			}
			if equality.Semantic.DeepEqual(status, rc.Status) {
				return nil
			}
			return func(ctx context.Context) (string, error) {
				changed := rc.DeepCopy()
				changed.Status = status
				written, err := k.client.CoreV1().ReplicationControllers(key.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
				if err != nil {
					return "", err
				}
				return written.ResourceVersion, nil
			}
		},
	}, nil
}

func (k replicationControllers) matching(pod *corev1.Pod) []cache.ObjectName {
	list, err := k.lister.ReplicationControllers(pod.Namespace).List(labels.Everything())
	if err != nil {
		return nil // a cache returns no errors
	}
	return controller.MatchingOwners(pod, list, func(rc *corev1.ReplicationController) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}
	})
}

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}
