package namespaces

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Incomplete is the error of a catalogue that lacks some API groups.
type Incomplete struct {
	// Groups are the API groups whose discovery failed.
	Groups map[schema.GroupVersion]error
	// Remembered are the members of Groups whose discovery succeeded before: their types of that time
	// are among the returned ones.
	Remembered map[schema.GroupVersion]bool
	// Unserved names types that were defined a moment ago and that discovery does not include yet.
	Unserved []error
	// Unparsed names group versions that are malformed.
	Unparsed []error
}

// failures counts the groups whose discovery has failed.
func (e *Incomplete) failures() int { return len(e.Groups) + len(e.Unserved) }

func (e *Incomplete) recall(version schema.GroupVersion) {
	if e.Remembered == nil {
		e.Remembered = map[schema.GroupVersion]bool{}
	}
	e.Remembered[version] = true
}

// isMissing reports whether the discovery of a version of a group has failed.
func (e *Incomplete) isMissing(group string) bool {
	for version := range e.Groups {
		if version.Group == group {
			return true
		}
	}
	return false
}

// hides reports whether types may be missing that discovery has never returned.
func (e *Incomplete) hides() bool {
	return len(e.Groups) > len(e.Remembered) || len(e.Unserved) > 0 || len(e.Unparsed) > 0
}

// hidesGroup reports whether types of this API group may be missing.
func (e *Incomplete) hidesGroup(group string) bool {
	for version := range e.Groups {
		if version.Group == group && !e.Remembered[version] {
			return true
		}
	}
	return false
}

// Error names every group that is missing, in a fixed order.
func (e *Incomplete) Error() string {
	var words []string
	for group, err := range e.Groups {
		words = append(words, fmt.Sprintf("%s: %v", group, err))
	}
	for _, err := range slices.Concat(e.Unserved, e.Unparsed) {
		words = append(words, err.Error())
	}
	slices.Sort(words)
	return "unable to retrieve the complete list of server APIs: " + strings.Join(words, ", ")
}
