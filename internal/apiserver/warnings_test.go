package apiserver_test

import (
	"slices"
	"strings"
	"sync"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// warned collects the warnings in responses.
type warned struct {
	mu   sync.Mutex
	text []string // guarded by mu
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warned) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, text)
}

func (w *warned) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.text = nil }()
	return w.text
}

// A deletion of a Job without a policy keeps its pods, and warns the client of that once.
func TestDeletionOfJobsWarnsOfOrphans(t *testing.T) {
	t.Parallel()
	s := sharedServer(t)
	heard := &warned{}
	config := rest.CopyConfig(s.config)
	config.WarningHandler = heard
	client := typed(t, config).BatchV1()
	create := func(namespace string, names ...string) {
		t.Helper()
		for _, name := range names {
			_, err := client.Jobs(namespace).Create(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}}},
			}}}, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
		}
		heard.take()
	}
	for name, test := range map[string]struct {
		options metav1.DeleteOptions
		want    int
	}{
		"no policy":          {metav1.DeleteOptions{}, 1},
		"no policy, dry run": {metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}, 1},
		"background":         {*policy(metav1.DeletePropagationBackground), 0},
		"foreground":         {*policy(metav1.DeletePropagationForeground), 0},
		"orphan":             {*policy(metav1.DeletePropagationOrphan), 0},
		"orphanDependents":   {metav1.DeleteOptions{OrphanDependents: new(true)}, 0},
	} {
		namespace := s.namespace(t) // deleted objects stay: no collector runs
		jobs := client.Jobs(namespace)
		create(namespace, "one", "two")
		check := func(what string) {
			t.Helper()
			got := heard.take()
			if len(got) != test.want || slices.ContainsFunc(got, func(w string) bool {
				return !strings.HasPrefix(w, "child pods are preserved by default when jobs are deleted; ")
			}) {
				t.Errorf("%s of %s: %q", what, name, got)
			}
		}
		if err := jobs.Delete(t.Context(), "one", test.options); err != nil {
			t.Fatal(err)
		}
		check("DELETE")
		if err := jobs.DeleteCollection(t.Context(), test.options, metav1.ListOptions{FieldSelector: "metadata.name=two"}); err != nil {
			t.Fatal(err)
		}
		check("DELETE of the collection")
	}
}
