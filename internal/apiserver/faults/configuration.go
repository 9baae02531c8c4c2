package faults

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"

	"github.com/coppice-dev/coppice/internal/apiserver/inprocess"
)

// configurations are the resources by which the server is configured, with the fault of a server that is late to know
// them. It knows them from informers, as kube-apiserver does: those are late.
func configurations(resource string) (Kind, bool) {
	switch resource {
	case "customresourcedefinitions.apiextensions.k8s.io":
		return DefinitionLate, true
	case "mutatingwebhookconfigurations.admissionregistration.k8s.io", "validatingwebhookconfigurations.admissionregistration.k8s.io":
		return WebhookLate, true
	default:
		return "", false
	}
}

// watchConfiguration watches for the control plane itself. Of configurations, the events are late while the plan says so;
// another plan ends that.
func (f *faulty) watchConfiguration(ctx context.Context, key string, opts apistorage.ListOptions) (watch.Interface, error) {
	inner, err := f.Interface.Watch(ctx, key, opts)
	kind, ok := configurations(f.resource)
	if err != nil || !ok || !inprocess.Is(ctx) {
		return inner, err
	}
	late := newLateWatch(inner, f.injector.clock)
	late.released = func() <-chan struct{} {
		_, replaced := f.injector.now()
		return replaced
	}
	begins := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	late.lag = func(event watch.Event) time.Duration {
		if begins { // the present state is no change
			begins = !endsInitialEvents(event)
			return 0
		}
		return f.injector.late(kind)
	}
	go late.pass()
	return late, nil
}

// endsInitialEvents reports whether an event is the bookmark after the present state.
func endsInitialEvents(event watch.Event) bool {
	o, err := meta.Accessor(event.Object)
	return event.Type == watch.Bookmark && err == nil && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
}

// late draws the delay of a fault that does not belong to a request; 0 if the plan does not have it.
func (i *Injector) late(k Kind) time.Duration {
	t := i.current.Load()
	if t == nil {
		return 0
	}
	_, delay := t.time(k)
	return delay
}

// Late reports whether the plan has a fault of a kind.
func (i *Injector) Late(k Kind) bool {
	_, late := i.Plan().any(k)
	return late
}
