package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

func pod(name string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "ns", Name: name, UID: "u"}
}

func run(t *testing.T, client *fake.Clientset) *EventRecorder {
	t.Helper()
	r := NewEventRecorder(client, "kubelet")
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() { stop(); running.Wait() })
	return r
}

func written(t *testing.T, client *fake.Clientset) []corev1.Event {
	t.Helper()
	events, err := client.CoreV1().Events("ns").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return events.Items
}

// An Event names the host that it comes from, and is counted when it repeats.
func TestRepetitionsAreCounted(t *testing.T) {
	client := fake.NewClientset()
	r := run(t, client)
	eventually.Holds(t, "two are written as one", func() bool {
		r.Event("n", pod("p"), corev1.EventTypeWarning, "BackOff", "Back-off")
		all := written(t, client)
		return len(all) == 1 && all[0].Count >= 2 && all[0].Source == corev1.EventSource{Component: "kubelet", Host: "n"} && all[0].InvolvedObject.Name == "p"
	})
}

// No more are written than the bound, and routine does not take the place of warnings.
func TestNumberOfEventsIsBounded(t *testing.T) {
	client := fake.NewClientset()
	r := run(t, client)
	const many = 20000
	for i := range many {
		r.Event("n", pod(fmt.Sprint("p", i)), corev1.EventTypeNormal, "Killing", "Stopping container c")
	}
	eventually.Holds(t, "the warning is written", func() bool {
		r.Event("n", pod("p"), corev1.EventTypeWarning, "Failed", "Error")
		for _, e := range written(t, client) {
			if e.Type == corev1.EventTypeWarning {
				return true
			}
		}
		return false
	})
	if got := len(written(t, client)); got > many/2 {
		t.Errorf("%d Events were written", got)
	}
}

// The controllers lose routine Events beyond the bound, and not their warnings.
func TestNumberOfEventsOfControllersIsBounded(t *testing.T) {
	const many = 1000
	written := record.NewFakeRecorder(2 * many)
	r := limitedRecorder{written, newEventLimits()}
	for i := range many {
		r.Eventf(pod(fmt.Sprint("p", i)), corev1.EventTypeNormal, "SuccessfulCreate", "Created pod: %d", i)
	}
	r.Event(pod("p"), corev1.EventTypeWarning, "FailedCreate", "Error")
	n := len(written.Events)
	for range n - 1 {
		<-written.Events
	}
	if last := <-written.Events; n > many/2 || !strings.HasPrefix(last, corev1.EventTypeWarning) {
		t.Errorf("%d Events were written; the last one is %q", n, last)
	}
}

// An Event that is refused, as in a namespace that is being deleted, holds up no other.
func TestRefusedEventIsLost(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
		e, ok := a.(clienttesting.CreateAction).GetObject().(*corev1.Event)
		if !ok || e.InvolvedObject.Name != "refused" {
			return false, nil, nil
		}
		return true, nil, apierrors.NewForbidden(corev1.Resource("events"), e.Name, nil)
	})
	r := run(t, client)
	eventually.Holds(t, "the other is written", func() bool {
		r.Event("n", pod("refused"), corev1.EventTypeWarning, "Failed", "Error")
		r.Event("n", pod("other"), corev1.EventTypeWarning, "Failed", "Error")
		return len(written(t, client)) == 1
	})
}

// Of a message a kilobyte is written.
func TestMessageIsBounded(t *testing.T) {
	client := fake.NewClientset()
	r := run(t, client)
	eventually.Holds(t, "the Event is written", func() bool {
		r.Event("n", pod("p"), corev1.EventTypeWarning, "Failed", strings.Repeat("x", 1<<20)) // one before the start is lost
		return len(written(t, client)) == 1
	})
	if n := len(written(t, client)[0].Message); n < 1024 || n > 1100 {
		t.Errorf("the message has %d bytes", n)
	}
}
