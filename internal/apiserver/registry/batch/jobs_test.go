package batch

import (
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// suspended returns a suspended Job that has not started, with changes.
func suspended(changes ...func(*batchv1.Job)) *batchv1.Job {
	j := &batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}}
	j.Spec.Template.Spec = corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}}, Containers: []corev1.Container{{Name: "a", Image: "a"}},
		Affinity: &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}, NodeAffinity: &corev1.NodeAffinity{}},
	}
	for _, change := range changes {
		change(j)
	}
	return j
}

// TestTemplateOfASuspendedJob checks that the nodes and the requests of a suspended Job's pods, and nothing else, can
// change until it starts, and again when it has no active pods.
func TestTemplateOfASuspendedJob(t *testing.T) {
	begun := func(j *batchv1.Job) { j.Status.StartTime = &metav1.Time{} }
	rests := func(j *batchv1.Job) {
		begun(j)
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: corev1.ConditionTrue}}
	}
	alone := func(j *batchv1.Job) { j.Spec.Template.Spec.Affinity = nil }
	far := corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}}
	request := func(s *corev1.PodSpec) { s.Containers[0].Resources, s.InitContainers[0].Resources = far, far }
	for name, test := range map[string]struct {
		old    *batchv1.Job
		change func(*corev1.PodSpec)
		wrong  string // the field
	}{
		"nothing, of a job that runs":    {suspended(begun), func(*corev1.PodSpec) {}, ""},
		"resources":                      {suspended(), request, ""},
		"resources, at rest":             {suspended(rests), request, ""},
		"resources, not yet at rest":     {suspended(begun), request, "spec.template"},
		"resources, with active pods":    {suspended(rests, func(j *batchv1.Job) { j.Status.Active = 1 }), request, "spec.template"},
		"resources, of a job that runs":  {suspended(func(j *batchv1.Job) { j.Spec.Suspend = new(false) }), request, "spec.template"},
		"resources of another container": {suspended(), func(s *corev1.PodSpec) { s.Containers[0] = corev1.Container{Name: "b", Image: "a", Resources: far} }, "spec.template.spec"},
		"a container more":               {suspended(), func(s *corev1.PodSpec) { s.Containers = append(s.Containers, corev1.Container{Name: "b"}) }, "spec.template.spec"},
		"an image":                       {suspended(), func(s *corev1.PodSpec) { s.Containers[0].Image = "b" }, "spec.template.spec"},
		"a node selector":                {suspended(rests), func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"a": "b"} }, ""},
		"a gate and a toleration": {suspended(), func(s *corev1.PodSpec) {
			s.SchedulingGates, s.Tolerations = []corev1.PodSchedulingGate{{Name: "g"}}, []corev1.Toleration{{Key: "k"}}
		}, ""},
		"node affinity":                      {suspended(), func(s *corev1.PodSpec) { s.Affinity.NodeAffinity = nil }, ""},
		"the first affinity, to nodes":       {suspended(alone), func(s *corev1.PodSpec) { s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}} }, ""},
		"the first affinity, to pods":        {suspended(alone), func(s *corev1.PodSpec) { s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}} }, "spec.template.spec"},
		"no affinity any more":               {suspended(), func(s *corev1.PodSpec) { s.Affinity = nil }, "spec.template.spec"},
		"no affinity any more, but to nodes": {suspended(func(j *batchv1.Job) { j.Spec.Template.Spec.Affinity.PodAffinity = nil }), func(s *corev1.PodSpec) { s.Affinity = nil }, ""},
	} {
		template := test.old.Spec.Template.DeepCopy()
		test.change(&template.Spec)
		errs := validateJobTemplateUpdate(template, test.old, field.NewPath("spec", "template"))
		if len(errs) == 0 != (test.wrong == "") || len(errs) > 0 && errs[0].Field != test.wrong {
			t.Errorf("%s: %v, want %q", name, errs, test.wrong)
		}
	}
}

// TestJobPoliciesAreBounded checks the greatest lists in the policies of a Job, and one element more.
func TestJobPoliciesAreBounded(t *testing.T) {
	codes := func(n int) []int32 {
		all := make([]int32, n)
		for i := range all {
			all[i] = int32(i + 1)
		}
		return all
	}
	failures := func(r batchv1.PodFailurePolicyRule) batchv1.JobSpec {
		r.Action = batchv1.PodFailurePolicyActionFailJob
		return batchv1.JobSpec{PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{r}}}
	}
	exits := func(n int) batchv1.JobSpec {
		return failures(batchv1.PodFailurePolicyRule{OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{
			Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: codes(n),
		}})
	}
	conditions := func(n int) batchv1.JobSpec {
		pattern := batchv1.PodFailurePolicyOnPodConditionsPattern{Type: "A", Status: corev1.ConditionTrue}
		return failures(batchv1.PodFailurePolicyRule{OnPodConditions: slices.Repeat([]batchv1.PodFailurePolicyOnPodConditionsPattern{pattern}, n)})
	}
	indexes := func(bytes int) batchv1.JobSpec {
		list := strings.Repeat("0", bytes) // the index 0
		return batchv1.JobSpec{
			CompletionMode: new(batchv1.IndexedCompletion), Completions: new(int32(1)),
			SuccessPolicy: &batchv1.SuccessPolicy{Rules: []batchv1.SuccessPolicyRule{{SucceededIndexes: &list}}},
		}
	}
	const rule = "spec.podFailurePolicy.rules[0]."
	for name, test := range map[string]struct {
		spec  batchv1.JobSpec
		wrong string
	}{
		"exit codes":           {exits(255), ""},
		"too many exit codes":  {exits(256), rule + "onExitCodes.values: Too many: 256: must have at most 255 items"},
		"conditions":           {conditions(20), ""},
		"too many conditions":  {conditions(21), rule + "onPodConditions: Too many: 21: must have at most 20 items"},
		"indexes":              {indexes(64 << 10), ""},
		"too long for indexes": {indexes(64<<10 + 1), "spec.successPolicy.rules[0].succeededIndexes: Too long: may not be more than 65536 bytes"},
	} {
		errs := validateJobPolicies(&test.spec, field.NewPath("spec"))
		if len(errs) == 0 != (test.wrong == "") || len(errs) > 0 && errs[0].Error() != test.wrong {
			t.Errorf("%s: %v, want %q", name, errs, test.wrong)
		}
	}
}
