// Package refusal names who has refused a request to delete or to change an object: an admission policy, a webhook,
// a quota, RBAC, the protection of the object (R28), the limits of unconfirmed deletions (R32), or the server itself. The answer of an API server goes in, a
// Refusal comes out.
//
//	r, refused := refusal.Of(err) // the answer to a request
//	r, refused := refusal.In(text) // a condition or an Event that quotes such an answer
//
// Servers have no field for the refuser, only texts. text.go has those of k8s.io/apiserver. The words of a refuser, and
// names of objects, are chosen by users: they stand behind the name of the refuser, or in quotes, and are not searched.
//
// A request that failed because of the state of the server, or of the object at that moment, was not refused: the
// client repeats it, and it succeeds without anybody's action. That includes the answer of a webhook of ours that could
// not look up yet whether an object is in use. Refusals of which By.MayPass is true may end like that, too.
//
// An answer may also come from something in front of the server, such as a load balancer. origin.go decides which answers are
// those of an API server (R4).
//
// The package is pure.
package refusal

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// By is the sort of refuser. Metrics have it as a label.
type By string

const (
	// ByPolicy is a ValidatingAdmissionPolicy.
	ByPolicy By = "policy"
	// ByMutatingPolicy is a MutatingAdmissionPolicy that could not be applied.
	ByMutatingPolicy By = "mutating-policy"
	// ByWebhook is an admission webhook that has denied the request.
	ByWebhook By = "webhook"
	// ByUnreachableWebhook is an admission webhook that fails closed, and gave no valid answer.
	ByUnreachableWebhook By = "unreachable-webhook"
	// ByConversion is the conversion webhook of a CustomResourceDefinition, without a valid answer.
	ByConversion By = "conversion"
	// ByQuota is a ResourceQuota.
	ByQuota By = "quota"
	// ByProtection is the label of the object that protects it (R28).
	ByProtection By = "protection"
	// ByConfirmation is the lack of a confirmation of a large deletion (R32).
	ByConfirmation By = "confirmation"
	// ByRBAC is the authorizer, or a check of the user's rights in admission.
	ByRBAC By = "rbac"
	// ByServer is the API server: it never deletes the object, or finds the change invalid.
	ByServer By = "server"
	// ByFailure is an error of the API server of an unknown sort.
	ByFailure By = "failure"
)

// MayPass reports whether a refusal may end without a change of the object, of a policy, a webhook or a right.
func (b By) MayPass() bool {
	return b == ByUnreachableWebhook || b == ByConversion || b == ByFailure
}

const (
	// MaxMessage bounds the words of a refuser, in bytes; ownership.Excerpt adds the length of a longer text.
	MaxMessage = 1024
	// maxName bounds the names in a refusal, in bytes.
	maxName = 253
	// maxQuoting bounds a text that is searched for refusals, in bytes.
	maxQuoting = 8 << 10
)

// Refusal is a refused request.
type Refusal struct {
	By By
	// Name names the refuser: the policy, the webhook, the quota, the kind that is converted ("Widget.example.com"), or
	// the user without the right. It is empty for the others.
	Name string
	// Binding is the binding of a policy. It is empty if the policy itself is not valid.
	Binding string
	// Message has the words of the refuser.
	Message string
}

// Of returns the refusal in the answer to a request. It returns false if there was no answer, or if the request may
// succeed when it is repeated.
func Of(err error) (Refusal, bool) {
	answer := apierrors.APIStatus(nil)
	if !errors.As(err, &answer) {
		return Refusal{}, false
	}
	status := answer.Status()
	if _, protected := protection.Refused(err); protected {
		return bounded(Refusal{By: ByProtection, Message: bare(status.Message)}), true
	}
	message := bare(status.Message)
	if _, unconfirmed := protection.NeedsConfirmation(err); unconfirmed {
		return bounded(Refusal{By: ByConfirmation, Message: message}), true
	}
	// The text is read first: webhooks and policies choose the code and the reason. Both may say that there was a conflict.
	if r, ok := quoted(message); ok {
		return bounded(r), true
	}
	by := byReason(&status, message)
	if at := strings.Index(message, conversion); at >= 0 && (by == ByFailure || status.Reason == metav1.StatusReasonStoreReadError) {
		// Objects that cannot be converted are errors of the storage, which name the object first.
		if r, ok := readConversion(message[at:]); ok {
			return bounded(r), true
		}
	}
	if by != "" {
		return bounded(Refusal{By: by, Message: message}), true
	}
	return Refusal{}, false
}

// ServerAnswers reports whether the API server itself gives an answer of a kind, such as apierrors.IsNotFound. A webhook or a
// policy that refuses a request may choose the same code.
func ServerAnswers(err error, is func(error) bool) bool {
	refused, isRefused := Of(err)
	return is(err) && (!isRefused || refused.By == ByServer)
}

// byReason returns the refuser of an answer whose text names nobody. It is empty if the request may be repeated.
func byReason(s *metav1.Status, message string) By {
	if isPassing(message) {
		return ""
	}
	switch s.Reason {
	case metav1.StatusReasonUnauthorized:
		return ByRBAC
	case metav1.StatusReasonForbidden:
		if isAboutRights(message) {
			return ByRBAC
		}
		return ByServer
	case metav1.StatusReasonBadRequest, metav1.StatusReasonInvalid, metav1.StatusReasonMethodNotAllowed,
		metav1.StatusReasonRequestEntityTooLarge, metav1.StatusReasonStoreReadError:
		return ByServer
	case metav1.StatusReasonInternalError, metav1.StatusReasonUnknown:
		const failed = 500
		if s.Code == failed {
			return ByFailure // gateways answer with other codes
		}
	case metav1.StatusReasonNotFound, metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonGone,
		metav1.StatusReasonExpired, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout,
		metav1.StatusReasonServiceUnavailable, metav1.StatusReasonTooManyRequests, metav1.StatusReasonNotAcceptable,
		metav1.StatusReasonUnsupportedMediaType:
	}
	return ""
}

// In returns the first refusal that a text quotes with the name of the refuser, in its first maxQuoting bytes.
func In(text string) (Refusal, bool) {
	text = text[:min(len(text), maxQuoting)]
	for i := range text {
		if r, ok := quoted(text[i:]); ok {
			return bounded(r), true
		}
	}
	return Refusal{}, false
}

// bounded shortens long parts of a refusal. All parts are copies: refusals are kept, and the answer from which they are cut may be long.
func bounded(r Refusal) Refusal {
	r.Name, r.Binding = strings.Clone(ownership.Excerpt(r.Name, maxName)), strings.Clone(ownership.Excerpt(r.Binding, maxName))
	r.Message = strings.Clone(ownership.Excerpt(r.Message, MaxMessage))
	return r
}
