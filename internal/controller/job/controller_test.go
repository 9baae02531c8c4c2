package job

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/coppice-dev/coppice/internal/controller"
)

func selecting(j *batchv1.Job) {
	j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"job": "j"}}
}

// newController returns the controller of jobs, whose cache shows one job.
func newController(t *testing.T, client *fake.Clientset, job *batchv1.Job) (*controller.Context, *controller.Controller) {
	t.Helper()
	shared, err := controller.NewContext(client, clocktesting.NewFakeClock(now), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c := Controllers(shared)[0]
	if err := shared.Informers.Jobs.Informer().GetIndexer().Add(job); err != nil {
		t.Fatal(err)
	}
	return shared, c
}

// A pod that cannot be deleted, or keeps its finalizer, holds back no other one.
func TestRefusalHoldsBackNoOtherPod(t *testing.T) {
	for name, test := range map[string]struct {
		verb  string
		lines []string
		job   func(*batchv1.Job)
	}{
		"discarded": {"delete", []string{"a free", "b free", "c free"}, func(j *batchv1.Job) { j.Spec.Suspend = new(true) }},
		"deleted":   {"delete", []string{"a", "b", "c"}, condition(batchv1.JobFailureTarget, "PodFailurePolicy")},
		"untracked": {"patch", []string{"a succeeded=1h", "b succeeded=1h", "c succeeded=1h"}, func(*batchv1.Job) {}},
	} {
		t.Run(name, func(t *testing.T) {
			job := jobWith(test.job, func(j *batchv1.Job) {
				j.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"job": "j"}}
			})
			client := fake.NewClientset(job)
			var mu sync.Mutex
			var attempted []string
			client.PrependReactor(test.verb, "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
				pod := action.(interface{ GetName() string }).GetName()
				mu.Lock()
				defer mu.Unlock()
				attempted = append(attempted, pod)
				if pod == "a" {
					return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), pod, errors.New("protected"))
				}
				return true, &corev1.Pod{}, nil
			})
			shared, c := newController(t, client, job)
			for _, line := range test.lines {
				p := pod(t, line)
				p.Labels, p.OwnerReferences = job.Spec.Selector.MatchLabels, []metav1.OwnerReference{*metav1.NewControllerRef(job, kind())}
				if err := shared.Informers.Pods.Informer().GetIndexer().Add(p); err != nil {
					t.Fatal(err)
				}
			}
			_, err := c.Reconcile(t.Context(), cache.MetaObjectToName(job))
			if slices.Sort(attempted); !slices.Equal(attempted, []string{"a", "b", "c"}) || !apierrors.IsForbidden(err) {
				t.Errorf("attempted %q: %v", attempted, err)
			}
		})
	}
}

// The next attempt to delete a surplus pod is about another one.
func TestRefusalChangesTheSurplusPod(t *testing.T) {
	job := jobWith(selecting)
	client := fake.NewClientset(job)
	var attempted []string
	client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		pod := action.(clienttesting.PatchAction).GetName()
		attempted = append(attempted, pod)
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), pod, errors.New("protected"))
	})
	shared, c := newController(t, client, job)
	for _, name := range []string{"a", "b", "c"} {
		p := pod(t, name)
		p.Labels, p.OwnerReferences = job.Spec.Selector.MatchLabels, []metav1.OwnerReference{*metav1.NewControllerRef(job, kind())}
		if err := shared.Informers.Pods.Informer().GetIndexer().Add(p); err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		if _, err := c.Reconcile(t.Context(), cache.MetaObjectToName(job)); !apierrors.IsForbidden(err) {
			t.Error(err)
		}
	}
	if !slices.Equal(attempted, []string{"a", "b", "c", "a"}) {
		t.Errorf("attempted %q", attempted)
	}
}

// R25: a pod that was created and deleted while the watch was down has no event.
func TestR25_LostEventDelaysAJob(t *testing.T) {
	job := jobWith(selecting)
	client := fake.NewClientset(job)
	created := 0
	client.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		created++
		return true, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5"}}, nil
	})
	_, c := newController(t, client, job)
	for _, when := range []string{"after the creation", "before the cache is current"} {
		if again, err := c.Reconcile(t.Context(), cache.MetaObjectToName(job)); again != controller.LostEventPeriod || err != nil || created != 2 {
			t.Errorf("%s: %d pods created, again in %s: %v", when, created, again, err)
		}
	}
}
