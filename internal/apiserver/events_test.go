package apiserver_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// eventsIn returns the events of a namespace in both groups.
func (s *server) eventsIn(t *testing.T, namespace string) (core, current collection) {
	t.Helper()
	about := map[string]any{"kind": "Pod", "namespace": namespace, "name": "web"}
	core = s.collection(t, gvk("", "v1", "Event"), "events", namespace, map[string]any{
		"involvedObject": about, "message": "hello", "reason": "Started", "type": "Normal", "count": int64(3), "source": map[string]any{"component": "c"},
	})
	current = s.collection(t, gvk("events.k8s.io", "v1", "Event"), "events", namespace, map[string]any{
		"regarding": about, "note": "hello", "reason": "Started", "type": "Normal", "action": "Starting", "eventTime": "2026-07-01T12:00:00.000000Z",
		"reportingController": "example.com/c", "reportingInstance": "c-1",
	})
	return core, current
}

// Both groups have the same events, whichever group they were written in.
func TestEventsOfBothGroups(t *testing.T) {
	s := sharedServer(t)
	core, current := s.eventsIn(t, s.namespace(t))
	first := core.create("a")
	inCore, inCurrent := core.watch(first.GetResourceVersion()), current.watch(first.GetResourceVersion())
	second := current.create("b")
	if e := next(t, inCore).Object; e.GetUID() != second.GetUID() || e.GetAPIVersion() != "v1" || e.Object["message"] != "hello" || e.Object["reportingComponent"] != "example.com/c" {
		t.Errorf("in the core group's watch: %v", e.Object)
	}
	if e := next(t, inCurrent).Object; e.GetUID() != second.GetUID() || e.GetAPIVersion() != "events.k8s.io/v1" || e.Object["note"] != "hello" {
		t.Errorf("in the watch of events.k8s.io: %v", e.Object)
	}
	seen := current.get("a")
	if seen.GetUID() != first.GetUID() || seen.GetResourceVersion() != first.GetResourceVersion() || seen.Object["note"] != "hello" ||
		seen.Object["deprecatedCount"] != int64(3) || seen.Object["regarding"].(map[string]any)["name"] != "web" {
		t.Errorf("in events.k8s.io: %v", seen.Object)
	}
	for _, c := range []collection{core, current} {
		if names := c.names(); !slices.Equal(names, []string{"a", "b"}) {
			t.Errorf("%s: %v", c.kind.GroupVersion(), names)
		}
	}
	// Events that are invalid in events.k8s.io can be written in the core group.
	if _, err := current.tryPost(current.named("Not_a_subdomain")); !apierrors.IsInvalid(err) {
		t.Errorf("a name that only the core group accepts: %v", err)
	}
	for _, name := range []string{"c", "b"} {
		o := current.named(name, "nobodys")
		send := current.tryPost
		if name == "b" {
			send = func(o *object) (*object, error) { return current.put(o) }
		}
		if _, err := send(o); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.finalizers[0]") {
			t.Errorf("a finalizer without a domain: %v", err)
		}
	}
	prefixed := current.named("")
	prefixed.SetGenerateName("Not_a_subdomain")
	if _, err := current.tryPost(prefixed); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.generateName") {
		t.Errorf("a prefix that only the core group accepts: %v", err)
	}
	if _, err := current.patch("b", types.MergePatchType, map[string]any{"note": "other"}); !apierrors.IsInvalid(err) {
		t.Errorf("another note: %v", err)
	}
	if _, err := core.patch("b", types.MergePatchType, map[string]any{"message": "other"}); err != nil {
		t.Errorf("another message in the core group: %v", err)
	}
	if _, err := current.removeAll(nil, nil); err != nil {
		t.Fatal(err)
	}
	if left := core.names(); len(left) != 0 {
		t.Errorf("left in the core group: %v", left)
	}
}

