package batch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// cronJobNameLimit leaves room for the suffix of the Jobs' names.
const cronJobNameLimit = validation.DNS1035LabelMaxLength - 11

func cronJobs() registry.Resource {
	return registry.Define[batchv1.CronJob, batchv1.CronJobList](registry.Resource{
		GroupVersion:        batchv1.SchemeGroupVersion,
		Kind:                "CronJob",
		Plural:              "cronjobs",
		Namespaced:          true,
		ShortNames:          []string{"cj"},
		Categories:          []string{"all"},
		ValidateName:        apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat(cronJobColumns(), podspec.TemplateColumns(
		func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template },
		func(c *batchv1.CronJob) string { return table.Selector(c.Spec.JobTemplate.Spec.Selector) },
	)), registry.Strategy[*batchv1.CronJob]{
		Default: func(c *batchv1.CronJob) {
			registry.SetDefault(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
			registry.SetDefaultPtr(&c.Spec.Suspend, false)
			registry.SetDefaultPtr(&c.Spec.SuccessfulJobsHistoryLimit, 3)
			registry.SetDefaultPtr(&c.Spec.FailedJobsHistoryLimit, 1)
			// The other defaults are set in the Jobs that are created.
			podspec.DefaultSpec(&c.Spec.JobTemplate.Spec.Template.Spec)
			defaultPodFailurePolicy(c.Spec.JobTemplate.Spec.PodFailurePolicy)
		},
		PrepareForCreate: func(c *batchv1.CronJob) { dropJobFields(&c.Spec.JobTemplate.Spec) },
		PrepareForUpdate: func(c, _ *batchv1.CronJob) { dropJobFields(&c.Spec.JobTemplate.Spec) },
		Validate:         validateCronJob,
		Warn: func(c, old *batchv1.CronJob) []string {
			return warnOfJob(c, old, &c.Spec.JobTemplate.Spec, field.NewPath("spec", "jobTemplate", "spec"))
		},
		Desired:    func(c *batchv1.CronJob) any { return c.Spec },
		CopyStatus: registry.CopyField(func(c *batchv1.CronJob) *batchv1.CronJobStatus { return &c.Status }),
	})
}

func cronJobColumns() []table.Column {
	return []table.Column{
		table.Text("Schedule", "Schedule in cron format.", func(c *batchv1.CronJob) string { return c.Spec.Schedule }),
		table.Text("Timezone", "Time zone of the schedule.", func(c *batchv1.CronJob) string { return ptr.Deref(c.Spec.TimeZone, table.None) }),
		table.Text("Suspend", "Whether the schedule is suspended.", func(c *batchv1.CronJob) string {
			if ptr.Deref(c.Spec.Suspend, false) {
				return "True"
			}
			return "False"
		}),
		table.Number("Active", "Jobs that are running.", func(c *batchv1.CronJob) int { return len(c.Status.Active) }),
		table.TextAt("Last Schedule", "Time since the last job was created.", func(c *batchv1.CronJob, now time.Time) string {
			if c.Status.LastScheduleTime == nil {
				return table.None
			}
			return table.Since(*c.Status.LastScheduleTime, now)
		}),
		table.Age(),
	}
}

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	spec := field.NewPath("spec")
	template := spec.Child("jobTemplate", "spec")
	errs := slices.Concat(
		validateSchedule(c.Spec.Schedule, spec.Child("schedule")),
		validateTimeZone(c.Spec.TimeZone, spec.Child("timeZone")),
		validate.OneOf(c.Spec.ConcurrencyPolicy, spec.Child("concurrencyPolicy"),
			batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent),
		validate.NotNegative(c.Spec.StartingDeadlineSeconds, spec.Child("startingDeadlineSeconds")),
		validate.NotNegative(c.Spec.SuccessfulJobsHistoryLimit, spec.Child("successfulJobsHistoryLimit")),
		validate.NotNegative(c.Spec.FailedJobsHistoryLimit, spec.Child("failedJobsHistoryLimit")),
		validateJobSpec(&c.Spec.JobTemplate.Spec, template),
	)
	if ptr.Deref(c.Spec.JobTemplate.Spec.ManualSelector, false) {
		errs = append(errs, field.NotSupported(template.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	if selector := c.Spec.JobTemplate.Spec.Selector; selector != nil {
		errs = append(errs, field.Invalid(template.Child("selector"), selector, "`selector` will be auto-generated"))
	}
	if len(c.Name) > cronJobNameLimit {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, fmt.Sprintf("must be no more than %d characters", cronJobNameLimit)))
	}
	return errs
}

// validateSchedule parses the schedule as the CronJob controller does.
func validateSchedule(schedule string, path *field.Path) field.ErrorList {
	switch {
	case schedule == "":
		return validate.Required(schedule, path)
	case strings.Contains(schedule, "TZ"):
		return field.ErrorList{field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")}
	}
	if _, err := cron.ParseStandard(schedule); err != nil {
		return field.ErrorList{field.Invalid(path, schedule, err.Error())}
	}
	return nil
}

func validateTimeZone(zone *string, path *field.Path) field.ErrorList {
	switch {
	case zone == nil:
		return nil
	case *zone == "":
		return field.ErrorList{field.Invalid(path, *zone, "timeZone must be nil or non-empty string")}
	case slices.ContainsFunc(strings.Split(*zone, "/"), isNoZone):
		return field.ErrorList{field.Invalid(path, *zone, "unknown time zone "+*zone)}
	}
	var errs field.ErrorList
	if strings.EqualFold(*zone, "Local") {
		errs = append(errs, field.Invalid(path, *zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		errs = append(errs, field.Invalid(path, *zone, err.Error()))
	}
	return errs
}

// zonePart matches one part of a time zone's name, by the rules of the time zone database.
var zonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

// isNoZone reports whether no name of a time zone has this part, such as "..", which leads to another path.
func isNoZone(part string) bool { return part == "." || part == ".." || !zonePart.MatchString(part) }
