package registry

import (
	"fmt"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // time zones are to be known where the system has no files of them

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// cronJobNameLimit leaves room for what is appended to make the name of a job.
const cronJobNameLimit = validation.DNS1035LabelMaxLength - 11

func cronJobs() Kind {
	return define[batchv1.CronJob, batchv1.CronJobList](Kind{
		GroupVersion:        batchv1.SchemeGroupVersion,
		Kind:                "CronJob",
		Resource:            "cronjobs",
		Why:                 "The owner of jobs: with their pods, the deepest cascade of built-in kinds.",
		Namespaced:          true,
		ShortNames:          []string{"cj"},
		Categories:          []string{"all"},
		Name:                apivalidation.NameIsDNSSubdomain,
		UnconditionalUpdate: true,
	}, slices.Concat(cronJobColumns(), templateColumns(
		func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template },
		func(c *batchv1.CronJob) string { return selectorText(c.Spec.JobTemplate.Spec.Selector) },
	)), behaviour[*batchv1.CronJob]{
		defaults: func(c *batchv1.CronJob) {
			setDefault(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
			setDefaultPtr(&c.Spec.Suspend, false)
			setDefaultPtr(&c.Spec.SuccessfulJobsHistoryLimit, 3)
			setDefaultPtr(&c.Spec.FailedJobsHistoryLimit, 1)
			// The rest of the job's defaults are for the jobs that are made.
			defaultPodSpec(&c.Spec.JobTemplate.Spec.Template.Spec)
		},
		validate: validateCronJob,
		desired:  func(c *batchv1.CronJob) any { return c.Spec },
		status:   part(func(c *batchv1.CronJob) *batchv1.CronJobStatus { return &c.Status }),
	})
}

func cronJobColumns() []column {
	return []column{
		text("Schedule", "When jobs are made.", func(c *batchv1.CronJob) string { return c.Spec.Schedule }),
		text("Timezone", "Where that time is.", func(c *batchv1.CronJob) string { return deref(c.Spec.TimeZone, none) }),
		text("Suspend", "Whether no jobs are made.", func(c *batchv1.CronJob) string {
			if deref(c.Spec.Suspend, false) {
				return "True"
			}
			return "False"
		}),
		number("Active", "Jobs that are running.", func(c *batchv1.CronJob) int { return len(c.Status.Active) }),
		textAt("Last Schedule", "Time since the last job was made.", func(c *batchv1.CronJob, now time.Time) string {
			if c.Status.LastScheduleTime == nil {
				return none
			}
			return since(*c.Status.LastScheduleTime, now)
		}),
		ageColumn(),
	}
}

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	spec := field.NewPath("spec")
	template := spec.Child("jobTemplate", "spec")
	errs := slices.Concat(
		validateSchedule(c.Spec.Schedule, spec.Child("schedule")),
		validateTimeZone(c.Spec.TimeZone, spec.Child("timeZone")),
		oneOf(c.Spec.ConcurrencyPolicy, spec.Child("concurrencyPolicy"),
			batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent),
		notNegative(c.Spec.StartingDeadlineSeconds, spec.Child("startingDeadlineSeconds")),
		notNegative(c.Spec.SuccessfulJobsHistoryLimit, spec.Child("successfulJobsHistoryLimit")),
		notNegative(c.Spec.FailedJobsHistoryLimit, spec.Child("failedJobsHistoryLimit")),
		validateJobSpec(&c.Spec.JobTemplate.Spec, template),
	)
	if deref(c.Spec.JobTemplate.Spec.ManualSelector, false) {
		errs = append(errs, field.NotSupported(template.Child("manualSelector"), true, []string{"nil", "false"}))
	}
	if len(c.Name) > cronJobNameLimit {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), c.Name, fmt.Sprintf("must be no more than %d characters", cronJobNameLimit)))
	}
	return errs
}

// validateSchedule parses the schedule as whoever makes the jobs will.
func validateSchedule(schedule string, path *field.Path) field.ErrorList {
	switch {
	case schedule == "":
		return required(schedule, path)
	case strings.Contains(schedule, "TZ"):
		return field.ErrorList{field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")}
	}
	if _, err := cron.ParseStandard(schedule); err != nil {
		return field.ErrorList{field.Invalid(path, schedule, err.Error())}
	}
	return nil
}

func validateTimeZone(zone *string, path *field.Path) field.ErrorList {
	if zone == nil {
		return nil
	}
	if *zone == "" || strings.EqualFold(*zone, "Local") {
		return field.ErrorList{field.Invalid(path, *zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")}
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return field.ErrorList{field.Invalid(path, *zone, err.Error())}
	}
	return nil
}
