package batch

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// validateSuccessRule checks a rule by which an indexed Job succeeds.
func validateSuccessRule(r *batchv1.SuccessPolicyRule, completions int32, at *field.Path) field.ErrorList {
	if r.SucceededCount == nil && r.SucceededIndexes == nil {
		return field.ErrorList{field.Required(at, "at least one of succeededCount or succeededIndexes must be specified")}
	}
	var errs field.ErrorList
	indexes := completions
	if r.SucceededIndexes != nil {
		if len(*r.SucceededIndexes) > maxSucceededIndexes {
			errs = append(errs, field.TooLong(at.Child("succeededIndexes"), "", maxSucceededIndexes))
		}
		var err error
		if indexes, err = countIndexes(*r.SucceededIndexes, completions); err != nil {
			errs = append(errs, field.Invalid(at.Child("succeededIndexes"), *r.SucceededIndexes, "error parsing succeededIndexes: "+err.Error()))
		}
	}
	if r.SucceededCount == nil {
		return errs
	}
	count, path := *r.SucceededCount, at.Child("succeededCount")
	errs = append(errs, validate.NotNegative(r.SucceededCount, path)...)
	if count > completions {
		errs = append(errs, field.Invalid(path, count, fmt.Sprintf("must be less than or equal to %d (the number of specified completions)", completions)))
	}
	if r.SucceededIndexes != nil && count > indexes {
		errs = append(errs, field.Invalid(path, count, fmt.Sprintf("must be less than or equal to %d (the number of indexes in the specified succeededIndexes field)", indexes)))
	}
	return errs
}

// span is a range of indexes.
type span struct{ first, last int32 }

// countIndexes returns the number of indexes in a list such as "0,3-5": numbers below completions and ranges of them,
// in increasing order.
func countIndexes(list string, completions int32) (int32, error) {
	if list == "" {
		return 0, nil
	}
	total, last := int32(0), int32(-1)
	for part := range strings.SplitSeq(list, ",") {
		s, err := parseSpan(part, last, completions)
		if err != nil {
			return 0, err
		}
		total += s.last - s.first + 1
		last = s.last
	}
	return total, nil
}

// parseSpan reads an index or a range, which must be greater than last.
func parseSpan(part string, last, completions int32) (span, error) {
	ends := strings.Split(part, "-")
	if len(ends) > 2 {
		return span{}, fmt.Errorf("the fragment %q violates the requirement that an index interval can have at most two parts separated by '-'", part)
	}
	first, err := parseIndex(ends[0], last, completions)
	if err != nil || len(ends) == 1 {
		return span{first, first}, err
	}
	last, err = parseIndex(ends[1], first, completions)
	return span{first, last}, err
}

// commonIndex returns the first index that is in both lists. It skips invalid parts: they are reported elsewhere.
func commonIndex(a, b string, completions int32) (int32, bool) {
	spans := func(list string) (all []span) {
		for part := range strings.SplitSeq(list, ",") {
			if s, err := parseSpan(part, -1, completions); err == nil {
				all = append(all, s)
			}
		}
		return all
	}
	others := merged(spans(b))
	for _, s := range spans(a) {
		n := sort.Search(len(others), func(n int) bool { return others[n].last >= s.first })
		if n < len(others) && others[n].first <= s.last {
			return max(s.first, others[n].first), true
		}
	}
	return 0, false
}

// merged returns spans in increasing order, with the same indexes.
func merged(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var all []span
	for _, s := range spans {
		if n := len(all) - 1; n >= 0 && s.first <= all[n].last {
			all[n].last = max(all[n].last, s.last)
		} else {
			all = append(all, s)
		}
	}
	return all
}

func parseIndex(text string, last, completions int32) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	index := int32(n)
	switch {
	case err != nil:
		return 0, fmt.Errorf("cannot convert string to integer for index: %q", text)
	case index >= completions:
		return 0, fmt.Errorf("too large index: %q", text)
	case index <= last:
		return 0, fmt.Errorf("non-increasing order, previous: %d, current: %d", last, index)
	}
	return index, nil
}

// indexedJobs are the kinds that have a job spec.
type indexedJobs interface {
	*batchv1.Job | *batchv1.CronJob
	metav1.Object
}

// warnOfJob returns the warnings about a Job or about the job template of a CronJob: its name, its pods, and a number
// of indexes so large that the status may not be able to list the completed ones when many fail.
func warnOfJob[P indexedJobs](obj, old P, s *batchv1.JobSpec, at *field.Path) []string {
	const completions, parallelism = 100_000, 10_000
	all := podspec.WarnOfName(obj, old)
	if old != nil && obj.GetGeneration() == old.GetGeneration() {
		return all
	}
	if isIndexed(s) && ptr.Deref(s.Completions, 0) > completions && ptr.Deref(s.Parallelism, 0) > parallelism {
		all = append(all, at.String()+": In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "+
			"Kubernetes might not be able to track completedIndexes when a big number of indexes fail")
	}
	return append(all, podspec.WarnOfTemplate(obj, old, &s.Template, at.Child("template"))...)
}
