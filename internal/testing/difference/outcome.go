package difference

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Outcome is the whole outcome of an experiment.
type Outcome struct {
	Code     int
	Reason   string
	Message  string
	Causes   []Cause
	Object   map[string]any
	Warnings []string
}

// Verdict is the answer to a request in one word.
type Verdict string

// The verdicts.
const (
	Accepted Verdict = "accepted"
	Refused  Verdict = "refused"
)

// Verdict returns whether the request was accepted.
func (o Outcome) Verdict() Verdict {
	if o.Code >= http.StatusBadRequest {
		return Refused
	}
	return Accepted
}

// Cause is one cause of a refusal.
type Cause struct{ Kind, Field, Message string }

// String returns the cause as it is listed.
func (c Cause) String() string { return c.Kind + " " + c.Field }

// composites are values in messages that are no plain ones: upstream prints them as its internal
// types, and a patched object with its uid.
var composites = regexp.MustCompile(`^((?:Invalid|Unsupported|Duplicate) value): (?:\{.*\}|"\{.*\}"|\[.*\])`)

// madeUp is the name of an APIService that a server has made up, which is never the right one.
var madeUp = regexp.MustCompile("^Invalid value: \"\\w+\"(: must be `spec\\.version)")

// addresses and nodePorts are the values that servers choose for services.
var (
	addresses = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+`)
	nodePorts = regexp.MustCompile(`\b3[0-2]\d{3}\b`)
)

// withoutChoices replaces in a message what servers choose.
func withoutChoices(message string) string {
	message = madeUp.ReplaceAllString(message, "Invalid value: (a name)$1")
	message = uuids.ReplaceAllString(storageKeys.ReplaceAllString(message, "Key: (where the server keeps it)"), "(uid)")
	if strings.Contains(message, "range of valid ports") {
		return message
	}
	return nodePorts.ReplaceAllString(addresses.ReplaceAllString(message, "(address)"), "(port)")
}

// storageKeys are where a server keeps objects, which is its own business.
var storageKeys = regexp.MustCompile(`\bKey: /[^,]*`)

// OutcomeOf returns the outcome of a request that a server has answered with an object or a Status.
func OutcomeOf(code int, warnings []string, answer *unstructured.Unstructured) Outcome {
	o := Outcome{Code: code, Warnings: warnings}
	if answer.GetKind() != "Status" {
		o.Object = Normalised(answer)
		return o
	}
	o.Reason, _, _ = unstructured.NestedString(answer.Object, "reason")
	o.Message, _, _ = unstructured.NestedString(answer.Object, "message")
	o.Message = withoutChoices(o.Message)
	details, _ := nested(answer.Object, "details")
	for _, c := range asList(details["causes"]) {
		c, _ := c.(map[string]any)
		field, _ := c["field"].(string)
		message, _ := c["message"].(string)
		// After the first line, messages about updates list all fields of internal types.
		message, _, _ = strings.Cut(message, "\n")
		message = withoutChoices(inOrder(message))
		found := Cause{fmt.Sprint(c["reason"]), field, composites.ReplaceAllString(message, "$1: (a composite)")}
		if !slices.Contains(o.Causes, found) {
			o.Causes = append(o.Causes, found)
		}
	}
	return o
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
