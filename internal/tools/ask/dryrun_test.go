package ask

import (
	"errors"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/internal/tools/preview"
)

// denied returns the denial of a webhook that chooses the code.
func denied(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: `admission webhook "w" denied the request: no team`}}
}

// The server accepts a dry run, refuses it, or leaves the question open. What it accepts is settled, unless a controller
// has to change the object afterwards.
func TestAnswersToDryRuns(t *testing.T) {
	resource := schema.GroupResource{Resource: "configmaps"}
	for name, test := range map[string]struct {
		err    error
		policy metav1.DeletionPropagation
		want   string
		counts [2]int // refused and undecided, of an object that a webhook decides about
	}{
		"accepted":             {nil, metav1.DeletePropagationBackground, "the server accepts the request", [2]int{0, 0}},
		"accepted, foreground": {nil, metav1.DeletePropagationForeground, "the server accepts the request", [2]int{0, 1}},
		"refused": {
			apierrors.NewForbidden(resource, "a", errors.New(`admission webhook "w" denied the request: no`)), metav1.DeletePropagationBackground,
			`the server refuses the request: admission webhook "w" denied the request: no`,
			[2]int{1, 1},
		},
		"without the right": {
			apierrors.NewForbidden(resource, "a", errors.New(`User "ann" cannot delete resource "configmaps"`)), metav1.DeletePropagationBackground,
			`the server refuses the request: User "ann" cannot delete resource "configmaps"`,
			[2]int{1, 1},
		},
		"a webhook with side effects": {
			apierrors.NewBadRequest(`admission webhook "w" does not support dry run`), metav1.DeletePropagationBackground,
			`the server does not say whether it accepts the request: admission webhook "w" does not support dry run`,
			[2]int{0, 1},
		},
		"refused with the code of an object that is gone": {
			denied(http.StatusNotFound, metav1.StatusReasonNotFound), metav1.DeletePropagationBackground,
			`the server refuses the request: admission webhook "w" denied the request: no team`,
			[2]int{1, 1},
		},
		"refused with the code of a conflict": {
			denied(http.StatusConflict, metav1.StatusReasonConflict), metav1.DeletePropagationBackground,
			`the server refuses the request: admission webhook "w" denied the request: no team`,
			[2]int{1, 1},
		},
		"gone":    {apierrors.NewNotFound(resource, "a"), metav1.DeletePropagationBackground, "the server does not say whether it accepts the request: it is gone", [2]int{0, 1}},
		"changed": {apierrors.NewConflict(resource, "a", errors.New("version")), metav1.DeletePropagationBackground, "the server does not say whether it accepts the request: it has changed since it was read", [2]int{0, 1}},
		"away":    {errors.New("connection refused"), metav1.DeletePropagationBackground, "the server does not say whether it accepts the request: connection refused", [2]int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			answer := answerTo(test.err, test.policy)
			r := preview.Report{Objects: []preview.ObjectReport{{DecidedBy: []string{"webhook w"}, Answer: answer}}}
			r.Recount()
			if answer.String() != test.want || [2]int{r.Refused, r.Undecided} != test.counts {
				t.Errorf("%q, %d refused and %d undecided; want %q, %v", answer, r.Refused, r.Undecided, test.want, test.counts)
			}
		})
	}
}
