// Package difference compares the outcomes of a request to two API servers.
//
// A difference is a line, such as
//
//	only theirs: (the other accepts) FieldValueInvalid spec.replicas: Invalid value: -1: must be greater than or equal to 0
//	only ours has spec.paused = false
//	spec.replicas: ours 1, theirs 2
//
// Lines tells them, Key generalises them. Declarations, in a file, say which of them are on purpose, and why; Findings
// collects the others, and compares them with a recorded list, which must not get longer.
package difference

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// Lines lists the differences of two outcomes, one per line, with the values of each side.
func Lines(ours, theirs Outcome) []string {
	var all []string
	invalid := func(o Outcome) bool { return o.Code == http.StatusUnprocessableEntity && len(o.Causes) > 0 }
	success := func(o Outcome) bool { return o.Code < http.StatusBadRequest }
	switch {
	case success(ours) && success(theirs):
		if ours.Code != theirs.Code {
			all = append(all, fmt.Sprintf("code: ours %d, theirs %d", ours.Code, theirs.Code))
		}
		all = append(all, wholeDifferences(ours.Object, theirs.Object)...)
	case invalid(ours) && (invalid(theirs) || success(theirs)), invalid(theirs) && success(ours):
		all = append(all, causeDifferences(ours, theirs)...)
	case ours.Code != theirs.Code || ours.Reason != theirs.Reason:
		all = append(all, fmt.Sprintf("answer: ours %d %s %q, theirs %d %s %q", ours.Code, ours.Reason, ours.Message, theirs.Code, theirs.Reason, theirs.Message))
	case ours.Message != theirs.Message:
		all = append(all, fmt.Sprintf("message: ours %q, theirs %q", ours.Message, theirs.Message))
	}
	if success(ours) != success(theirs) { // refusals have few warnings
		return all
	}
	for _, w := range ours.Warnings {
		if !slices.Contains(theirs.Warnings, w) {
			all = append(all, "only ours warns: "+w)
		}
	}
	for _, w := range theirs.Warnings {
		if !slices.Contains(ours.Warnings, w) {
			all = append(all, "only theirs warns: "+w)
		}
	}
	return all
}

// wholeDifferences compares objects; their managed fields, which follow from the others, if that is
// all that differs.
func wholeDifferences(ours, theirs map[string]any) []string {
	all := Fields("", ours, theirs)
	isManaged := func(line string) bool { return strings.Contains(line, "metadata.managedFields") }
	if slices.ContainsFunc(all, func(line string) bool { return !isManaged(line) }) {
		all = slices.DeleteFunc(all, isManaged)
	}
	return all
}

// causeDifferences compares the causes of refusals, one of which may be none. Where both give the
// same cause, the messages are compared.
func causeDifferences(ours, theirs Outcome) []string {
	var all []string
	texts := func(o Outcome, which string) []string {
		var messages []string
		for _, c := range o.Causes {
			if c.String() == which {
				messages = append(messages, c.Message)
			}
		}
		slices.Sort(messages)
		return messages
	}
	seen := map[string]bool{}
	for _, c := range append(slices.Clone(ours.Causes), theirs.Causes...) {
		if seen[c.String()] {
			continue
		}
		seen[c.String()] = true
		o, t := texts(ours, c.String()), texts(theirs, c.String())
		switch {
		case len(t) == 0:
			all = append(all, fmt.Sprintf("only ours: %s%s: %s", verdictOf(theirs), c, strings.Join(o, "; ")))
		case len(o) == 0:
			all = append(all, fmt.Sprintf("only theirs: %s%s: %s", verdictOf(ours), c, strings.Join(t, "; ")))
		case !slices.Equal(o, t):
			all = append(all, fmt.Sprintf("message of %s: ours %q, theirs %q", c, o, t))
		}
	}
	return all
}

// verdictOf returns a note that the other side accepts, or "".
func verdictOf(other Outcome) string {
	if other.Code < http.StatusBadRequest {
		return "(the other accepts) "
	}
	return ""
}

// Fields lists the fields in which two values differ.
func Fields(path string, ours, theirs any) []string {
	o, isMap := ours.(map[string]any)
	t, bothMaps := theirs.(map[string]any)
	if isMap && bothMaps {
		var all []string
		keys := maps.Clone(o)
		maps.Copy(keys, t)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			ourValue, has := o[key]
			theirValue, have := t[key]
			field := strings.TrimPrefix(path+"."+key, ".")
			switch {
			case !has:
				all = append(all, fmt.Sprintf("only theirs has %s = %v", field, theirValue))
			case !have:
				all = append(all, fmt.Sprintf("only ours has %s = %v", field, ourValue))
			default:
				all = append(all, Fields(field, ourValue, theirValue)...)
			}
		}
		return all
	}
	ol, isList := ours.([]any)
	tl, bothLists := theirs.([]any)
	if isList && bothLists && len(ol) == len(tl) && !strings.HasSuffix(path, "managedFields") {
		var all []string
		for i := range ol {
			all = append(all, Fields(fmt.Sprintf("%s[%d]", path, i), ol[i], tl[i])...)
		}
		return all
	}
	if cmp.Equal(ours, theirs) {
		return nil
	}
	return []string{fmt.Sprintf("%s: ours %v, theirs %v", path, ours, theirs)}
}
