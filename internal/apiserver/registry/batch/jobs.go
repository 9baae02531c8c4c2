package batch

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
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

func jobs() registry.Resource {
	return registry.Define[batchv1.Job, batchv1.JobList](registry.Resource{
		GroupVersion:        batchv1.SchemeGroupVersion,
		Kind:                "Job",
		Plural:              "jobs",
		Namespaced:          true,
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
		OrphansWarning: "child pods are preserved by default when jobs are deleted; " +
			"set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning",
	}, slices.Concat([]table.Column{
		table.Text("Status", "Whether the job is running, suspended, complete or failed.", jobStatusText),
		table.Text("Completions", "Pods that have succeeded, of those required.", jobCompletions),
		table.TextAt("Duration", "How long the job took, or has taken so far.", jobDuration),
		table.Age(),
	}, podspec.TemplateColumns(
		func(j *batchv1.Job) *corev1.PodTemplateSpec { return &j.Spec.Template },
		func(j *batchv1.Job) string { return table.Selector(j.Spec.Selector) },
	)), registry.Strategy[*batchv1.Job]{
		Default:              defaultJob,
		PrepareForCreate:     createJob,
		PrepareForUpdate:     func(j, _ *batchv1.Job) { dropJobFields(&j.Spec) },
		Canonicalize:         labelJob,
		Validate:             validateJob,
		ValidateCreate:       func(j *batchv1.Job) field.ErrorList { return validateGeneratedSelector(j, ownLabels(j)) },
		ValidateUpdate:       validateJobUpdate,
		Warn:                 func(j, old *batchv1.Job) []string { return warnOfJob(j, old, &j.Spec, field.NewPath("spec")) },
		Desired:              func(j *batchv1.Job) any { return j.Spec },
		CopyStatus:           registry.CopyField(func(j *batchv1.Job) *batchv1.JobStatus { return &j.Status }),
		ValidateStatusUpdate: validateJobStatus,
		SelectableFields: func(j *batchv1.Job) fields.Set {
			return fields.Set{"status.successful": strconv.Itoa(int(j.Status.Succeeded))}
		},
	})
}

func defaultJob(j *batchv1.Job) {
	// A Job without both numbers runs one pod; with parallelism only, it is a work queue.
	if j.Spec.Completions == nil && j.Spec.Parallelism == nil {
		registry.SetDefaultPtr(&j.Spec.Completions, 1)
	}
	defaultJobSpec(&j.Spec)
	labelJob(j)
}

// labelJob gives a Job without labels the labels of its pods. Both share the map, so that the Job also gets the labels
// that createJob adds. If the pods have no labels, createJob makes the map, so labelJob runs again after it.
func labelJob(j *batchv1.Job) {
	if len(j.Labels) == 0 {
		j.Labels = j.Spec.Template.Labels
	}
}

func defaultJobSpec(s *batchv1.JobSpec) {
	podspec.DefaultSpec(&s.Template.Spec)
	registry.SetDefaultPtr(&s.Parallelism, 1)
	if s.BackoffLimitPerIndex != nil {
		registry.SetDefaultPtr(&s.BackoffLimit, math.MaxInt32)
	}
	registry.SetDefaultPtr(&s.BackoffLimit, 6)
	registry.SetDefaultPtr(&s.CompletionMode, batchv1.NonIndexedCompletion)
	registry.SetDefaultPtr(&s.Suspend, false)
	registry.SetDefaultPtr(&s.ManualSelector, false)
	if s.PodFailurePolicy != nil {
		registry.SetDefaultPtr(&s.PodReplacementPolicy, batchv1.Failed)
	}
	defaultPodFailurePolicy(s.PodFailurePolicy)
	registry.SetDefaultPtr(&s.PodReplacementPolicy, batchv1.TerminatingOrFailed)
}

// defaultPodFailurePolicy gives a condition without a status the status True. It serves the templates of CronJobs, too.
func defaultPodFailurePolicy(p *batchv1.PodFailurePolicy) {
	if p == nil {
		return
	}
	for i := range p.Rules {
		for n := range p.Rules[i].OnPodConditions {
			registry.SetDefault(&p.Rules[i].OnPodConditions[n].Status, corev1.ConditionTrue)
		}
	}
}

// Labels from before Kubernetes' labels of Jobs had a prefix. Clients still use them.
const (
	legacyControllerUID = "controller-uid"
	legacyJobName       = "job-name"
)

