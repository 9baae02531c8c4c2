package refusal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// The texts of k8s.io/apiserver, of k8s.io/apiextensions-apiserver and of our server.
const (
	forbidden = " is forbidden: "
	internal  = "Internal error occurred: "

	validatingPolicy = "ValidatingAdmissionPolicy '"
	mutatingPolicy   = "policy '"
	invalidPolicy    = "policy "
	bound            = "' with binding '"
	policyDenied     = " denied request: "

	webhook           = "admission webhook "
	webhookDenied     = " denied the request"
	calling           = "failed calling webhook "
	conversion        = "conversion webhook for "
	conversionKind    = ", Kind="
	quotaExceeded     = "exceeded quota: "
	quotaRequested    = ", requested: "
	labelled          = protection.ByLabel + protection.Label
	protectedKind     = protection.ByDefault + protection.Label
	rightsUser        = "User "
	rightsLacking     = " cannot "
	restrictedUser    = "user "
	restricted        = " is restricted: "
	lacksRule         = " lacks the rule "
	ownersUndeletable = "cannot set an ownerRef on a resource you can't delete"
	ownersUnblockable = "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on"

	// The answer of a webhook of ours that has not looked up yet whether an object is in use.
	unsurveyed  = "whether objects use "
	notKnownYet = ", which has the label " + protection.Label + "=" + string(protection.Unused) + ", is not known yet: "

	// Answers that end when the server is ready, or its storage.
	notReady   = "not yet ready to handle request"
	etcdPrefix = "etcdserver: "
	rpcPrefix  = "rpc error: code = " // of the client of the storage
	endOfFile  = "error reading from server: EOF"
	timeIsOver = "context deadline exceeded"
	cancelled  = "context canceled"
)

// isPassing reports whether a message is one of a server that is not ready, or whose storage is away or has no time. Such
// failures end by themselves. The other codes of gRPC last, such as Unimplemented.
func isPassing(message string) bool {
	if code, ok := strings.CutPrefix(message, rpcPrefix); ok {
		code, _, _ = strings.Cut(code, " ")
		switch code {
		case "Aborted", "Canceled", "DeadlineExceeded", "ResourceExhausted", "Unavailable":
			return true
		}
		return false
	}
	return slices.ContainsFunc([]string{notReady, etcdPrefix, endOfFile, timeIsOver, cancelled}, func(begin string) bool {
		return strings.HasPrefix(message, begin)
	})
}

// bare returns a message without what NewForbidden and NewInternalError put before the words of the refuser. The name
// of the object is in quotes, so no name looks like more.
func bare(message string) string {
	message = strings.TrimPrefix(message, internal)
	resource, rest, ok := strings.Cut(message, " ")
	if !ok {
		return message
	}
	if resource == "forbidden:" {
		return rest
	}
	if words, unnamed := strings.CutPrefix(" "+rest, forbidden); unnamed {
		return words
	}
	if quotedName, err := strconv.QuotedPrefix(rest); err == nil {
		if words, ok := strings.CutPrefix(rest[len(quotedName):], forbidden); ok {
			return words
		}
	}
	return message
}

// quoted returns the refusal that a text begins with, if it names the refuser.
func quoted(text string) (Refusal, bool) {
	for _, read := range []func(string) (Refusal, bool){readPolicy, readWebhook, readConversion, readQuota, readProtection, readConfirmation, readRights} {
		if r, ok := read(text); ok {
			return r, true
		}
	}
	return Refusal{}, false
}

// readPolicy reads the refusal of an admission policy. Names of policies have no quotes.
func readPolicy(text string) (Refusal, bool) {
	r := Refusal{By: ByPolicy}
	rest, ok := strings.CutPrefix(text, validatingPolicy)
	if !ok {
		r.By = ByMutatingPolicy
		if rest, ok = strings.CutPrefix(text, mutatingPolicy); !ok {
			r.Name, r.Message, ok = cutQuoted(text, invalidPolicy, policyDenied)
			return r, ok
		}
	}
	who, message, ok := strings.Cut(rest, "'"+policyDenied)
	r.Name, r.Binding, _ = strings.Cut(who, bound)
	r.Message = message
	return r, ok
}

func readWebhook(text string) (Refusal, bool) {
	if name, words, ok := cutQuoted(text, webhook, webhookDenied); ok {
		words = strings.TrimPrefix(strings.TrimPrefix(words, ":"), " ")
		return Refusal{By: ByWebhook, Name: name, Message: words}, !isBusy(words)
	}
	if name, words, ok := cutQuoted(text, calling, ""); ok {
		return Refusal{By: ByUnreachableWebhook, Name: name, Message: strings.TrimLeft(words, ":; ")}, true
	}
	return Refusal{}, false
}

