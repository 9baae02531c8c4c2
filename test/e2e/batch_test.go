package e2e

import (
	"fmt"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// batch is the control plane of the tests of jobs and cron jobs, with all controllers and a
// simulated node. Each test has a namespace of its own.
var batch struct {
	once   sync.Once
	plane  *plane
	client kubernetes.Interface
	err    error
}

func startBatch() {
	if batch.plane, batch.err = start("--ephemeral", "--secure-port=0"); batch.err != nil {
		return
	}
	config, err := clientcmd.BuildConfigFromFlags("", batch.plane.kubeconfig)
	if err != nil {
		batch.err = err
		return
	}
	config.QPS = -1
	batch.client, batch.err = kubernetes.NewForConfig(config)
}

// batchNamespace creates a namespace for one test on the control plane for jobs.
func batchNamespace(t *testing.T) string {
	t.Helper()
	if batch.once.Do(startBatch); batch.err != nil {
		t.Fatal(batch.err)
	}
	ns, err := batch.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "batch-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// podTemplate makes pods that run, or that succeed or fail at once, as the annotations of the
// simulated node say.
func podTemplate(fate string) corev1.PodTemplateSpec {
	annotations := map[string]map[string]string{
		"run":     {"simulated.coppice.dev/term-exit-code": "143"}, // a program that ends by TERM has failed
		"succeed": {"simulated.coppice.dev/exit-after": "0s"},
		"fail":    {"simulated.coppice.dev/exit-after": "0s", "simulated.coppice.dev/exit-code": "1"},
	}
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations[fate]},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}
}

func jobOf(name, fate string, changes ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: podTemplate(fate)}}
	for _, change := range changes {
		change(job)
	}
	return job
}

func createJob(t *testing.T, ns string, job *batchv1.Job) *batchv1.Job {
	t.Helper()
	created, err := batch.client.BatchV1().Jobs(ns).Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// waitForJob waits until is returns nothing; is returns the missing part of a job.
func waitForJob(t *testing.T, ns, name string, is func(*batchv1.Job) string) *batchv1.Job {
	t.Helper()
	var job *batchv1.Job
	eventually.Agrees(t, func() string {
		var err error
		if job, err = batch.client.BatchV1().Jobs(ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if missing := is(job); missing != "" {
			return fmt.Sprintf("%s: %+v", missing, job.Status)
		}
		return ""
	})
	return job
}

func hasCondition(kind batchv1.JobConditionType) func(*batchv1.Job) string {
	return func(job *batchv1.Job) string {
		for _, c := range job.Status.Conditions {
			if c.Type == kind && c.Status == corev1.ConditionTrue {
				return ""
			}
		}
		return "not " + string(kind)
	}
}

func podsOf(t *testing.T, ns string) []corev1.Pod {
	t.Helper()
	list, err := batch.client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// waitForPods waits until there are n pods for which is holds, and no others.
func waitForPods(t *testing.T, ns string, n int, is func(corev1.Pod) bool) []corev1.Pod {
	t.Helper()
	var list []corev1.Pod
	eventually.Agrees(t, func() string {
		list = podsOf(t, ns)
		said := ""
		for _, pod := range list {
			if !is(pod) {
				said += fmt.Sprintf(" %s is %s, finalizers %v, owners %v, deleted %v;", pod.Name, pod.Status.Phase, pod.Finalizers, pod.OwnerReferences, pod.DeletionTimestamp)
			}
		}
		if said != "" || len(list) != n {
			return fmt.Sprintf("%d pods, want %d:%s", len(list), n, said)
		}
		return ""
	})
	return list
}

func isRunning(pod corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil
}
