package validate

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An error with bounds must stay as it is, so these are larger: a shortened text has a note.
const (
	// maxCauseText bounds the text of a cause, and the part of a message that is about one, in bytes.
	maxCauseText = 2 * maxErrorText
	// maxCauseField bounds the field of a cause, in bytes.
	maxCauseField = 2 * maxFieldText
)

// BoundedStatus returns an error with the first of its errors only, and with their texts shortened in the middle, as
// NewInvalid does it. It is for errors that k8s.io/apiserver makes: a patch with a field that does not exist quotes the
// object, twice, and an object of its own is refused with one error per such field. The second result reports whether it
// differs.
func BoundedStatus(status metav1.Status) (metav1.Status, bool) {
	message := status.Message
	most, differs := maxCauseText, false
	if status.Details != nil {
		causes := boundedCauses(status.Details.Causes)
		most = min(maxErrorsText+maxCauseText, max(1, len(causes))*maxCauseText)
		if differs = !slices.Equal(causes, status.Details.Causes); differs {
			details := *status.Details
			details.Causes = causes
			status.Details = &details
		}
	}
	status.Message = Shortened(boundedDecodingErrors(message), most)
	return status, differs || status.Message != message
}

// boundedCauses returns the first causes, with shortened texts, and one about the others.
func boundedCauses(causes []metav1.StatusCause) []metav1.StatusCause {
	bounded := slices.Clone(causes)
	size := 0
	for n := range bounded {
		cause := &bounded[n]
		cause.Field = Shortened(cause.Field, maxCauseField)
		if n > MaxErrors || size > maxErrorsText+maxCauseText {
			cause.Message = notListed(len(causes) - n)
			return bounded[:n+1]
		}
		cause.Message = Shortened(boundedDecodingErrors(cause.Message), maxCauseText)
		size += len(cause.Field) + len(cause.Message)
	}
	return bounded
}

// boundedDecodingErrors cuts the list of the fields that a strict decoder has refused. A field whose name looks like the end
// of a list item counts as several.
func boundedDecodingErrors(message string) string {
	const list, separator = "strict decoding error: ", `", `
	at := strings.LastIndex(message, list)
	if at < 0 {
		return message
	}
	errs := strings.SplitN(message[at:], separator, MaxErrors+1)
	if len(errs) <= MaxErrors {
		return message
	}
	return message[:at] + strings.Join(errs[:MaxErrors], separator) + `", ` + notListed(strings.Count(errs[MaxErrors], separator)+1)
}

// notListed is the text in place of errors.
func notListed(errs int) string {
	return fmt.Sprintf("this is the first of at least %d more errors, which the server does not list", errs)
}