// Each group has its own names of fields for field selectors.
func TestEventFieldSelectors(t *testing.T) {
	s := sharedServer(t)
	core, current := s.eventsIn(t, s.namespace(t))
	current.create("a")
	other := current.named("b")
	other.Object["regarding"] = map[string]any{"kind": "Pod", "namespace": "elsewhere", "name": "other"}
	current.post(other)
	for _, test := range []struct {
		in       collection
		selector string
		want     []string // nil: it is refused
	}{
		{core, "involvedObject.name=web", []string{"a"}},
		{current, "regarding.name=web", []string{"a"}},
		{current, "regarding.namespace=elsewhere,reportingController=example.com/c", []string{"b"}},
		{current, "regarding.kind=Pod,type=Normal,reason=Started", []string{"a", "b"}},
		{current, "metadata.name=b", []string{"b"}},
		{current, "involvedObject.name=web", nil},
		{core, "regarding.name=web", nil},
	} {
		answer, err := test.in.send(http.MethodGet, test.in.path+"?fieldSelector="+url.QueryEscape(test.selector), "", nil)
		if test.want == nil {
			if !apierrors.IsBadRequest(err) {
				t.Errorf("%s in %s: %v", test.selector, test.in.kind.GroupVersion(), err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range items(t, answer) {
			names = append(names, o.GetName())
		}
		slices.Sort(names)
		if !slices.Equal(names, test.want) {
			t.Errorf("%s in %s: %v, want %v", test.selector, test.in.kind.GroupVersion(), names, test.want)
		}
	}
}

// Events can be applied in either group. (An apply in one group drops the field managers of the other:
// k8s.io/apiserver has separate schemas for the core group.)
func TestEventsAreApplied(t *testing.T) {
	s := sharedServer(t)
	core, current := s.eventsIn(t, s.namespace(t))
	created := current.create("a")
	for i, c := range []collection{core, current} {
		applied := &object{Object: map[string]any{}}
		applied.SetGroupVersionKind(c.kind)
		applied.SetName("a")
		applied.SetLabels(map[string]string{[]string{"one", "two"}[i]: "yes"})
		if _, err := c.send(http.MethodPatch, c.at("a")+"?fieldManager="+[]string{"one", "two"}[i], "application/apply-patch+yaml", applied); err != nil {
			t.Fatalf("%s: %v", c.kind.GroupVersion(), err)
		}
	}
	got := core.get("a")
	if got.GetUID() != created.GetUID() || got.GetLabels()["one"] != "yes" || got.GetLabels()["two"] != "yes" || got.Object["message"] != "hello" {
		t.Errorf("%v", got.Object)
	}
}

// client-go's recorder for events.k8s.io creates an event, and counts it when it recurs.
func TestEventRecorder(t *testing.T) {
	s := sharedServer(t)
	namespace, client := s.namespace(t), clientOf(t, s)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	ctx, cancel := context.WithCancel(t.Context())
	defer broadcaster.Shutdown()
	defer cancel()
	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	recorder := broadcaster.NewRecorder(scheme.Scheme, "example.com/operator")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: "u"}}
	report := func() { recorder.Eventf(pod, nil, corev1.EventTypeWarning, "Failed", "Mending", "attempt %d", 1) }
	found := func() []eventsv1.Event {
		list, err := client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=web"})
		if err != nil {
			t.Fatal(err)
		}
		return list.Items
	}
	report()
	eventually.Holds(t, "an event", func() bool { return len(found()) == 1 })
	report()
	eventually.Holds(t, "a series of two", func() bool {
		e := found()[0]
		return e.Series != nil && e.Series.Count == 2
	})
	e := found()[0]
	if e.Note != "attempt 1" || e.Reason != "Failed" || e.Action != "Mending" || e.Regarding.UID != "u" || e.ReportingController != "example.com/operator" {
		t.Errorf("%+v", e)
	}
	old, err := client.CoreV1().Events(namespace).Get(ctx, e.Name, metav1.GetOptions{})
	if err != nil || old.Message != "attempt 1" || old.Series.Count != 2 || old.InvolvedObject.Name != "web" {
		t.Errorf("in the core group: %+v, %v", old, err)
	}
}
