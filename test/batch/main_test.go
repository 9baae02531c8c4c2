// Package batch runs jobs and cron jobs on a whole control plane. The only part that is
// played is the node: kubelet_test.go.
package batch

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/coppice-dev/coppice/internal/system"
)

// patience is how long a test waits for what must happen; what goes well takes a small
// part of it.
const patience = 3 * time.Minute

// client is the administrator of the control plane that all tests share; they keep apart
// by namespaces.
var client kubernetes.Interface

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan *rest.Config, 1), make(chan error, 1)
	go func() {
		ended <- system.Run(ctx, system.Options{Ephemeral: true, AuditPath: system.NoAuditLog, Version: "v1.37.2", Log: slog.New(slog.DiscardHandler)},
			func(p system.Plane) { ready <- p.Config })
	}()
	code := func() int {
		select {
		case config := <-ready:
			var err error
			if client, err = kubernetes.NewForConfig(config); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		case err := <-ended:
			fmt.Fprintln(os.Stderr, "no control plane:", err)
			return 1
		}
		node := make(chan error, 1)
		nodeCtx, stopNode := context.WithCancel(ctx)
		go func() { node <- runKubelet(nodeCtx) }()
		code := m.Run()
		stopNode()
		if err := <-node; err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}()
	stop()
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// team is a namespace of a test's own.
func team(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "batch-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return ns.Name
}

// eventually waits until is returns nothing to wait for.
func eventually(t *testing.T, is func() string) {
	t.Helper()
	missing := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if missing = is(); missing == "" {
			return
		}
	}
	t.Fatalf("after %v: %s", patience, missing)
}

// template makes pods that the node treats as their annotation says.
func template(fate string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{fateKey: fate}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "i"}}},
	}
}

func jobOf(name, fate string, changes ...func(*batchv1.Job)) *batchv1.Job {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: template(fate)}}
	for _, change := range changes {
		change(job)
	}
	return job
}

func create(t *testing.T, ns string, job *batchv1.Job) *batchv1.Job {
	t.Helper()
	created, err := client.BatchV1().Jobs(ns).Create(t.Context(), job, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return created
}

// waitForJob waits until a job is as is says, which returns what is missing.
func waitForJob(t *testing.T, ns, name string, is func(*batchv1.Job) string) *batchv1.Job {
	t.Helper()
	var job *batchv1.Job
	eventually(t, func() string {
		var err error
		if job, err = client.BatchV1().Jobs(ns).Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		if missing := is(job); missing != "" {
			return fmt.Sprintf("%s: %+v", missing, job.Status)
		}
		return ""
	})
	return job
}

func has(kind batchv1.JobConditionType) func(*batchv1.Job) string {
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
	list, err := client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// waitForPods waits until there are n pods of which is holds, and no others.
func waitForPods(t *testing.T, ns string, n int, is func(corev1.Pod) bool) []corev1.Pod {
	t.Helper()
	var list []corev1.Pod
	eventually(t, func() string {
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
