package controller

import (
	"context"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// A component writes so many Events, and so many warnings in addition: all those of some dozens of pods that start at
// the same time, and a small part of the requests for hundreds of pods. One kubelet writes up to 50 in a second.
const (
	eventsPerSecond   = 20
	warningsPerSecond = 50
	eventsAtOnce      = 100
	// maxEventMessage bounds the written part of a message, in bytes: image names, for example, have any length, and
	// client-go keeps the last 4096 messages.
	maxEventMessage = 1024
)

// EventRecorder records the Events of a component about pods, for people. It writes in the background and counts
// repetitions. The number of Events is bounded: an Event beyond the limit, or that cannot be written, is lost, and no
// caller waits for it. Create one with NewEventRecorder.
type EventRecorder struct {
	component   string
	broadcaster record.EventBroadcaster
	sink        eventSink
	limits      eventLimits
	start       sync.Once
}

// NewEventRecorder returns a recorder for a component. Events that are recorded before Start are lost.
func NewEventRecorder(client kubernetes.Interface, component string) *EventRecorder {
	return &EventRecorder{
		component: component, broadcaster: record.NewBroadcaster(),
		sink:   eventSink{&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")}},
		limits: newEventLimits(),
	}
}

// eventLimits bound the number of Events, those of warnings and the others. They are safe for concurrent use.
type eventLimits struct {
	normal, warnings flowcontrol.PassiveRateLimiter
}

func newEventLimits() eventLimits {
	return eventLimits{
		normal:   flowcontrol.NewTokenBucketPassiveRateLimiter(eventsPerSecond, eventsAtOnce),
		warnings: flowcontrol.NewTokenBucketPassiveRateLimiter(warningsPerSecond, eventsAtOnce),
	}
}

// accept reports whether another Event of that type may be written, and counts it.
func (l eventLimits) accept(kind string) bool {
	if kind == corev1.EventTypeWarning {
		return l.warnings.TryAccept()
	}
	return l.normal.TryAccept()
}

// limitedRecorder is a recorder that loses the Events beyond the limits. Annotated Events are not limited: no controller
// records any.
type limitedRecorder struct {
	record.EventRecorder
	limits eventLimits
}

// Event implements record.EventRecorder.
func (r limitedRecorder) Event(about runtime.Object, kind, reason, message string) {
	if r.limits.accept(kind) {
		r.EventRecorder.Event(about, kind, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (r limitedRecorder) Eventf(about runtime.Object, kind, reason, format string, parts ...any) {
	if r.limits.accept(kind) {
		r.EventRecorder.Eventf(about, kind, reason, format, parts...)
	}
}

// Event records an Event about an object, on a host or on none.
func (r *EventRecorder) Event(host string, about runtime.Object, kind, reason, message string) {
	if !r.limits.accept(kind) {
		return
	}
	source := corev1.EventSource{Component: r.component, Host: host}
	r.broadcaster.NewRecorder(scheme.Scheme, source).WithLogger(logr.Discard()).Event(about, kind, reason, ownership.Excerpt(message, maxEventMessage))
}

// Start begins to write the recorded Events. The caller must also call Run, which ends it.
func (r *EventRecorder) Start() {
	r.start.Do(func() { r.broadcaster.StartRecordingToSink(r.sink) })
}

// Run writes the Events that are recorded until ctx ends.
func (r *EventRecorder) Run(ctx context.Context) {
	r.Start()
	<-ctx.Done()
	r.broadcaster.Shutdown()
}

// eventSink writes Events. The only error that it reports is that a counted Event has expired: client-go then
// writes a new one. It would log other errors, and repeat the request while other Events wait.
type eventSink struct{ *typedcorev1.EventSinkImpl }

// Create implements record.EventSink.
func (s eventSink) Create(e *corev1.Event) (*corev1.Event, error) {
	if written, err := s.EventSinkImpl.Create(e); err == nil {
		return written, nil
	}
	return e, nil
}

// Patch implements record.EventSink.
func (s eventSink) Patch(e *corev1.Event, data []byte) (*corev1.Event, error) {
	switch written, err := s.EventSinkImpl.Patch(e, data); {
	case err == nil:
		return written, nil
	case IsNotFound(err):
		return nil, err
	}
	return e, nil
}
