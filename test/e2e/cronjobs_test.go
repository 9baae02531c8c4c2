package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// cronJobDue makes a CronJob that runs once a year and has missed a run: that run is due, and no
// other one becomes due while a test runs.
func cronJobDue(t *testing.T, ns, fate string, changes ...func(*batchv1.CronJob)) *batchv1.CronJob {
	t.Helper()
	far := time.Now().AddDate(0, 6, 0) // at any time of the year
	cron := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: batchv1.CronJobSpec{
		Schedule: fmt.Sprintf("0 0 1 %d *", far.Month()), TimeZone: new("Etc/UTC"),
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: podTemplate(fate)}},
	}}
	for _, change := range changes {
		change(cron)
	}
	made, err := batch.client.BatchV1().CronJobs(ns).Create(t.Context(), cron, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Appendf(nil, `{"status":{"lastScheduleTime":%q}}`, time.Now().AddDate(-2, 0, 0).UTC().Format(time.RFC3339))
	if _, err := batch.client.BatchV1().CronJobs(ns).Patch(t.Context(), "c", types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	return made
}

func waitForCron(t *testing.T, ns string, is func(*batchv1.CronJob) string) {
	t.Helper()
	eventually.Agrees(t, func() string {
		cron, err := batch.client.BatchV1().CronJobs(ns).Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if missing := is(cron); missing != "" {
			return fmt.Sprintf("%s: %+v", missing, cron.Status)
		}
		return ""
	})
}

func jobsIn(t *testing.T, ns string) []batchv1.Job {
	t.Helper()
	list, err := batch.client.BatchV1().Jobs(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

func TestCronJobRuns(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	cron := cronJobDue(t, ns, "succeed")
	waitForCron(t, ns, func(c *batchv1.CronJob) string {
		if c.Status.LastSuccessfulTime == nil || len(c.Status.Active) > 0 || time.Since(c.Status.LastScheduleTime.Time) > 366*24*time.Hour {
			return "it has not run"
		}
		return ""
	})
	jobs := jobsIn(t, ns)
	if len(jobs) != 1 {
		t.Fatalf("%d jobs", len(jobs))
	}
	job := jobs[0]
	scheduled, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil || job.Name != fmt.Sprintf("c-%d", scheduled.Unix()/60) || !metav1.IsControlledBy(&job, cron) {
		t.Errorf("%s scheduled for %v (%v), owned by %v", job.Name, scheduled, err, job.OwnerReferences)
	}
	eventually.Agrees(t, func() string { return missingEvents(t, ns, "SuccessfulCreate", "SawCompletedJob") })
	// Finished jobs are deleted when the history limit is lowered.
	patch := []byte(`{"spec":{"successfulJobsHistoryLimit":0}}`)
	if _, err := batch.client.BatchV1().CronJobs(ns).Patch(t.Context(), "c", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForPods(t, ns, 0, isFree)
	if jobs := jobsIn(t, ns); len(jobs) > 0 {
		t.Errorf("%d jobs are left, or were made again", len(jobs))
	}
}

// kubectl create job --from makes a job that the CronJob owns: it is listed as active, prevents
// other runs where concurrency is forbidden, and is history afterwards.
func TestJobFromACronJob(t *testing.T) {
	t.Parallel()
	ns := batchNamespace(t)
	cron := cronJobDue(t, ns, "run", func(c *batchv1.CronJob) {
		c.Spec.ConcurrencyPolicy, c.Spec.Suspend = batchv1.ForbidConcurrent, new(true)
		c.Spec.SuccessfulJobsHistoryLimit = new(int32(0))
	})
	byHand := jobOf("by-hand", "run", func(j *batchv1.Job) {
		j.Annotations = map[string]string{"cronjob.kubernetes.io/instantiate": "manual"}
		j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))}
	})
	createJob(t, ns, byHand)
	waitForCron(t, ns, func(c *batchv1.CronJob) string {
		if len(c.Status.Active) != 1 || c.Status.Active[0].Name != "by-hand" {
			return "the job is not seen"
		}
		return ""
	})
	patch := []byte(`{"spec":{"suspend":false}}`)
	if _, err := batch.client.BatchV1().CronJobs(ns).Patch(t.Context(), "c", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string { return missingEvents(t, ns, "JobAlreadyActive") })
	if jobs := jobsIn(t, ns); len(jobs) != 1 {
		t.Errorf("%d jobs", len(jobs))
	}
	for _, pod := range waitForPods(t, ns, 1, isRunning) {
		ended := []byte(`{"status":{"phase":"Succeeded"}}`)
		if _, err := batch.client.CoreV1().Pods(ns).Patch(t.Context(), pod.Name, types.MergePatchType, ended, metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	// The scheduled one had to wait; the other is history.
	eventually.Agrees(t, func() string {
		if jobs := jobsIn(t, ns); len(jobs) != 1 || !strings.HasPrefix(jobs[0].Name, "c-") {
			return fmt.Sprintf("%d jobs", len(jobs))
		}
		return ""
	})
}

// A CronJob, its job and the job's pods, deleted from the top.
func TestCronJobIsDeleted(t *testing.T) {
	t.Parallel()
	for policy, left := range map[metav1.DeletionPropagation]int{
		metav1.DeletePropagationBackground: 0, metav1.DeletePropagationForeground: 0, metav1.DeletePropagationOrphan: 1,
	} {
		t.Run(string(policy), func(t *testing.T) {
			t.Parallel()
			ns := batchNamespace(t)
			cronJobDue(t, ns, "run")
			waitForPods(t, ns, 1, isRunning)
			if err := batch.client.BatchV1().CronJobs(ns).Delete(t.Context(), "c", metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
				t.Fatal(err)
			}
			eventually.Agrees(t, func() string {
				_, err := batch.client.BatchV1().CronJobs(ns).Get(t.Context(), "c", metav1.GetOptions{})
				if jobs := jobsIn(t, ns); !apierrors.IsNotFound(err) || len(jobs) != left || left > 0 && len(jobs[0].OwnerReferences) > 0 {
					return fmt.Sprintf("%v, %d jobs", err, len(jobs))
				}
				return ""
			})
			// An orphaned job continues as before.
			waitForPods(t, ns, left, func(pod corev1.Pod) bool { return isRunning(pod) && !isFree(pod) && len(pod.OwnerReferences) == 1 })
		})
	}
}
