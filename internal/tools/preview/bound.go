package preview

import (
	"slices"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/servedby"
)

// Users decide how many owners and finalizers an object has, and how long texts are. What a report says of one object
// has a bound in bytes, and counts the rest. All objects are listed: a backup is made of them.
const (
	// mostListed is how many owners, finalizers, waits and names of other objects are listed of an object.
	mostListed = 16
	// mostText is how long a text may be, in bytes.
	mostText = 1024
	// mostUnread is how many resources are named that could not be read.
	mostUnread = 100
)

// MoreReport counts what is not listed of an object.
type MoreReport struct {
	Lost       int `json:"lost,omitempty"`
	KeptBy     int `json:"keptBy,omitempty"`
	Waits      int `json:"waits,omitempty"`
	Finalizers int `json:"finalizers,omitempty"`
	Owners     int `json:"owners,omitempty"`
}

// first returns the first elements, and how many others there are.
func first[T any](all []T) (kept []T, more int) {
	kept = all[:min(len(all), mostListed)]
	return slices.Clip(kept), len(all) - len(kept)
}

// texts returns the first texts, each with a bound, and how many others there are.
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

func text(all string) string { return ownership.Excerpt(all, mostText) }

// uidOf returns a UID; a digest stands for a long one.
func uidOf(uid ownership.UID) string {
	return string(ownership.Bounded(ownership.Object{UID: uid}).UID)
}

func bounded(a *servedby.Answer) *servedby.Answer {
	if a == nil {
		return nil
	}
	answer := *a
	answer.Finalizer, answer.Controller = text(answer.Finalizer), text(answer.Controller)
	answer.Evidence, _ = texts(answer.Evidence)
	return &answer
}