// createJob makes the Job select exactly its own pods, by its UID, which is new and so unknown to the user. With a
// manual selector, the user is responsible.
func createJob(j *batchv1.Job) {
	dropJobFields(&j.Spec)
	if ptr.Deref(j.Spec.ManualSelector, false) {
		return
	}
	own := ownLabels(j)
	if j.Spec.Template.Labels == nil {
		j.Spec.Template.Labels = make(map[string]string, len(own))
	}
	for label, value := range own {
		if _, isSet := j.Spec.Template.Labels[label]; !isSet { // validation rejects another value
			j.Spec.Template.Labels[label] = value
		}
	}
	if j.Spec.Selector == nil {
		j.Spec.Selector = &metav1.LabelSelector{}
	}
	selected := map[string]string{batchv1.ControllerUidLabel: string(j.UID)}
	maps.Copy(selected, j.Spec.Selector.MatchLabels)
	j.Spec.Selector.MatchLabels = selected
}

// dropJobFields drops the field of a feature gate that Kubernetes disables by default.
func dropJobFields(spec *batchv1.JobSpec) { spec.Scheduling = nil }

// ownLabels are the labels that only the pods of this Job have.
func ownLabels(j *batchv1.Job) map[string]string {
	return map[string]string{
		batchv1.ControllerUidLabel: string(j.UID),
		batchv1.JobNameLabel:       j.Name,
		legacyControllerUID:        string(j.UID),
		legacyJobName:              j.Name,
	}
}

func validateJob(j *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	return append(
		validate.MatchingSelector(validate.SelectorRules{}, j.Spec.Selector, j.Spec.Template.Labels, spec),
		validateJobSpec(&j.Spec, spec)...)
}

