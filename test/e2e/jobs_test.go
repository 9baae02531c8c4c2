package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func sized(completions, parallelism int32) func(*batchv1.Job) {
	return func(j *batchv1.Job) { j.Spec.Completions, j.Spec.Parallelism = &completions, &parallelism }
}

// isFree reports whether no finalizer holds a pod.
func isFree(pod corev1.Pod) bool { return len(pod.Finalizers) == 0 }

func TestJobCompletes(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("j", "succeed", sized(7, 3)))
	job := waitForJob(t, ns, "j", hasCondition(batchv1.JobComplete))
	s := job.Status
	if s.Succeeded != 7 || s.Failed != 0 || s.Active != 0 || s.CompletionTime == nil || s.StartTime == nil || len(s.UncountedTerminatedPods.Succeeded) > 0 {
		t.Errorf("%+v", s)
	}
	for _, pod := range waitForPods(t, ns, 7, isFree) {
		ref := metav1.GetControllerOf(&pod)
		if ref == nil || ref.UID != job.UID || ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion {
			t.Errorf("%s is owned by %v", pod.Name, pod.OwnerReferences)
		}
		if pod.Labels[batchv1.JobNameLabel] != "j" || pod.Labels[batchv1.ControllerUidLabel] != string(job.UID) {
			t.Errorf("%s has the labels %v", pod.Name, pod.Labels)
		}
	}
	eventually.Agrees(t, func() string { return missingEvents(t, ns, "SuccessfulCreate", "Completed") })
}

func missingEvents(t *testing.T, ns string, reasons ...string) string {
	list, err := batch.client.CoreV1().Events(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range reasons {
		if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return e.Reason == reason }) {
			return "no event " + reason
		}
	}
	return ""
}

func TestIndexedJob(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("j", "succeed", sized(4, 4), func(j *batchv1.Job) { j.Spec.CompletionMode = new(batchv1.IndexedCompletion) }))
	if job := waitForJob(t, ns, "j", hasCondition(batchv1.JobComplete)); job.Status.CompletedIndexes != "0-3" || job.Status.Succeeded != 4 {
		t.Errorf("%+v", job.Status)
	}
	var seen []string
	for _, pod := range waitForPods(t, ns, 4, isFree) {
		index := pod.Labels[batchv1.JobCompletionIndexAnnotation]
		seen = append(seen, index)
		if pod.Annotations[batchv1.JobCompletionIndexAnnotation] != index || pod.Spec.Hostname != "j-"+index || !strings.HasPrefix(pod.Name, "j-"+index+"-") {
			t.Errorf("%s: %v %s", pod.Name, pod.Annotations, pod.Spec.Hostname)
		}
		if env := pod.Spec.Containers[0].Env; len(env) != 1 || env[0].Name != "JOB_COMPLETION_INDEX" {
			t.Errorf("%s: %v", pod.Name, env)
		}
	}
	if slices.Sort(seen); strings.Join(seen, "") != "0123" {
		t.Errorf("indexes %v", seen)
	}
}

func TestIndexesAreGivenUp(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("j", "fail", sized(3, 3), func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.BackoffLimitPerIndex = new(batchv1.IndexedCompletion), new(int32(0))
	}))
	job := waitForJob(t, ns, "j", hasCondition(batchv1.JobFailed))
	if s := job.Status; s.FailedIndexes == nil || *s.FailedIndexes != "0-2" || s.Failed != 3 {
		t.Errorf("%+v", s)
	}
	waitForPods(t, ns, 3, isFree)
}

func TestJobFails(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("j", "fail", func(j *batchv1.Job) { j.Spec.BackoffLimit = new(int32(0)) }))
	job := waitForJob(t, ns, "j", hasCondition(batchv1.JobFailed))
	if s := job.Status; s.Failed != 1 || s.Succeeded != 0 || s.CompletionTime != nil || hasCondition(batchv1.JobFailureTarget)(job) != "" {
		t.Errorf("%+v", s)
	}
	waitForPods(t, ns, 1, isFree)
}

func TestJobRunsOutOfTime(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("j", "run", sized(2, 2), func(j *batchv1.Job) { j.Spec.ActiveDeadlineSeconds = new(int64(1)) }))
	job := waitForJob(t, ns, "j", hasCondition(batchv1.JobFailed))
	for _, c := range job.Status.Conditions {
		if c.Reason != batchv1.JobReasonDeadlineExceeded {
			t.Errorf("%+v", c)
		}
	}
	if job.Status.Failed != 2 {
		t.Errorf("%+v", job.Status)
	}
	waitForPods(t, ns, 0, isFree)
}

