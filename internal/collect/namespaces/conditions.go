package namespaces

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// Conditions returns the conditions of a namespace after a sync, and reports whether they differ
// from the old ones. Types, reasons and messages are upstream's: people and tools read them. Each
// of the five replaces the old one of its type; other conditions are kept, and so is the order
// (NS-10). If no resource type could be discovered, the four about contents are Unknown.
func Conditions(old []corev1.NamespaceCondition, s *Survey, now metav1.Time) (conditions []corev1.NamespaceCondition, changed bool) {
	reported := []corev1.NamespaceCondition{
		discoveryCondition(s), parsingCondition(s), deletionCondition(s), remainingCondition(s), finalizersCondition(s),
	}
	if len(s.Resources) == 0 && s.Discovery != nil {
		for i := range reported[1:] {
			reported[1+i] = corev1.NamespaceCondition{
				Type: reported[1+i].Type, Status: corev1.ConditionUnknown, Reason: "ResourcesUnknown",
				Message: "No resource type could be discovered, so that nothing was looked at",
			}
		}
	}
	conditions = slices.Clone(old)
	for _, current := range reported {
		current.LastTransitionTime = now
		i := slices.IndexFunc(conditions, func(c corev1.NamespaceCondition) bool { return c.Type == current.Type })
		if i < 0 {
			conditions, changed = append(conditions, current), true
			continue
		}
		if conditions[i].Status == current.Status {
			current.LastTransitionTime = conditions[i].LastTransitionTime
		}
		changed = changed || conditions[i] != current
		conditions[i] = current
	}
	return conditions, changed
}

// failing returns a condition that reports a problem; all of them have negative polarity.
func failing(t corev1.NamespaceConditionType, reason, message string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message}
}

func fine(t corev1.NamespaceConditionType, reason, message string) corev1.NamespaceCondition {
	return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
}

func discoveryCondition(s *Survey) corev1.NamespaceCondition {
	failed := 1
	if incomplete, ok := errors.AsType[*Incomplete](s.Discovery); ok {
		failed = incomplete.failures()
	}
	if s.Discovery == nil || failed == 0 {
		return fine(corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "All resources successfully discovered")
	}
	return failing(corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed",
		fmt.Sprintf("Discovery failed for some groups, %d failing: %v", failed, s.Discovery))
}

func parsingCondition(s *Survey) corev1.NamespaceCondition {
	var incomplete *Incomplete
	if !errors.As(s.Discovery, &incomplete) || len(incomplete.Unparsed) == 0 {
		return fine(corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "All legacy kube types successfully parsed")
	}
	return failing(corev1.NamespaceDeletionGVParsingFailure, "GroupVersionParsingFailed", inWords(incomplete.Unparsed))
}

// maxParked bounds the protected objects of a type that a condition names.
const maxParked = 5

func deletionCondition(s *Survey) corev1.NamespaceCondition {
	var errs []error
	for _, r := range s.Resources {
		content, read := s.contents[r]
		switch failure := s.failures[r]; {
		case content.Err != nil:
			errs = append(errs, content.Err)
		case failure != nil && (!read || content.Remaining > 0):
			// A failed DELETE does not matter once the objects are gone.
			errs = append(errs, failure)
		}
		for i, parked := range content.Parked {
			if i == maxParked {
				errs = append(errs, fmt.Errorf("%d more of %s are protected", len(content.Parked)-i, r.GroupResource()))
				break
			}
			errs = append(errs, fmt.Errorf("%s %s is %s", r.GroupResource(), parked.Name, parked.Message))
		}
	}
	if len(errs) == 0 {
		return fine(corev1.NamespaceDeletionContentFailure, "ContentDeleted", "All content successfully deleted, may be waiting on finalization")
	}
	return failing(corev1.NamespaceDeletionContentFailure, "ContentDeletionFailed",
		fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(errs), inWords(errs)))
}

// remainingCondition counts the remaining objects in the stage that blocks the namespace; later
// stages were not listed.
func remainingCondition(s *Survey) corev1.NamespaceCondition {
	var remaining []string
	for r, content := range s.contents {
		if content.Remaining > 0 {
			remaining = append(remaining, fmt.Sprintf("%s.%s has %d resource instances", r.Resource, r.Group, content.Remaining))
		}
	}
	if len(remaining) == 0 {
		return fine(corev1.NamespaceContentRemaining, "ContentRemoved", "All content successfully removed")
	}
	slices.Sort(remaining)
	return failing(corev1.NamespaceContentRemaining, "SomeResourcesRemain",
		"Some resources are remaining: "+strings.Join(remaining, ", "))
}

func finalizersCondition(s *Survey) corev1.NamespaceCondition {
	counts := map[string]int{}
	for _, content := range s.contents {
		for finalizer, n := range content.Finalizers {
			counts[finalizer] += n
		}
	}
	if len(counts) == 0 {
		return fine(corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "All content-preserving finalizers finished")
	}
	var remaining []string
	for i, finalizer := range slices.Sorted(maps.Keys(counts)) {
		if i == maxFinalizers {
			remaining = append(remaining, fmt.Sprintf("more finalizers: %d", len(counts)-i))
			break
		}
		remaining = append(remaining, fmt.Sprintf("%s in %d resource instances", finalizer, counts[finalizer]))
	}
	return failing(corev1.NamespaceFinalizersRemaining, "SomeFinalizersRemain",
		"Some content in the namespace has finalizers remaining: "+strings.Join(remaining, ", "))
}

// maxFinalizers bounds the finalizers that a condition names.
const maxFinalizers = 100

// inWords joins errors in a fixed order, so that the same errors give the same message.
func inWords(errs []error) string {
	errs = slices.SortedFunc(slices.Values(errs), func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	words := make([]string, len(errs))
	for i, err := range errs {
		words[i] = ownership.Excerpt(err.Error(), maxText)
	}
	return strings.Join(words, ", ")
}
