package builtin

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
)

// TestPeerVersionsAreThoseOfKubernetes checks that each peer version has the same kinds as in Kubernetes, and the same preferred version of its
// group.
func TestPeerVersionsAreThoseOfKubernetes(t *testing.T) {
	got := map[string][]string{}
	eachResource(t, func(_ *testing.T, resource registry.Resource) {
		for _, p := range resource.Peers {
			got[p.GroupVersion.String()] = append(got[p.GroupVersion.String()], resource.Plural)
		}
	})
	want := map[string][]string{"events.k8s.io/v1": {"events"}, "autoscaling/v1": {"horizontalpodautoscalers"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	versions := NewSchemes().Hub.PrioritizedVersionsForGroup("autoscaling")
	if !slices.Equal(versions, []schema.GroupVersion{autoscalingv2.SchemeGroupVersion, autoscalingv1.SchemeGroupVersion}) {
		t.Errorf("versions of autoscaling: %v", versions)
	}
}

// inRow converts an object of a peer version to its row's type, as a codec does.
func inRow(t *testing.T, s registry.Schemes, obj runtime.Object, group string) runtime.Object {
	t.Helper()
	got, err := s.Hub.ConvertToVersion(obj, schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// inPeer converts an object to a peer version, and checks that this does not change it.
func inPeer(t *testing.T, s registry.Schemes, obj runtime.Object, version schema.GroupVersion) runtime.Object {
	t.Helper()
	before := obj.DeepCopyObject()
	got, err := s.Hub.UnsafeConvertToVersion(obj, version)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(before, obj) {
		t.Errorf("the conversion changes the object:\n%s", cmp.Diff(before, obj))
	}
	return got
}

// TestEventsRoundTrip checks that an event loses nothing in events.k8s.io, alone or in a list.
func TestEventsRoundTrip(t *testing.T) {
	schemes := NewSchemes()
	fill := newFuzzer(t, schemes)
	for range fuzzRounds {
		list := &corev1.EventList{}
		fill.Fill(list)
		list.TypeMeta = metav1.TypeMeta{}
		list.Items = append(list.Items, corev1.Event{})
		for i := range list.Items {
			list.Items[i].TypeMeta = metav1.TypeMeta{}
		}
		peer := inPeer(t, schemes, list.DeepCopy(), eventsv1.SchemeGroupVersion).(*eventsv1.EventList)
		if peer.APIVersion != "events.k8s.io/v1" || peer.Kind != "EventList" || len(peer.Items) != len(list.Items) {
			t.Fatalf("it is a %s of %s with %d items", peer.Kind, peer.APIVersion, len(peer.Items))
		}
		back := inRow(t, schemes, peer, "events.k8s.io").(*corev1.EventList)
		back.TypeMeta = metav1.TypeMeta{}
		if !equality.Semantic.DeepEqual(list, back) {
			t.Fatalf("(-sent +got):\n%s", cmp.Diff(list, back))
		}
	}
}

// TestEventFields checks the fields that have another name in events.k8s.io.
func TestEventFields(t *testing.T) {
	schemes := NewSchemes()
	const sent = `{apiVersion: events.k8s.io/v1, kind: Event, metadata: {name: a}, note: hello, type: Normal, regarding: {kind: Pod, name: web}, ` +
		`deprecatedCount: 3, deprecatedSource: {component: c}, reportingController: example.com/c, series: {count: 2, lastObservedTime: "2026-07-01T12:00:00.000000Z"}}`
	json, err := yaml.YAMLToJSONStrict([]byte(sent))
	if err != nil {
		t.Fatal(err)
	}
	obj, _, err := schemes.Codecs.UniversalDecoder().Decode(json, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := obj.(*corev1.Event)
	if e.Message != "hello" || e.InvolvedObject.Name != "web" || e.Count != 3 || e.Source.Component != "c" ||
		e.ReportingController != "example.com/c" || e.Series.Count != 2 || e.Series.LastObservedTime.Year() != 2026 {
		t.Errorf("%+v", e)
	}
}

// TestPeerFieldLabels checks that selectors use the names of their version.
func TestPeerFieldLabels(t *testing.T) {
	schemes := NewSchemes()
	core, events := corev1.SchemeGroupVersion.WithKind("Event"), eventsv1.SchemeGroupVersion.WithKind("Event")
	for _, test := range []struct {
		kind       schema.GroupVersionKind
		label, row string // row: "" if it is refused
	}{
		{events, "regarding.name", "involvedObject.name"},
		{events, "reportingController", "reportingComponent"},
		{events, "type", "type"},
		{events, "metadata.name", "metadata.name"},
		{events, "involvedObject.name", ""},
		{events, "source", ""},
		{core, "involvedObject.name", "involvedObject.name"},
		{core, "regarding.name", ""},
		{autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), "metadata.namespace", "metadata.namespace"},
		{autoscalingv1.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), "spec.x", ""},
	} {
		got, value, err := schemes.Hub.ConvertFieldLabel(test.kind, test.label, "x")
		if got != test.row || (err != nil) != (test.row == "") || err == nil && value != "x" {
			t.Errorf("%s in %s: %q, %q, %v", test.label, test.kind.Group, got, value, err)
		}
	}
	for label := range rowFor(t, "events").Peers[0].FieldLabels {
		if _, _, err := schemes.Hub.ConvertFieldLabel(events, label, "x"); err != nil {
			t.Errorf("%s: %v", label, err)
		}
	}
}

// sentIn returns the context of a request in a group version.
func sentIn(resource registry.Resource, version schema.GroupVersion) *requestIn {
	return &requestIn{resource, version}
}

type requestIn struct {
	resource registry.Resource
	version  schema.GroupVersion
}

// create and update return the causes of the refusal, by field.
func (r *requestIn) create(t *testing.T, schemes registry.Schemes, obj runtime.Object) string {
	t.Helper()
	obj = obj.DeepCopyObject()
	newborn(obj)
	ctx := genericrequest.WithRequestInfo(requestContext(r.resource), &genericrequest.RequestInfo{APIGroup: r.version.Group, APIVersion: r.version.Version})
	return fieldsOf(rest.BeforeCreate(mainREST(t, r.resource, schemes).CreateStrategy, ctx, obj))
}

func (r *requestIn) update(t *testing.T, schemes registry.Schemes, obj, old runtime.Object) string {
	t.Helper()
	obj, old = obj.DeepCopyObject(), old.DeepCopyObject()
	stored(obj)
	stored(old)
	ctx := genericrequest.WithRequestInfo(requestContext(r.resource), &genericrequest.RequestInfo{APIGroup: r.version.Group, APIVersion: r.version.Version})
	return fieldsOf(rest.BeforeUpdate(mainREST(t, r.resource, schemes).UpdateStrategy, ctx, obj, old))
}

// fieldsOf returns the fields that an error names.
func fieldsOf(err error) string {
	var names []string
	for line := range strings.Lines(causes(err)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), ":")
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

// reported returns an event as recorders report it to events.k8s.io.
func reported(change func(*corev1.Event)) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "web.1", Namespace: "default"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web"},
		EventTime: metav1.NewMicroTime(testNow()), Reason: "Started", Action: "Starting", Type: "Normal",
		ReportingController: "example.com/agent", ReportingInstance: "agent-1",
	}
	if change != nil {
		change(e)
	}
	return e
}

// TestEventsAreCheckedAsTheirVersionAsks checks that events.k8s.io has stricter rules than the core group.
func TestEventsAreCheckedAsTheirVersionAsks(t *testing.T) {
	schemes, row := NewSchemes(), rowFor(t, "events")
	inCore, inEvents := sentIn(row, corev1.SchemeGroupVersion), sentIn(row, eventsv1.SchemeGroupVersion)
	long := strings.Repeat("x", 1025)
	for name, test := range map[string]struct {
		change       func(*corev1.Event)
		core, events string // the fields that are refused
	}{
		"as recorders report": {nil, "ok", "ok"},
		"old": {func(e *corev1.Event) {
			e.EventTime, e.ReportingController, e.ReportingInstance, e.Action = metav1.MicroTime{}, "", "", ""
			e.FirstTimestamp, e.LastTimestamp, e.Count, e.Source.Component = metav1.NewTime(testNow()), metav1.NewTime(testNow()), 2, "c"
		}, "ok", "count eventTime firstTimestamp lastTimestamp source"},
		"no reporter": {
			func(e *corev1.Event) { e.ReportingController, e.ReportingInstance = "", "" },
			"reportingComponent reportingInstance", "reportingController reportingInstance",
		},
		"bad reporter":   {func(e *corev1.Event) { e.ReportingController = "a b" }, "reportingComponent", "reportingController"},
		"no action":      {func(e *corev1.Event) { e.Action, e.Reason = "", "" }, "action reason", "action reason"},
		"too long":       {func(e *corev1.Event) { e.Action, e.Reason, e.ReportingInstance, e.Message = long, long, long, long }, "action message reason reportingInstance", "action message reason reportingInstance"},
		"type":           {func(e *corev1.Event) { e.Type = "Odd" }, "ok", "type"},
		"name":           {func(e *corev1.Event) { e.Name = "Web_1" }, "ok", "metadata.name"},
		"series":         {func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 1} }, "ok", "series.count series.lastObservedTime"},
		"about a node":   {func(e *corev1.Event) { e.InvolvedObject = corev1.ObjectReference{Kind: "Node", Name: "n"} }, "ok", "ok"},
		"elsewhere":      {func(e *corev1.Event) { e.InvolvedObject.Namespace = "other" }, "ok", "ok"},
		"old, elsewhere": {func(e *corev1.Event) { e.EventTime, e.InvolvedObject.Namespace = metav1.MicroTime{}, "other" }, "involvedObject.namespace", "eventTime involvedObject.namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inCore.create(t, schemes, reported(test.change)); got != test.core {
				t.Errorf("in the core group: %s, want %s", got, test.core)
			}
			if got := inEvents.create(t, schemes, reported(test.change)); got != test.events {
				t.Errorf("in events.k8s.io: %s, want %s", got, test.events)
			}
		})
	}
}

