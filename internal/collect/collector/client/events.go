package client

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// EventClient writes Events with client-go.
type EventClient struct {
	events typedcorev1.EventsGetter
	mapper Mapping
	clock  clock.PassiveClock
}

// Mapping maps kinds to resources.
type Mapping interface {
	Mapping(kind ownership.Kind) (gvr schema.GroupVersionResource, namespaced, ok bool)
}

// NewEventClient returns a client of the server that config names.
func NewEventClient(config *rest.Config, mapper Mapping, clock clock.PassiveClock) (*EventClient, error) {
	client, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make event client: %w", err)
	}
	return &EventClient{events: client, mapper: mapper, clock: clock}, nil
}

// Warn writes an Event of type Warning about an object.
func (c *EventClient) Warn(ctx context.Context, regarding ownership.Object, reason, message string) error {
	gvr, _, _ := c.mapper.Mapping(regarding.Kind)
	namespace := regarding.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault // where Events about cluster-scoped objects go
	}
	now := metav1.NewTime(c.clock.Now())
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: eventName(regarding, reason, message)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion:      gvr.GroupVersion().String(),
			Kind:            regarding.Kind.Kind,
			Namespace:       regarding.Namespace,
			Name:            regarding.Name,
			UID:             types.UID(regarding.UID),
			ResourceVersion: regarding.ResourceVersion,
		},
		Type:                corev1.EventTypeWarning,
		Reason:              reason,
		Message:             ownership.Excerpt(message, maxMessage),
		Source:              corev1.EventSource{Component: component},
		ReportingController: component,
		FirstTimestamp:      now,
		LastTimestamp:       now,
		Count:               1,
	}
	_, err := c.events.Events(namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create event about %s: %w", RefOf(regarding), err)
	}
	return nil
}

const component = "coppice"

// maxMessage is how long the message of an Event may be, as in events.k8s.io/v1.
const maxMessage = 1000

// eventName returns the same name for the same message about the same object, so that the Event
// already exists after a restart.
func eventName(regarding ownership.Object, reason, message string) string {
	const maxName = 253 - 1 - 16
	hash := fnv.New64a()
	_, _ = fmt.Fprintf(hash, "%s\x00%s\x00%s", regarding.UID, reason, message)
	name := strings.TrimRight(regarding.Name[:min(len(regarding.Name), maxName)], "-.")
	return fmt.Sprintf("%s.%016x", name, hash.Sum64())
}
