package table

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// None is the content of a cell without a value.
const None = "<none>"

// OrNone returns s, or None if it is empty.
func OrNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// Join returns the names of things, separated by commas.
func Join[T any](things []T, name func(T) string) string {
	words := make([]string, len(things))
	for i, thing := range things {
		words[i] = name(thing)
	}
	return strings.Join(words, ",")
}

// Selector returns a label selector as kubectl -l accepts it.
func Selector(s *metav1.LabelSelector) string {
	if s == nil {
		return None
	}
	return metav1.FormatLabelSelector(s)
}

// Labels returns a selector that requires all of the labels.
func Labels(labels map[string]string) string {
	return OrNone(pairs(labels))
}

func pairs(m map[string]string) string {
	var words []string
	for key, value := range m {
		words = append(words, key+"="+value)
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}

// Fraction returns "have/want".
func Fraction[N int | int32 | int64](have, want N) string { return fmt.Sprintf("%d/%d", have, want) }