func TestJobIsSuspendedAndResumed(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("j", "run", sized(2, 2)))
	waitForPods(t, ns, 2, isRunning)
	suspend := func(is bool) {
		patch := fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, is)
		if _, err := batch.client.BatchV1().Jobs(ns).Patch(t.Context(), "j", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	suspend(true)
	waitForJob(t, ns, "j", hasCondition(batchv1.JobSuspended))
	waitForPods(t, ns, 0, isRunning)
	waitForJob(t, ns, "j", func(j *batchv1.Job) string {
		if j.Status.Active != 0 || j.Status.Failed != 0 || *j.Status.Terminating != 0 {
			return "pods of a suspended job count"
		}
		return ""
	})
	suspend(false)
	waitForPods(t, ns, 2, isRunning)
	waitForJob(t, ns, "j", func(j *batchv1.Job) string {
		if hasCondition(batchv1.JobSuspended)(j) == "" || j.Status.Active != 2 {
			return "not resumed"
		}
		return ""
	})
}

// A pod that is deleted counts as failed, and is not held. Its replacement comes after the
// back-off, which no test waits for.
func TestPodOfAJobIsDeleted(t *testing.T) {
	t.Parallel()
	for _, policy := range []batchv1.PodReplacementPolicy{batchv1.TerminatingOrFailed, batchv1.Failed} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			ns := batchNamespace(t)
			createJob(t, ns, jobOf("j", "run", func(j *batchv1.Job) { j.Spec.PodReplacementPolicy = &policy }))
			first := waitForPods(t, ns, 1, isRunning)[0]
			if err := batch.client.CoreV1().Pods(ns).Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			waitForJob(t, ns, "j", func(j *batchv1.Job) string {
				if j.Status.Failed != 1 || *j.Status.Terminating != 0 {
					return "not counted as failed"
				}
				return ""
			})
			eventually.Agrees(t, func() string {
				if slices.ContainsFunc(podsOf(t, ns), func(pod corev1.Pod) bool { return pod.UID == first.UID }) {
					return "it is there"
				}
				return ""
			})
		})
	}
}

// A job with a manual selector adopts pods that match, tracks them, and releases those that no
// longer match.
func TestJobAdoptsAndReleases(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	orphan := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: map[string]string{"app": "a"}}, Spec: podTemplate("run").Spec}
	if _, err := batch.client.CoreV1().Pods(ns).Create(t.Context(), orphan, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	job := createJob(t, ns, jobOf("j", "run", func(j *batchv1.Job) {
		j.Spec.ManualSelector, j.Spec.Selector = new(true), &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
		j.Spec.Template.Labels = map[string]string{"app": "a"}
	}))
	waitForPods(t, ns, 1, func(pod corev1.Pod) bool {
		return metav1.IsControlledBy(&pod, job) && slices.Contains(pod.Finalizers, batchv1.JobTrackingFinalizer)
	})
	patch := []byte(`{"metadata":{"labels":{"app":"b"}}}`)
	if _, err := batch.client.CoreV1().Pods(ns).Patch(t.Context(), "orphan", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPods(t, ns, 2, func(pod corev1.Pod) bool {
		return metav1.IsControlledBy(&pod, job) == (pod.Name != "orphan") && isFree(pod) == (pod.Name == "orphan")
	})
}

func TestJobExpires(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("j", "succeed", func(j *batchv1.Job) { j.Spec.TTLSecondsAfterFinished = new(int32(0)) }))
	eventually.Agrees(t, func() string {
		if _, err := batch.client.BatchV1().Jobs(ns).Get(t.Context(), "j", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there: %v", err)
		}
		return ""
	})
	waitForPods(t, ns, 0, isFree)
}

// In no case does the job's finalizer hold the pods.
func TestJobIsDeleted(t *testing.T) {
	t.Parallel()
	for policy, left := range map[metav1.DeletionPropagation]int{
		metav1.DeletePropagationBackground: 0, metav1.DeletePropagationForeground: 0, metav1.DeletePropagationOrphan: 2,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			ns := batchNamespace(t)
			createJob(t, ns, jobOf("j", "run", sized(2, 2)))
			waitForPods(t, ns, 2, isRunning)
			if err := batch.client.BatchV1().Jobs(ns).Delete(t.Context(), "j", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			eventually.Agrees(t, func() string {
				if _, err := batch.client.BatchV1().Jobs(ns).Get(t.Context(), "j", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
					return fmt.Sprintf("it is there: %v", err)
				}
				return ""
			})
			waitForPods(t, ns, left, func(pod corev1.Pod) bool { return isRunning(pod) && isFree(pod) && len(pod.OwnerReferences) == 0 })
		})
	}
}

// A job that another controller manages is left alone.
func TestJobOfAnotherManager(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	createJob(t, ns, jobOf("theirs", "run", func(j *batchv1.Job) { j.Spec.ManagedBy = new("example.com/manager") }))
	createJob(t, ns, jobOf("ours", "succeed", func(j *batchv1.Job) { j.Spec.ManagedBy = new(batchv1.JobControllerName) }))
	waitForJob(t, ns, "ours", hasCondition(batchv1.JobComplete))
	waitForJob(t, ns, "theirs", func(j *batchv1.Job) string {
		if j.Status.StartTime != nil || len(j.Status.Conditions) > 0 {
			t.Errorf("%+v", j.Status)
		}
		return ""
	})
	waitForPods(t, ns, 1, isFree)
}