// TestEventsStayAsTheyWereReported checks that in events.k8s.io only the series of an event can change.
func TestEventsStayAsTheyWereReported(t *testing.T) {
	schemes, row := NewSchemes(), rowFor(t, "events")
	inCore, inEvents := sentIn(row, corev1.SchemeGroupVersion), sentIn(row, eventsv1.SchemeGroupVersion)
	for name, test := range map[string]struct {
		change func(*corev1.Event)
		events string
	}{
		"series": {func(e *corev1.Event) {
			e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(testNow())}
		}, "ok"},
		"series of one": {func(e *corev1.Event) {
			e.Series = &corev1.EventSeries{Count: 1, LastObservedTime: metav1.NewMicroTime(testNow())}
		}, "series.count"},
		"labels":          {func(e *corev1.Event) { e.Labels = map[string]string{"a": "b"} }, "ok"},
		"nanoseconds":     {func(e *corev1.Event) { e.EventTime = metav1.NewMicroTime(testNow().Add(7)) }, "ok"},
		"another time":    {func(e *corev1.Event) { e.EventTime = metav1.NewMicroTime(testNow().Add(7000)) }, "eventTime"},
		"note and type":   {func(e *corev1.Event) { e.Message, e.Type = "x", "Warning" }, "message type"},
		"what it's about": {func(e *corev1.Event) { e.InvolvedObject.Name = "b"; e.Related = &corev1.ObjectReference{Name: "c"} }, "involvedObject related"},
		"reporter":        {func(e *corev1.Event) { e.ReportingController, e.ReportingInstance = "b", "b" }, "reportingController reportingInstance"},
		"reason":          {func(e *corev1.Event) { e.Reason, e.Action = "b", "b" }, "action reason"},
		"what is old":     {func(e *corev1.Event) { e.Count, e.Source.Host, e.FirstTimestamp = 1, "b", metav1.NewTime(testNow()) }, "count firstTimestamp source"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inEvents.update(t, schemes, reported(test.change), reported(nil)); got != test.events {
				t.Errorf("in events.k8s.io: %s, want %s", got, test.events)
			}
			if got := inCore.update(t, schemes, reported(test.change), reported(nil)); got != "ok" {
				t.Errorf("in the core group: %s", got)
			}
		})
	}
	// An event without a reporter, from before the check existed, can still be labelled and released.
	bare := reported(func(e *corev1.Event) { e.ReportingController = "" })
	labelled := bare.DeepCopy()
	labelled.Labels = map[string]string{"a": "b"}
	if got := inEvents.update(t, schemes, labelled, bare); got != "ok" {
		t.Errorf("labelling an event without a reporter: %s", got)
	}
}
