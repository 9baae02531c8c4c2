package preview

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/finalizerowner"
)

// Users decide how many owners and finalizers an object has, and how long texts are. A report limits the bytes for
// each object, and counts the rest. It lists all objects, because backups are made from it.
const (
	// mostListed is the limit of owners, finalizers, waits and names of other objects in the report on an object.
	mostListed = 16
	// mostText is the limit of a text, in bytes.
	mostText = 1024
	// mostUnread is the limit of unread resources that the report names.
	mostUnread = 100
)

// MoreReport counts the owners, finalizers and other entries that the report on an object omits.
type MoreReport struct {
	Lost       int `json:"lost,omitempty"`
	KeptBy     int `json:"keptBy,omitempty"`
	Waits      int `json:"waits,omitempty"`
	Finalizers int `json:"finalizers,omitempty"`
	Owners     int `json:"owners,omitempty"`
	DecidedBy  int `json:"decidedBy,omitempty"`
}

// first returns the first elements, and the number of the others.
func first[T any](all []T) (kept []T, more int) {
	kept = all[:min(len(all), mostListed)]
	return slices.Clip(kept), len(all) - len(kept)
}

// texts returns the first texts, each with a bound, and the number of the others.
func texts(all []string) (kept []string, more int) {
	kept, more = first(all)
	if slices.ContainsFunc(kept, func(text string) bool { return len(text) > mostText }) {
		kept = slices.Clone(kept)
		for n := range kept {
			kept[n] = text(kept[n])
		}
	}
	return kept, more
}

// Text bounds a text of a server or of an object.
func Text(all string) string { return text(all) }

func text(all string) string { return ownership.Excerpt(all, mostText) }

// uidOf returns a UID, or a digest if the UID is long.
func uidOf(uid ownership.UID) string {
	return string(ownership.Bounded(ownership.Object{UID: uid}).UID)
}

func bounded(a *finalizerowner.Answer) *finalizerowner.Answer {
	if a == nil {
		return nil
	}
	answer := *a
	answer.Finalizer, answer.Controller = text(answer.Finalizer), text(answer.Controller)
	answer.Evidence, _ = texts(answer.Evidence)
	return &answer
}
