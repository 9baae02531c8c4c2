package differential

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// objectOutcome is the whole outcome of an experiment.
type objectOutcome struct {
	code     int
	reason   string
	message  string
	causes   []cause
	object   map[string]any
	warnings []string
}

// cause is one cause of a refusal.
type cause struct{ kind, field, message string }

// String returns the cause as it is listed.
func (c cause) String() string { return c.kind + " " + c.field }

// composites are values in messages that are no plain ones: upstream prints them as its internal
// types, and a patched object with its uid.
var composites = regexp.MustCompile(`^((?:Invalid|Unsupported|Duplicate) value): (?:\{.*\}|"\{.*\}"|\[.*\])`)

// addresses and nodePorts are what servers choose for services.
var (
	addresses = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+`)
	nodePorts = regexp.MustCompile(`\b3[0-2]\d{3}\b`)
)

// withoutChoices replaces in a message what servers choose.
func withoutChoices(message string) string {
	message = uuids.ReplaceAllString(storageKeys.ReplaceAllString(message, "Key: (where the server keeps it)"), "(uid)")
	if strings.Contains(message, "range of valid ports") {
		return message
	}
	return nodePorts.ReplaceAllString(addresses.ReplaceAllString(message, "(address)"), "(port)")
}

// storageKeys are where a server keeps objects, which is its own business.
var storageKeys = regexp.MustCompile(`\bKey: /[^,]*`)

func outcomeOf(code int, warnings []string, answer *unstructured.Unstructured) objectOutcome {
	o := objectOutcome{code: code, warnings: warnings}
	if answer.GetKind() != "Status" {
		o.object = normalised(answer)
		return o
	}
	o.reason, _, _ = unstructured.NestedString(answer.Object, "reason")
	o.message, _, _ = unstructured.NestedString(answer.Object, "message")
	o.message = withoutChoices(o.message)
	details, _ := nested(answer.Object, "details")
	for _, c := range asList(details["causes"]) {
		c, _ := c.(map[string]any)
		field, _ := c["field"].(string)
		message, _ := c["message"].(string)
		// After the first line, messages about updates list all fields of internal types.
		message, _, _ = strings.Cut(message, "\n")
		message = withoutChoices(inOrder(message))
		found := cause{fmt.Sprint(c["reason"]), field, composites.ReplaceAllString(message, "$1: (a composite)")}
		if !slices.Contains(o.causes, found) {
			o.causes = append(o.causes, found)
		}
	}
	return o
}

// differences lists the differences of two outcomes, one per line, with the values of each side.
func differences(ours, theirs objectOutcome) []string {
	var all []string
	invalid := func(o objectOutcome) bool { return o.code == http.StatusUnprocessableEntity && len(o.causes) > 0 }
	success := func(o objectOutcome) bool { return o.code < http.StatusBadRequest }
	switch {
	case success(ours) && success(theirs):
		if ours.code != theirs.code {
			all = append(all, fmt.Sprintf("code: ours %d, theirs %d", ours.code, theirs.code))
		}
		all = append(all, wholeDifferences(ours.object, theirs.object)...)
	case invalid(ours) && (invalid(theirs) || success(theirs)), invalid(theirs) && success(ours):
		all = append(all, causeDifferences(ours, theirs)...)
	case ours.code != theirs.code || ours.reason != theirs.reason:
		all = append(all, fmt.Sprintf("answer: ours %d %s %q, theirs %d %s %q", ours.code, ours.reason, ours.message, theirs.code, theirs.reason, theirs.message))
	case ours.message != theirs.message:
		all = append(all, fmt.Sprintf("message: ours %q, theirs %q", ours.message, theirs.message))
	}
	if success(ours) != success(theirs) { // about what is refused there are few
		return all
	}
	for _, w := range ours.warnings {
		if !slices.Contains(theirs.warnings, w) {
			all = append(all, "only ours warns: "+w)
		}
	}
	for _, w := range theirs.warnings {
		if !slices.Contains(ours.warnings, w) {
			all = append(all, "only theirs warns: "+w)
		}
	}
	return all
}

// wholeDifferences compares objects; their managed fields, which follow from the others, if that is
// all that differs.
func wholeDifferences(ours, theirs map[string]any) []string {
	all := objectDifferences("", ours, theirs)
	isManaged := func(line string) bool { return strings.Contains(line, "metadata.managedFields") }
	if slices.ContainsFunc(all, func(line string) bool { return !isManaged(line) }) {
		all = slices.DeleteFunc(all, isManaged)
	}
	return all
}

// causeDifferences compares the causes of refusals, one of which may be none. Where both give the
// same cause, the messages are compared.
func causeDifferences(ours, theirs objectOutcome) []string {
	var all []string
	texts := func(o objectOutcome, which string) []string {
		var messages []string
		for _, c := range o.causes {
			if c.String() == which {
				messages = append(messages, c.message)
			}
		}
		slices.Sort(messages)
		return messages
	}
	seen := map[string]bool{}
	for _, c := range append(slices.Clone(ours.causes), theirs.causes...) {
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
func verdictOf(other objectOutcome) string {
	if other.code < http.StatusBadRequest {
		return "(the other accepts) "
	}
	return ""
}

// objectDifferences lists the fields in which two values differ.
func objectDifferences(path string, ours, theirs any) []string {
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
				all = append(all, objectDifferences(field, ourValue, theirValue)...)
			}
		}
		return all
	}
	ol, isList := ours.([]any)
	tl, bothLists := theirs.([]any)
	if isList && bothLists && len(ol) == len(tl) && !strings.HasSuffix(path, "managedFields") {
		var all []string
		for i := range ol {
			all = append(all, objectDifferences(fmt.Sprintf("%s[%d]", path, i), ol[i], tl[i])...)
		}
		return all
	}
	if cmp.Equal(ours, theirs) {
		return nil
	}
	return []string{fmt.Sprintf("%s: ours %v, theirs %v", path, ours, theirs)}
}

var (
	indexes   = regexp.MustCompile(`\[[0-9]+\]`)
	templates = regexp.MustCompile(`\b(spec\.)?(jobTemplate\.spec\.)?template\.(spec|metadata)\b`)
	longName  = regexp.MustCompile(`a{200,}`)
)

var (
	causeLine  = regexp.MustCompile(`^(only (?:ours|theirs): (?:\(the other accepts\) )?\w+ [^ ]*): .*$`)
	hasLine    = regexp.MustCompile(`^(only (?:ours|theirs) has [^ ]+) = .*$`)
	valueLine  = regexp.MustCompile(`^([^ ]+): ours .*, theirs .*$`)
	namesLine  = regexp.MustCompile(`"[^"]*"`)
	mapKeyLine = regexp.MustCompile(`\[[^\]]+\]`)
)