// isBusy reports whether the words of a webhook ask to repeat the request, as our server does with code 429
// (protection.Refusal). That code alone does not: webhooks choose codes.
func isBusy(words string) bool {
	return strings.HasPrefix(words, unsurveyed) && strings.Contains(words, notKnownYet)
}

// readConversion reads "conversion webhook for GROUP/VERSION, Kind=KIND failed: …", and other endings.
func readConversion(text string) (Refusal, bool) {
	rest, ok := strings.CutPrefix(text, conversion)
	if !ok {
		return Refusal{}, false
	}
	version, rest, ok := strings.Cut(rest, conversionKind)
	group, _, hasGroup := strings.Cut(version, "/")
	kind, words, named := strings.Cut(rest, " ")
	if !ok || !hasGroup || !named {
		return Refusal{}, false
	}
	return Refusal{By: ByConversion, Name: kind + "." + group, Message: words}, true
}

func readQuota(text string) (Refusal, bool) {
	rest, ok := strings.CutPrefix(text, quotaExceeded)
	name, _, named := strings.Cut(rest, quotaRequested)
	return Refusal{By: ByQuota, Name: name, Message: text}, ok && named
}

func readProtection(text string) (Refusal, bool) {
	return Refusal{By: ByProtection, Message: text}, strings.HasPrefix(text, labelled) || strings.HasPrefix(text, protectedKind)
}

func readConfirmation(text string) (Refusal, bool) {
	return Refusal{By: ByConfirmation, Message: text}, strings.HasPrefix(text, protection.Unconfirmed)
}

func readRights(text string) (Refusal, bool) {
	name, _, ok := cutQuoted(text, rightsUser, rightsLacking)
	if !ok {
		name, _, ok = cutQuoted(text, restrictedUser, restricted)
	}
	return Refusal{By: ByRBAC, Name: name, Message: text}, ok
}

// isAboutRights reports whether a refusal without the name of the user is about its rights.
func isAboutRights(message string) bool {
	return strings.HasPrefix(message, ownersUndeletable) || strings.HasPrefix(message, ownersUnblockable) || strings.Contains(message, lacksRule)
}

// cutQuoted cuts a text into a name in quotes between two texts, and the rest.
func cutQuoted(text, before, after string) (name, rest string, ok bool) {
	rest, ok = strings.CutPrefix(text, before)
	if !ok {
		return "", "", false
	}
	inQuotes, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", "", false
	}
	if name, err = strconv.Unquote(inQuotes); err != nil {
		return "", "", false
	}
	rest, ok = strings.CutPrefix(rest[len(inQuotes):], after)
	return name, rest, ok
}

// Refuser names the refuser for people.
func (r Refusal) Refuser() string {
	switch r.By {
	case ByPolicy:
		return "ValidatingAdmissionPolicy " + r.Name
	case ByMutatingPolicy:
		return "MutatingAdmissionPolicy " + r.Name
	case ByWebhook:
		return "webhook " + r.Name
	case ByUnreachableWebhook:
		return "webhook " + r.Name + ", which does not answer"
	case ByConversion:
		return "the conversion of " + r.Name + ", whose webhook does not answer"
	case ByQuota:
		return "ResourceQuota " + r.Name
	case ByProtection:
		return "its protection"
	case ByConfirmation:
		return "the limits of unconfirmed deletions"
	case ByRBAC:
		return "the lack of a right"
	case ByServer, ByFailure:
	}
	return "the API server"
}

// String returns the refusal for people: the refuser and its words, as the server puts them, so that In reads them
// again.
func (r Refusal) String() string {
	switch r.By {
	case ByPolicy:
		return policyText(validatingPolicy, r)
	case ByMutatingPolicy:
		return policyText(mutatingPolicy, r)
	case ByWebhook:
		if r.Message == "" {
			return webhook + strconv.Quote(r.Name) + webhookDenied
		}
		return webhook + strconv.Quote(r.Name) + webhookDenied + ": " + r.Message
	case ByUnreachableWebhook:
		return calling + strconv.Quote(r.Name) + ": " + r.Message
	case ByConversion:
		kind, group, _ := strings.Cut(r.Name, ".")
		return fmt.Sprintf("%s%s/*%s%s %s", conversion, group, conversionKind, kind, r.Message)
	case ByQuota, ByProtection, ByConfirmation, ByRBAC, ByServer, ByFailure:
	}
	return r.Message
}

func policyText(prefix string, r Refusal) string {
	if r.Binding == "" {
		return prefix + r.Name + "'" + policyDenied + r.Message
	}
	return prefix + r.Name + bound + r.Binding + "'" + policyDenied + r.Message
}
