package job

import (
	"fmt"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/coppice-dev/coppice/internal/controller/pods"
)

// indexVariable is the environment variable that holds a container's index.
const indexVariable = "JOB_COMPLETION_INDEX"

// podOf returns a pod of the job. PodControl adds the owner reference.
func podOf(job *batchv1.Job, of newPod) *corev1.Pod {
	pod := pods.FromTemplate(&job.Spec.Template, job.Namespace)
	pod.GenerateName = pods.NamePrefix(job.Name)
	if !isTracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if of.Index == unindexed {
		return pod
	}
	index := strconv.Itoa(of.Index)
	pod.GenerateName = namePrefix(job.Name, index)
	note(&pod.Labels, batchv1.JobCompletionIndexAnnotation, index)
	note(&pod.Annotations, batchv1.JobCompletionIndexAnnotation, index)
	if isPerIndex(job) {
		note(&pod.Annotations, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(of.Failures))
		if of.Ignored > 0 {
			note(&pod.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(of.Ignored))
		}
	}
	// If the job's name is not a valid host name, its pods have none.
	if host := job.Name + "-" + index; len(validation.IsDNS1123Label(host)) == 0 {
		pod.Spec.Hostname = host
	}
	for i := range pod.Spec.InitContainers {
		setIndexVariable(&pod.Spec.InitContainers[i].Env)
	}
	for i := range pod.Spec.Containers {
		setIndexVariable(&pod.Spec.Containers[i].Env)
	}
	return pod
}

// namePrefix is pods.NamePrefix with an index that is never cut off.
func namePrefix(job, index string) string {
	longest := len(pods.NamePrefix(strings.Repeat("x", validation.DNS1123LabelMaxLength))) - len("-"+index+"-")
	return job[:min(len(job), longest)] + "-" + index + "-"
}

func note(notes *map[string]string, key, value string) {
	if *notes == nil {
		*notes = map[string]string{}
	}
	(*notes)[key] = value
}

// setIndexVariable adds the variable, unless there is one of that name.
func setIndexVariable(env *[]corev1.EnvVar) {
	for _, v := range *env {
		if v.Name == indexVariable {
			return
		}
	}
	*env = append(*env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation)},
	}})
}
