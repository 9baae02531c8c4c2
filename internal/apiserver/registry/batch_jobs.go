package registry

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/deletion"
)

func batchKinds() []Kind { return []Kind{jobs(), cronJobs()} }

func jobs() Kind {
	return define[batchv1.Job, batchv1.JobList](Kind{
		GroupVersion:        batchv1.SchemeGroupVersion,
		Kind:                "Job",
		Resource:            "jobs",
		Why:                 "Owned by CronJobs, owner of pods, and the other kind that still orphans by default.",
		Namespaced:          true,
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		Deletion:            deletion.Strategy{DefaultPropagation: metav1.DeletePropagationOrphan},
	}, slices.Concat([]column{
		text("Status", "What has become of the job.", jobStatusText),
		text("Completions", "Pods that have succeeded, of those that have to.", jobCompletions),
		textAt("Duration", "Time that the job took, or has taken so far.", jobDuration),
		ageColumn(),
	}, templateColumns(
		func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template },
		func(j *batchv1.Job) string { return selectorText(j.Spec.Selector) },
	)), behaviour[*batchv1.Job]{
		defaults:       defaultJob,
		creating:       createJob,
		validate:       validateJob,
		validateUpdate: validateJobUpdate,
		desired:        func(j *batchv1.Job) any { return j.Spec },
		status:         part(func(j *batchv1.Job) *batchv1.JobStatus { return &j.Status }),
		validateStatus: func(j, _ *batchv1.Job) field.ErrorList {
			return counts(field.NewPath("status"), map[string]int32{
				"active": j.Status.Active, "succeeded": j.Status.Succeeded, "failed": j.Status.Failed,
			})
		},
		selectable: func(j *batchv1.Job) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
		},
	})
}

func defaultJob(j *batchv1.Job) {
	// A job without numbers is one pod; with parallelism only, it is a work queue.
	if j.Spec.Completions == nil && j.Spec.Parallelism == nil {
		setDefaultPtr(&j.Spec.Completions, 1)
	}
	defaultJobSpec(&j.Spec)
	labelJob(j)
}

// labelJob gives a job without labels those of its pods.
func labelJob(j *batchv1.Job) {
	if len(j.Labels) == 0 {
		j.Labels = maps.Clone(j.Spec.Template.Labels)
	}
}