// key returns a difference in general: where it is and what kind it is of, without the values.
func key(kind, difference string) string {
	switch {
	case causeLine.MatchString(difference):
		difference = causeLine.ReplaceAllString(difference, "$1")
	case hasLine.MatchString(difference):
		difference = hasLine.ReplaceAllString(difference, "$1")
	case strings.HasPrefix(difference, "message of "):
		difference, _, _ = strings.Cut(difference, ": ours ")
	case strings.HasPrefix(difference, "answer: "), strings.HasPrefix(difference, "message: "), strings.Contains(difference, " warns: "):
		difference = namesLine.ReplaceAllString(difference, "…")
	case valueLine.MatchString(difference):
		difference = valueLine.ReplaceAllString(difference, "$1 differs")
	}
	return general(kind, mapKeyLine.ReplaceAllString(difference, "[]"))
}

// general returns a difference without what tells one place from others like it: indexes, and
// the template that a pod is in.
func general(kind, difference string) string {
	text := indexes.ReplaceAllString(longName.ReplaceAllString(difference, "a…"), "[]")
	if inTemplate := templates.ReplaceAllString(text, "$3"); inTemplate != text {
		return "Pod: " + inTemplate
	}
	return kind + ": " + text
}

// inOrder sorts the supported values in a message: upstream names those of some fields in the order of a
// map, which is another one each time.
func inOrder(message string) string {
	const values = "supported values: "
	head, list, found := strings.Cut(message, values)
	if !found {
		return message
	}
	sorted := strings.Split(list, ", ")
	slices.Sort(sorted)
	return head + values + strings.Join(sorted, ", ")
}