// validateGeneratedSelector checks the selector that the server has generated, and the labels that it selects.
func validateGeneratedSelector(j *batchv1.Job, own map[string]string) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	spec := field.NewPath("spec")
	path := spec.Child("template", "metadata", "labels")
	for _, label := range slices.Sorted(maps.Keys(own)) {
		must := fmt.Sprintf("must be '%s'", own[label])
		switch value, isSet := j.Spec.Template.Labels[label]; {
		case !isSet:
			errs = append(errs, field.Required(path.Key(label), must))
		case value != own[label]:
			errs = append(errs, field.Invalid(path.Key(label), j.Spec.Template.Labels, must))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(labels.Set(own)) {
		errs = append(errs, field.Invalid(spec.Child("selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateJobSpec checks what Jobs and the job templates of CronJobs have in common.
func validateJobSpec(s *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	template := spec.Child("template")
	errs := slices.Concat(
		validate.NotNegative(s.Parallelism, spec.Child("parallelism")),
		validate.NotNegative(s.Completions, spec.Child("completions")),
		validate.NotNegative(s.ActiveDeadlineSeconds, spec.Child("activeDeadlineSeconds")),
		validate.NotNegative(s.BackoffLimit, spec.Child("backoffLimit")),
		validate.NotNegative(s.TTLSecondsAfterFinished, spec.Child("ttlSecondsAfterFinished")),
		validate.NotNegative(s.BackoffLimitPerIndex, spec.Child("backoffLimitPerIndex")),
		validate.OneOfPtr(s.CompletionMode, spec.Child("completionMode"), batchv1.NonIndexedCompletion, batchv1.IndexedCompletion),
		validateReplacement(s, spec.Child("podReplacementPolicy")),
		podspec.ValidateTemplateMeta(&s.Template, template),
		podspec.ValidateSpec(&s.Template.Spec, template.Child("spec")),
		podspec.ForbidEphemeralContainers(&s.Template, template.Child("spec")),
	)
	errs = append(errs, validateIndexed(s, spec)...)
	errs = append(errs, validateManager(s.ManagedBy, spec.Child("managedBy"))...)
	errs = append(errs, validateJobPolicies(s, spec)...)
	return append(errs, validateJobRestarts(s, template.Child("spec", "restartPolicy"))...)
}

// validateReplacement checks when the controller replaces pods. With a pod failure policy, it must wait until they have
// failed.
func validateReplacement(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	if s.PodFailurePolicy != nil {
		return validate.OneOfPtr(s.PodReplacementPolicy, at, batchv1.Failed)
	}
	return validate.OneOfPtr(s.PodReplacementPolicy, at, batchv1.Failed, batchv1.TerminatingOrFailed)
}

// validateJobRestarts refuses Always: a Job is complete when its pods have ended, and with Always they never end.
func validateJobRestarts(s *batchv1.JobSpec, at *field.Path) field.ErrorList {
	switch policy := s.Template.Spec.RestartPolicy; {
	case policy == corev1.RestartPolicyAlways:
		return field.ErrorList{field.Required(at, "valid values: \"OnFailure\", \"Never\"")}
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		return field.ErrorList{field.NotSupported(at, policy, []corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever})}
	case s.PodFailurePolicy != nil && policy != corev1.RestartPolicyNever:
		return field.ErrorList{field.Invalid(at, policy, "only \"Never\" is supported when podFailurePolicy is specified")}
	}
	return nil
}

// validateJobUpdate checks that an update changes nothing that the Job runs. The parallelism may change.
func validateJobUpdate(j, old *batchv1.Job) field.ErrorList {
	spec := field.NewPath("spec")
	errs := slices.Concat(
		validate.Immutable(j.Spec.Selector, old.Spec.Selector, spec.Child("selector")),
		validate.Immutable(j.Spec.CompletionMode, old.Spec.CompletionMode, spec.Child("completionMode")),
		validate.Immutable(j.Spec.PodFailurePolicy, old.Spec.PodFailurePolicy, spec.Child("podFailurePolicy")),
		validate.Immutable(j.Spec.SuccessPolicy, old.Spec.SuccessPolicy, spec.Child("successPolicy")),
		validate.Immutable(j.Spec.ManagedBy, old.Spec.ManagedBy, spec.Child("managedBy")),
		validate.Immutable(j.Spec.BackoffLimitPerIndex, old.Spec.BackoffLimitPerIndex, spec.Child("backoffLimitPerIndex")),
		validateJobTemplateUpdate(&j.Spec.Template, old, spec.Child("template")),
	)
	return append(errs, validateCompletionsUpdate(&j.Spec, &old.Spec, spec)...)
}

// validateCompletionsUpdate lets a client scale an indexed Job that runs all of its indexes at once, by changing both
// numbers together.
func validateCompletionsUpdate(s, old *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	at := spec.Child("completions")
	switch {
	case !isIndexed(s):
		return validate.Immutable(s.Completions, old.Completions, at)
	case s.Completions == nil || ptr.Equal(s.Completions, old.Completions) || ptr.Equal(s.Completions, s.Parallelism):
		return nil
	}
	return field.ErrorList{field.Invalid(at, s.Completions, "can only be modified in tandem with spec.parallelism")}
}

// validateJobTemplateUpdate lets a client change where the pods run and their resources while the Job is suspended and
// has no active pods.
func validateJobTemplateUpdate(template *corev1.PodTemplateSpec, old *batchv1.Job, path *field.Path) field.ErrorList {
	if !isAtRest(old) {
		return validate.Immutable(*template, old.Spec.Template, path)
	}
	was, undone := &old.Spec.Template.Spec, template.Spec.DeepCopy()
	undone.NodeSelector, undone.Tolerations, undone.SchedulingGates = was.NodeSelector, was.Tolerations, was.SchedulingGates
	undone.Affinity = withNodeAffinityOf(undone.Affinity, was.Affinity)
	undoResources(undone.Containers, was.Containers)
	undoResources(undone.InitContainers, was.InitContainers)
	return validate.Immutable(*undone, *was, path.Child("spec"))
}

// isAtRest reports whether a Job is suspended and has no active pods.
func isAtRest(j *batchv1.Job) bool {
	rests := j.Status.StartTime == nil || holds(j, batchv1.JobSuspended)
	return ptr.Deref(j.Spec.Suspend, false) && rests && j.Status.Active == 0
}

// withNodeAffinityOf returns an affinity with the node affinity of another one.
func withNodeAffinityOf(affinity, other *corev1.Affinity) *corev1.Affinity {
	undone := corev1.Affinity{}
	if affinity != nil {
		undone = *affinity
	}
	undone.NodeAffinity = nil
	if other != nil {
		undone.NodeAffinity = other.NodeAffinity
	}
	if other == nil && undone == (corev1.Affinity{}) {
		return nil
	}
	return &undone
}

// undoResources restores the resources of containers that kept their name and position.
func undoResources(containers, were []corev1.Container) {
	if len(containers) != len(were) {
		return
	}
	for i := range containers {
		if containers[i].Name == were[i].Name {
			containers[i].Resources = were[i].Resources
		}
	}
}

// holds reports whether a condition is true.
func holds(j *batchv1.Job, t batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Type == t && c.Status == corev1.ConditionTrue
	})
}

func jobStatusText(j *batchv1.Job) string {
	switch {
	case holds(j, batchv1.JobComplete):
		return "Complete"
	case holds(j, batchv1.JobFailed):
		return "Failed"
	case j.DeletionTimestamp != nil:
		return "Terminating"
	case holds(j, batchv1.JobSuspended):
		return "Suspended"
	case holds(j, batchv1.JobFailureTarget):
		return "FailureTarget"
	case holds(j, batchv1.JobSuccessCriteriaMet):
		return "SuccessCriteriaMet"
	}
	return "Running"
}

func jobCompletions(j *batchv1.Job) string {
	switch parallelism := ptr.Deref(j.Spec.Parallelism, 0); {
	case j.Spec.Completions != nil:
		return table.Fraction(j.Status.Succeeded, *j.Spec.Completions)
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
		return table.Since(*start, now)
	default:
		return duration.HumanDuration(end.Sub(start.Time))
	}
}
