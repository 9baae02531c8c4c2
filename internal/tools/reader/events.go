package reader

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

const (
	// fewAbout is the number of objects in a namespace up to which the server selects the Events about each. For more
	// objects, all warnings of the namespace are read.
	fewAbout = 8
	// eventsPage is the number of Events in an answer, and mostEventPages the number of answers for a namespace.
	eventsPage, mostEventPages = 500, 8
	// mostEventNamespaces bounds the namespaces whose Events are read.
	mostEventNamespaces = 32
	// mostEvents bounds the Events that are kept about an object, and mostEventText their messages, in bytes.
	mostEvents, mostEventText = 20, 2048
)

var errTooManyEvents = errors.New("there are too many to be read")

// readEvents reads the warnings about objects.
func (r *Facts) readEvents(ctx context.Context, needs map[ownership.UID]*inventory.Object, known map[ownership.UID]inventory.Fact[[]inventory.Event]) {
	byNamespace := map[string][]*inventory.Object{}
	for _, o := range sorted(needs) {
		namespace := o.Namespace
		if namespace == "" {
			namespace = metav1.NamespaceDefault // where Events about cluster-scoped objects are
		}
		byNamespace[namespace] = append(byNamespace[namespace], o)
		known[o.UID] = inventory.Fact[[]inventory.Event]{Unread: errTooManyEvents.Error()}
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace))[:min(len(byNamespace), mostEventNamespaces)] {
		objects := byNamespace[namespace]
		if len(objects) <= fewAbout {
			for _, o := range objects {
				about, err := r.warnings(ctx, namespace, fields.OneTermEqualSelector("involvedObject.uid", string(o.UID)))
				known[o.UID] = inventory.FactOf(about[o.UID], err)
			}
			continue
		}
		all, err := r.warnings(ctx, namespace, fields.Everything())
		for _, o := range objects {
			known[o.UID] = inventory.FactOf(all[o.UID], err)
		}
	}
}

// warnings reads the warnings of a namespace that meet a selector, by the objects that they are about.
func (r *Facts) warnings(ctx context.Context, namespace string, about fields.Selector) (map[ownership.UID][]inventory.Event, error) {
	found := map[ownership.UID][]inventory.Event{}
	page := metav1.ListOptions{
		Limit: eventsPage, FieldSelector: fields.AndSelectors(about, fields.OneTermEqualSelector("type", corev1.EventTypeWarning)).String(),
	}
	for range mostEventPages {
		list, err := r.client.CoreV1().Events(namespace).List(ctx, page)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			uid := ownership.UID(list.Items[i].InvolvedObject.UID)
			found[uid] = latest(append(found[uid], eventOf(&list.Items[i])))
		}
		if page.Continue = list.Continue; page.Continue == "" {
			return found, nil
		}
	}
	return nil, errTooManyEvents
}

// latest returns the latest Events, the last one first.
func latest(all []inventory.Event) []inventory.Event {
	slices.SortStableFunc(all, func(a, b inventory.Event) int { return b.Last.Compare(a.Last) })
	return all[:min(len(all), mostEvents)]
}

// eventOf returns an Event. Writers that use events.k8s.io set other timestamps than those that use the core group.
func eventOf(e *corev1.Event) inventory.Event {
	one := inventory.Event{Reason: e.Reason, Message: ownership.Excerpt(e.Message, mostEventText), First: e.FirstTimestamp.Time, Last: e.LastTimestamp.Time}
	if one.First.IsZero() {
		one.First = e.EventTime.Time
	}
	if e.Series != nil {
		one.Last = e.Series.LastObservedTime.Time
	}
	if one.First.IsZero() {
		one.First = e.CreationTimestamp.Time
	}
	if one.Last.IsZero() {
		one.Last = one.First
	}
	return one
}
