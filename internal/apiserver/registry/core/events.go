package core

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/table"
)

func events() registry.Resource {
	return registry.Define[corev1.Event, corev1.EventList](registry.Resource{
		GroupVersion:        corev1.SchemeGroupVersion,
		Kind:                "Event",
		Plural:              "events",
		Namespaced:          true,
		ShortNames:          []string{"ev"},
		ValidateName:        path.ValidatePathSegmentName,
		AnyFinalizer:        true,
		CreateOnUpdate:      true,
		UnconditionalUpdate: true,
		TTL:                 time.Hour,
		Peers:               []registry.PeerVersion{eventsPeer()},
	}, eventColumns(), registry.Strategy[*corev1.Event]{
		ValidateIn:       validateEvent,
		SelectableFields: eventFields,
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

func eventColumns() []table.Column {
	columns := []table.Column{
		table.TextAt("Last Seen", "Time since it occurred last.", func(e *corev1.Event, now time.Time) string { return table.Since(lastSeen(e), now) }),
		table.Text("Type", "Normal or Warning.", func(e *corev1.Event) string { return e.Type }),
		table.Text("Reason", "What happened, in one word.", func(e *corev1.Event) string { return e.Reason }),
		table.Text("Object", "Object that the event is about.", func(e *corev1.Event) string {
			return strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name
		}),
	}
	columns = append(columns, table.Wide(
		table.Text("Subobject", "Part of the object.", func(e *corev1.Event) string { return e.InvolvedObject.FieldPath }),
		table.Text("Source", "Component that reports it.", eventSource),
	)...)
	columns = append(columns, table.Text("Message", "What happened, in words.", func(e *corev1.Event) string { return strings.TrimSpace(e.Message) }))
	return append(columns, table.Wide(
		table.TextAt("First Seen", "Time since it occurred first.", func(e *corev1.Event, now time.Time) string { return table.Since(firstSeen(e), now) }),
		table.Number("Count", "How often it has occurred.", timesSeen),
		table.Name(),
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
