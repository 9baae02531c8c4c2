package core

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// eventsPeer is the version of events in events.k8s.io: the same objects, in which some fields have other names.
func eventsPeer() registry.PeerVersion {
	return registry.Peer[eventsv1.Event, eventsv1.EventList, corev1.Event](eventsv1.SchemeGroupVersion, map[string]string{
		"regarding.kind":            "involvedObject.kind",
		"regarding.namespace":       "involvedObject.namespace",
		"regarding.name":            "involvedObject.name",
		"regarding.uid":             "involvedObject.uid",
		"regarding.apiVersion":      "involvedObject.apiVersion",
		"regarding.resourceVersion": "involvedObject.resourceVersion",
		"regarding.fieldPath":       "involvedObject.fieldPath",
		"reason":                    "reason",
		"reportingController":       "reportingComponent",
		"type":                      "type",
	}, eventToCore, eventFromCore)
}

func eventToCore(from *eventsv1.Event, to *corev1.Event) error {
	*to = corev1.Event{
		ObjectMeta:          from.ObjectMeta,
		InvolvedObject:      from.Regarding,
		Reason:              from.Reason,
		Message:             from.Note,
		Source:              from.DeprecatedSource,
		FirstTimestamp:      from.DeprecatedFirstTimestamp,
		LastTimestamp:       from.DeprecatedLastTimestamp,
		Count:               from.DeprecatedCount,
		Type:                from.Type,
		EventTime:           from.EventTime,
		Series:              (*corev1.EventSeries)(from.Series),
		Action:              from.Action,
		Related:             from.Related,
		ReportingController: from.ReportingController,
		ReportingInstance:   from.ReportingInstance,
	}
	return nil
}

func eventFromCore(from *corev1.Event, to *eventsv1.Event) error {
	*to = eventsv1.Event{
		ObjectMeta:               from.ObjectMeta,
		EventTime:                from.EventTime,
		Series:                   (*eventsv1.EventSeries)(from.Series),
		ReportingController:      from.ReportingController,
		ReportingInstance:        from.ReportingInstance,
		Action:                   from.Action,
		Reason:                   from.Reason,
		Regarding:                from.InvolvedObject,
		Related:                  from.Related,
		Note:                     from.Message,
		Type:                     from.Type,
		DeprecatedSource:         from.Source,
		DeprecatedFirstTimestamp: from.FirstTimestamp,
		DeprecatedLastTimestamp:  from.LastTimestamp,
		DeprecatedCount:          from.Count,
	}
	return nil
}