// defaultJobSpec also serves the job template of CronJobs.
func defaultJobSpec(s *batchv1.JobSpec) {
	defaultPodSpec(&s.Template.Spec)
	setDefaultPtr(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		setDefaultPtr(&s.BackoffLimit, math.MaxInt32)
	}
	setDefaultPtr(&s.BackoffLimit, 6)
	setDefaultPtr(&s.CompletionMode, batchv1.NonIndexedCompletion)
	setDefaultPtr(&s.Suspend, false)
	setDefaultPtr(&s.ManualSelector, false)
	if s.PodFailurePolicy != nil {
		setDefaultPtr(&s.PodReplacementPolicy, batchv1.Failed)
	}
	setDefaultPtr(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
}

// Labels that jobs had before labels had to have a prefix. Clients still use them.
const (
	legacyControllerUID = "controller-uid"
	legacyJobName       = "job-name"
)

// createJob makes the job select its own pods and no others, by its uid. Its user
// cannot do that: the uid is new. Whoever selects manually answers for the outcome.
func createJob(j *batchv1.Job) {
	if deref(j.Spec.ManualSelector, false) {
		return
	}
	own := map[string]string{
		batchv1.ControllerUidLabel: string(j.UID),
		batchv1.JobNameLabel:       j.Name,
		legacyControllerUID:        string(j.UID),
		legacyJobName:              j.Name,
	}
	// What the user claims to be the uid stays, and validation finds it.
	maps.Copy(own, j.Spec.Template.Labels)
	j.Spec.Template.Labels = own
	labelJob(j) // again: what is stored is what will be read
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	selected := map[string]string{batchv1.ControllerUidLabel: string(j.UID)}
	maps.Copy(selected, j.Spec.Selector.MatchLabels)
	j.Spec.Selector.MatchLabels = selected
}

func validateJob(j *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := append(
		matchingSelector("job", j.Spec.Selector, j.Spec.Template.Labels, spec),
		validateJobSpec(&j.Spec, spec)...)
	if deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return errs
	}
	labels := spec.Child("template", "metadata", "labels")
	if got := j.Spec.Template.Labels[batchv1.ControllerUidLabel]; got != string(j.UID) {
		errs = append(errs, field.Invalid(labels.Key(batchv1.ControllerUidLabel), got, fmt.Sprintf("must be '%s'", j.UID)))
	}
	if j.Spec.Selector.MatchLabels[batchv1.ControllerUidLabel] != string(j.UID) {
		errs = append(errs, field.Invalid(spec.Child("selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateJobSpec checks what jobs and the templates of CronJobs have in common.
func validateJobSpec(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	template := spec.Child("template")
	errs := slices.Concat(
		notNegative(s.Parallelism, spec.Child("parallelism")),
		notNegative(s.Completions, spec.Child("completions")),
		notNegative(s.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds")),
		notNegative(s.BackoffLimit, spec.Child("backoffLimit")),
		notNegative(s.TTLSecondsAfterFinished, spec.Child("ttlSecondsAfterFinished")),
		notNegative(s.BackoffLimitPerIndex, spec.Child("backoffLimitPerIndex")),
		oneOfPtr(s.CompletionMode, spec.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion),
		oneOfPtr(s.PodReplacementPolicy, spec.Child("podReplacementPolicy"), batchv1.Failed, batchv1.TerminatingOrFailed),
		validateTemplateMeta(&s.Template, template.Child("metadata")),
		validatePodSpec(&s.Template.Spec, template.Child("spec")),
		noEphemeralContainers(&s.Template, template.Child("spec")),
	)
	errs = append(errs, validateIndexed(s, spec)...)
	errs = append(errs, validateManager(s.ManagedBy, spec.Child("managedBy"))...)
	errs = append(errs, validateJobPolicies(s, spec)...)
	if policy := s.Template.Spec.RestartPolicy; policy == corev1.RestartPolicyAlways {
		// A job is done when its pods end, and those would not.
		errs = append(errs, field.Required(template.Child("spec", "restartPolicy"), "valid values: \"OnFailure\", \"Never\""))
	}
	return errs
}

// validateJobUpdate: a job's work is settled when it starts; how fast it goes is not.
func validateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		immutable(j.Spec.Selector, old.Spec.Selector, spec.Child("selector")),
		immutable(j.Spec.CompletionMode, old.Spec.CompletionMode, spec.Child("completionMode")),
		immutable(j.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy, spec.Child("podFailurePolicy")),
		immutable(j.Spec.SuccessPolicy, old.Spec.SuccessPolicy, spec.Child("successPolicy")),
		immutable(j.Spec.ManagedBy, old.Spec.ManagedBy, spec.Child("managedBy")),
		immutable(j.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex, spec.Child("backoffLimitPerIndex")),
		validateJobTemplateUpdate(&j.Spec.Template, old, spec.Child("template")),
	)
	indexed := deref(j.Spec.CompletionMode, "") == batchv1.IndexedCompletion
	inStep := deref(j.Spec.Completions, -1) == deref(j.Spec.Parallelism, -1)
	if !indexed || !inStep {
		errs = append(errs, immutable(j.Spec.Completions, old.Spec.Completions, spec.Child("completions"))...)
	}
	return errs
}

// validateJobTemplateUpdate: where the pods go may be decided until the first is made.
func validateJobTemplateUpdate(template *corev1.PodTemplateSpec, old *batchv1.Job, path *field.Path) field.ErrorList {
	undone := template.DeepCopy()
	if deref(old.Spec.Suspend, false) && old.Status.StartTime == nil {
		was := old.Spec.Template
		undone.Labels, undone.Annotations = was.Labels, was.Annotations
		undone.Spec.NodeSelector = was.Spec.NodeSelector
		undone.Spec.Tolerations = was.Spec.Tolerations
		undone.Spec.SchedulingGates = was.Spec.SchedulingGates
		if undone.Spec.Affinity != nil && was.Spec.Affinity != nil {
			undone.Spec.Affinity.NodeAffinity = was.Spec.Affinity.NodeAffinity
		}
	}
	return immutable(*undone, old.Spec.Template, path)
}

func jobStatusText(j *batchv1.Job) string {
	holds := func(t batchv1.JobConditionType) bool {
		return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == t && c.Status == corev1.ConditionTrue
		})
	}
	switch {
	case holds(batchv1.JobComplete):
		return "Complete"
	case holds(batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case holds(batchv1.JobSuspended):
		return "Suspended"
	case holds(batchv1.JobFailureTarget):
		return "FailureTarget"
	case holds(batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func jobCompletions(j *batchv1.Job) string {
	switch parallelism := deref(j.Spec.Parallelism, 0); {
	case j.Spec.Completions != nil:
		return fraction(j.Status.Succeeded, *j.Spec.Completions)
	case parallelism > 1:
		return fmt.Sprintf("%d/1 of %d", j.Status.Succeeded, parallelism)
	}
	return fmt.Sprintf("%d/1", j.Status.Succeeded)
}

func jobDuration(j *batchv1.Job, now time.Time) string {
	switch start, end := j.Status.StartTime, j.Status.CompletionTime; {
	case start == nil:
		return ""
	case end == nil:
		return since(*start, now)
	default:
		return duration.HumanDuration(end.Sub(start.Time))
	}
}
