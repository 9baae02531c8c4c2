package core

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/validate"
)

// The maximum lengths of fields of events with an eventTime.
const (
	maxEventWord    = 128
	maxEventMessage = 1024
)

// validateEvent checks an event. Requirements that the core group has never had apply in events.k8s.io only. Errors use
// the field names of the core group.
func validateEvent(version schema.GroupVersion, e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.EventTime.IsZero() {
		errs = validateEventNamespace(e, metav1.NamespaceDefault)
	} else {
		errs = validateReport(version, e)
	}
	switch {
	case version == corev1.SchemeGroupVersion:
		return errs
	case old == nil:
		return append(errs, validateNewEvent(e)...)
	}
	return append(errs, validateEventUpdate(e, old)...)
}

// validateEventNamespace checks that an event is in the namespace of its object, where users with access to the object
// can see it. An object without a namespace may have events in the namespaces of otherwise.
func validateEventNamespace(e *corev1.Event, otherwise ...string) field.ErrorList {
	about := e.InvolvedObject.Namespace
	if e.Namespace == about || (about == "" && slices.Contains(otherwise, e.Namespace)) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")}
}

// validateReport checks an event with an eventTime. Such an event must name its reporter and its action.
func validateReport(version schema.GroupVersion, e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.InvolvedObject.Namespace == "" {
		errs = validateEventNamespace(e, metav1.NamespaceDefault, metav1.NamespaceSystem)
	}
	controller := field.NewPath("reportingController")
	if version == corev1.SchemeGroupVersion {
		controller = field.NewPath("reportingComponent")
	}
	return slices.Concat(errs,
		validate.Required(e.ReportingController, controller),
		validate.FromMessages(e.ReportingController, controller, validation.IsQualifiedName(e.ReportingController)),
		requiredWord(e.ReportingInstance, field.NewPath("reportingInstance")),
		requiredWord(e.Action, field.NewPath("action")),
		requiredWord(e.Reason, field.NewPath("reason")),
		notLonger(e.Message, field.NewPath("message"), maxEventMessage),
	)
}

func requiredWord(value string, at *field.Path) field.ErrorList {
	return append(validate.Required(value, at), notLonger(value, at, maxEventWord)...)
}

func notLonger(value string, at *field.Path, limit int) field.ErrorList {
	if len(value) <= limit {
		return nil
	}
	return field.ErrorList{field.Invalid(at, "", fmt.Sprintf("can have at most %v characters", limit))}
}

// validateNewEvent checks an event that is created in events.k8s.io.
func validateNewEvent(e *corev1.Event) field.ErrorList {
	errs := slices.Concat(
		apivalidation.ValidateObjectMeta(&e.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata")),
		validateEventFinalizers(e, nil),
		validateEventSeries(e.Series))
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", "has invalid value: "+e.Type))
	}
	for _, retired := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()},
		{"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0},
		{"source", e.Source != corev1.EventSource{}},
	} {
		if retired.set {
			errs = append(errs, field.Invalid(field.NewPath(retired.name), "", "needs to be unset"))
		}
	}
	return errs
}

func validateEventSeries(s *corev1.EventSeries) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	if s.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// validateEventFinalizers checks the finalizers that are not among the old ones.
func validateEventFinalizers(e *corev1.Event, old []string) field.ErrorList {
	known := sets.New(old...)
	var errs field.ErrorList
	for i, finalizer := range e.Finalizers {
		if !known.Has(finalizer) {
			errs = append(errs, registry.ValidateFinalizerDomain(finalizer, field.NewPath("metadata", "finalizers").Index(i))...)
		}
	}
	return errs
}

// validateEventUpdate checks that an update in events.k8s.io changes only the series of an event.
func validateEventUpdate(e, old *corev1.Event) field.ErrorList {
	errs := validateEventFinalizers(e, old.Finalizers)
	if len(validate.Immutable(e.Series, old.Series, nil)) > 0 {
		errs = append(errs, validateEventSeries(e.Series)...)
	}
	constant := func(value, old any, name string) {
		errs = append(errs, validate.Immutable(value, old, field.NewPath(name))...)
	}
	constant(e.InvolvedObject, old.InvolvedObject, "involvedObject")
	constant(e.Reason, old.Reason, "reason")
	constant(e.Message, old.Message, "message")
	constant(e.Source, old.Source, "source")
	constant(e.FirstTimestamp, old.FirstTimestamp, "firstTimestamp")
	constant(e.LastTimestamp, old.LastTimestamp, "lastTimestamp")
	constant(e.Count, old.Count, "count")
	constant(e.Type, old.Type, "type")
	// A time has nanoseconds in protobuf and microseconds in JSON. A client may read an event in JSON and send it back
	// unchanged.
	if !e.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		constant(e.EventTime, old.EventTime, "eventTime")
	}
	constant(e.Action, old.Action, "action")
	constant(e.Related, old.Related, "related")
	constant(e.ReportingController, old.ReportingController, "reportingController")
	constant(e.ReportingInstance, old.ReportingInstance, "reportingInstance")
	return errs
}
