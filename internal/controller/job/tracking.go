package job

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/coppice-dev/coppice/internal/controller"
)

func kind() schema.GroupVersionKind { return batchv1.SchemeGroupVersion.WithKind("Job") }

// tracking returns the controller that removes the tracking finalizer from pods that no job
// counts any more: their job has finished, is gone, or was deleted and has orphaned them.
// Without it such pods could never be removed.
func (c *reconciler) tracking(jobs cache.SharedIndexInformer, source controller.SharedInformer[corelisters.PodLister]) *controller.Controller {
	lister := source.Lister()
	return &controller.Controller{
		Name: "job-tracking-controller", Workers: workers,
		Reconcile: func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
			return 0, c.untrackOrphan(ctx, lister, key)
		},
		Sources: []controller.Source{
			{Informer: source.Informer(), Keys: func(obj any) []cache.ObjectName {
				if pod, ok := obj.(*corev1.Pod); ok && isTracked(pod) {
					return []cache.ObjectName{cache.MetaObjectToName(pod)}
				}
				return nil
			}},
			{Informer: jobs, Keys: c.uncounted},
		},
	}
}

// uncounted returns the tracked pods of a job that no longer counts them.
func (c *reconciler) uncounted(obj any) []cache.ObjectName {
	job, ok := obj.(*batchv1.Job)
	if !ok || c.counts(job.Namespace, job.Name, job.UID) {
		return nil
	}
	var keys []cache.ObjectName
	for _, pod := range c.pods.ControlledBy(job.UID) {
		if isTracked(pod) {
			keys = append(keys, cache.MetaObjectToName(pod))
		}
	}
	return keys
}

// counts reports whether the cache has that job and the job still counts its pods. If another
// controller manages a job, that controller also removes the finalizers of its pods.
func (c *reconciler) counts(namespace, name string, uid types.UID) bool {
	job, err := c.jobs.Jobs(namespace).Get(name)
	return err == nil && job.UID == uid && stillCounts(job)
}

func stillCounts(job *batchv1.Job) bool {
	return finished(job) == nil || job.Spec.ManagedBy != nil && *job.Spec.ManagedBy != batchv1.JobControllerName
}

// untrackOrphan removes the finalizer from a pod that no job counts. The cache of jobs may
// lag behind the cache of pods, and a finalizer removed by mistake cannot be restored, so the
// job is read live.
func (c *reconciler) untrackOrphan(ctx context.Context, lister corelisters.PodLister, key cache.ObjectName) error {
	pod, err := lister.Pods(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil || !isTracked(pod) {
		return err
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner != nil && owner.Kind == kind().Kind {
		if c.counts(pod.Namespace, owner.Name, owner.UID) {
			return nil
		}
		job, err := c.client.BatchV1().Jobs(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		switch {
		case err != nil && !apierrors.IsNotFound(err):
			return fmt.Errorf("read the job of pod %s/%s: %w", pod.Namespace, pod.Name, err)
		case err == nil && job.UID == owner.UID && stillCounts(job):
			return nil
		}
	}
	if _, err := c.removeFinalizer(ctx, pod, pod.ResourceVersion); controller.IgnoreNotFound(err) != nil {
		return err
	}
	return nil
}
