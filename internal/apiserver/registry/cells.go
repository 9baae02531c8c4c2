package registry

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// none is what a cell shows where there is nothing.
const none = "<none>"

func orNone(s string) string {
	if s == "" {
		return none
	}
	return s
}

// names of things, separated by commas.
func joined[T any](things []T, name func(T) string) string {
	words := make([]string, len(things))
	for i, thing := range things {
		words[i] = name(thing)
	}
	return strings.Join(words, ",")
}

// selectorText is a label selector as kubectl -l takes it.
func selectorText(s *metav1.LabelSelector) string {
	if s == nil {
		return none
	}
	return metav1.FormatLabelSelector(s)
}

// labelsText is a set of labels that all have to match.
func labelsText(labels map[string]string) string {
	return orNone(pairs(labels))
}

func pairs(m map[string]string) string {
	var words []string
	for key, value := range m {
		words = append(words, key+"="+value)
	}
	slices.Sort(words)
	return strings.Join(words, ",")
}

// fraction shows how much of what is wanted is there.
func fraction[N int | int32 | int64](have, want N) string { return fmt.Sprintf("%d/%d", have, want) }

// deref is what a pointer points to, or the other value when it is nil.
func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
