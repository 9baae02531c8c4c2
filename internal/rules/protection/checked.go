package protection

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// On other servers than ours, a webhook checks the users who add entries. Entries that were written before its
// configuration took effect are unchecked. Objects do not record when an annotation was written, but two
// facts prove that entries were checked:
//
//   - The server sets the creationTimestamp of the object. All entries of an object that is newer than the
//     configuration were checked.
//   - The UID of the configuration could not be known before. The webhook checks all entries of an object when
//     a write sets the annotation Checked (Added). So if its value is the UID, all were checked.
//
// Other entries are not looked up: their objects count as existing.
//
// The webhook does not see the annotations that the binding of a pod adds to the pod. A policy beside it
// refuses such a Binding (CheckBinding).

const (
	// Checked is the annotation of an object that is older than the webhook: the UID of the webhook's configuration.
	Checked = "coppice.dev/outlives-checked"
	// Margin is the time in which all API servers observe a new configuration, and by which their clocks
	// may differ. Until it is over, the webhook keeps the UID to itself.
	Margin = time.Minute
)

// Checker is the configuration of the webhook that checks entries.
type Checker struct {
	UID types.UID
	// Since is the configuration's creationTimestamp.
	Since time.Time
	// Gap says why some writes bypass the webhook; empty if all reach it.
	Gap string
	// Defaults are the modes of resources whose deletions reach the webhook without a label.
	Defaults Defaults
}

// CheckedBy returns the protection of an object on a server where a webhook checks entries.
func (p Protection) CheckedBy(c Checker, m metav1.Object) Protection {
	if p.Mode != Outlives {
		return p
	}
	switch {
	case c.Gap != "":
		p.Unchecked = c.Gap
	case c.UID == "":
		p.Unchecked = "nobody checks who adds to that list"
	case m.GetAnnotations()[Checked] == string(c.UID), m.GetCreationTimestamp().After(c.Since.Add(Margin)):
	default:
		p.Unchecked = "the object is older than the webhook that checks who adds to that list, or was made in its first minute"
	}
	return p
}

// Warning returns the warning for the user whose write left an object with entries that are not looked up;
// empty if all entries are.
func (c Checker) Warning(p Protection, now time.Time) string {
	const says = "nobody looks up what this object outlives: "
	switch {
	case p.Unchecked == "":
		return ""
	case c.Gap != "" || c.UID == "":
		return says + p.Unchecked
	case now.Before(c.Since.Add(Margin)):
		return says + "the webhook that checks it is new; write it again in a minute"
	}
	return says + "it is older than the webhook that checks it. To have it checked, annotate it with " + Checked + "=" + string(c.UID)
}

// CheckedValue returns the value of the annotation Checked that a warning asks for; empty if it asks for none.
func CheckedValue(warning string) string {
	_, value, _ := strings.Cut(warning, Checked+"=")
	return value
}
