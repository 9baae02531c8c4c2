package reader

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/tools/inventory"
)

// inNamespace returns objects in a namespace, with the UIDs NAMESPACE-0 and so on.
func inNamespace(namespace string, n int) (objects []*inventory.Object) {
	for i := range n {
		uid := ownership.UID(fmt.Sprintf("%s-%d", namespace, i))
		objects = append(objects, &inventory.Object{Object: ownership.Object{UID: uid, Namespace: namespace, Name: string(uid)}})
	}
	return objects
}

func warning(namespace, about, message string, at time.Time) *corev1.Event {
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: about + message}, InvolvedObject: corev1.ObjectReference{UID: types.UID(about)},
		Type: corev1.EventTypeWarning, Reason: "Refused", Message: message, FirstTimestamp: metav1.NewTime(at), LastTimestamp: metav1.NewTime(at.Add(time.Minute)),
	}
}

// Of each object there are its warnings, the latest first, however many objects are asked about; those about objects
// without a namespace are in the namespace default.
func TestEventsAreThoseAboutTheObject(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	newer := &corev1.Event{
		ObjectMeta: in("shop", "newer"), InvolvedObject: corev1.ObjectReference{UID: "shop-0"}, Type: corev1.EventTypeWarning, Message: "newer",
		EventTime: metav1.NewMicroTime(at), Series: &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(at.Add(time.Hour))},
	}
	client := fake.NewClientset(warning("shop", "shop-0", "one", at), newer, warning("default", "-0", "node", at))
	for _, n := range []int{1, fewAbout + 1} {
		objects := append(inNamespace("shop", n), inNamespace("", 1)...)
		facts := readAll(t, client, func(f *inventory.Facts) {
			for _, o := range objects {
				f.EventsAbout(o)
			}
		})
		events := facts.Events["shop-0"].Value
		if len(events) != 2 || events[0].Message != "newer" || !events[0].Last.Equal(at.Add(time.Hour)) || !events[0].First.Equal(at) ||
			events[1] != (inventory.Event{Reason: "Refused", Message: "one", First: at, Last: at.Add(time.Minute)}) {
			t.Errorf("%d objects: %+v", n, events)
		}
		if events := facts.Events["-0"].Value; len(events) != 1 || events[0].Message != "node" {
			t.Errorf("about a cluster-scoped object: %+v", events)
		}
	}
}

func TestEventsAreBounded(t *testing.T) {
	long := strings.Repeat("m", 10*mostEventText)
	requests, endless := 0, true
	client := fake.NewClientset()
	client.PrependReactor("list", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		requests++
		list := &corev1.EventList{}
		for range eventsPage {
			list.Items = append(list.Items, *warning(a.GetNamespace(), a.GetNamespace()+"-0", long, time.Unix(1, 0)))
		}
		if endless {
			list.Continue = "more"
		}
		return true, list, nil
	})
	ask := func(objects ...*inventory.Object) *inventory.Facts {
		requests = 0
		return readAll(t, client, func(f *inventory.Facts) {
			for _, o := range objects {
				f.EventsAbout(o)
			}
		})
	}
	if facts := ask(inNamespace("shop", 1000)...); requests != mostEventPages || facts.Events["shop-999"].Unread == "" {
		t.Errorf("%d requests, %+v", requests, facts.Events["shop-999"])
	}
	endless = false
	var everywhere []*inventory.Object
	for n := range 2 * mostEventNamespaces {
		everywhere = append(everywhere, inNamespace(fmt.Sprintf("ns%02d", n), 1)...)
	}
	facts := ask(everywhere...)
	if requests != mostEventNamespaces || facts.Events["ns63-0"].Unread == "" {
		t.Errorf("%d requests, %+v", requests, facts.Events["ns63-0"])
	}
	events := facts.Events["ns00-0"].Value
	if len(events) != mostEvents || len(events[0].Message) > mostEventText+100 {
		t.Errorf("%d Events of %d bytes", len(events), len(events[0].Message))
	}
}
