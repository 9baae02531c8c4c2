package registry

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/deletion"
)

func events() Kind {
	return define[corev1.Event, corev1.EventList](Kind{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Event",
		Resource:            "events",
		Why:                 "Where the collector and the controllers say what they did and could not do (OwnerRefInvalidNamespace).",
		Namespaced:          true,
		ShortNames:          []string{"ev"},
		Name:                apivalidation.NameIsDNSSubdomain,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
		TTL:                 time.Hour,
		// The collector does not look at events, so it would not remove its finalizers from them.
		Deletion: deletion.Strategy{CollectorDisabled: true},
	}, eventColumns(), behaviour[*corev1.Event]{
		validate:   validateEvent,
		selectable: eventFields,
	})
}

func eventFields(e *corev1.Event) fields.Set {
	return fields.Set{
		"involvedObject.kind":            e.InvolvedObject.Kind,
		"involvedObject.namespace":       e.InvolvedObject.Namespace,
		"involvedObject.name":            e.InvolvedObject.Name,
		"involvedObject.uid":             string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         cmp.Or(e.Source.Component, e.ReportingController),
		"type":                           e.Type,
	}
}

// validateEvent keeps events where those who may see the object look for them: in
// its namespace, or in "default" if it has none.
func validateEvent(e *corev1.Event) field.ErrorList {
	about := e.InvolvedObject.Namespace
	if e.Namespace == about || (about == "" && e.Namespace == metav1.NamespaceDefault) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")}
}

func eventColumns() []column {
	columns := []column{
		textAt("Last Seen", "Time since it was seen last.", func(e *corev1.Event, now time.Time) string { return since(lastSeen(e), now) }),
		text("Type", "Normal or Warning.", func(e *corev1.Event) string { return e.Type }),
		text("Reason", "What happened, in one word.", func(e *corev1.Event) string { return e.Reason }),
		text("Object", "What it happened to.", func(e *corev1.Event) string {
			return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		}),
	}
	columns = append(columns, wide(
		text("Subobject", "Which part of the object.", func(e *corev1.Event) string { return e.InvolvedObject.FieldPath }),
		text("Source", "Who reports it.", eventSource),
	)...)
	columns = append(columns, text("Message", "What happened, in words.", func(e *corev1.Event) string { return strings.TrimSpace(e.Message) }))
	return append(columns, wide(
		textAt("First Seen", "Time since it was seen first.", func(e *corev1.Event, now time.Time) string { return since(firstSeen(e), now) }),
		number("Count", "How often it was seen.", timesSeen),
		nameColumn(),
	)...)
}

func eventSource(e *corev1.Event) string {
	component := cmp.Or(e.Source.Component, e.ReportingController)
	if host := cmp.Or(e.Source.Host, e.ReportingInstance); host != "" {
		return fmt.Sprintf("%s, %s", component, host)
	}
	return component
}

// An event's times are in different fields, depending on the API that reported it.

func firstSeen(e *corev1.Event) metav1.Time {
	if e.FirstTimestamp.IsZero() {
		return metav1.NewTime(e.EventTime.Time)
	}
	return e.FirstTimestamp
}

func lastSeen(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.NewTime(e.Series.LastObservedTime.Time)
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp
	}
	return firstSeen(e)
}

func timesSeen(e *corev1.Event) int {
	if e.Series != nil {
		return int(e.Series.Count)
	}
	return max(int(e.Count), 1)
}
