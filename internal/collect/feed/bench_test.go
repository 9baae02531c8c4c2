package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// benchmarkObjects is the number of objects in a benchmark's server.
const benchmarkObjects = 100_000

// BenchmarkFirstList builds the graph of a hundred thousand objects: the stream is decoded,
// turned into observations, and applied. The server costs nothing: it sends bytes that were
// encoded before.
func BenchmarkFirstList(b *testing.B) {
	s := newRecording(b)
	for b.Loop() {
		g := &graph{Graph: ownership.New(), want: benchmarkObjects, complete: make(chan struct{})}
		s.observe(b, g)
		if got := g.Stats().Objects; got != benchmarkObjects {
			b.Fatalf("%d objects in the graph", got)
		}
	}
	b.ReportMetric(float64(benchmarkObjects)*float64(b.N)/b.Elapsed().Seconds(), "objects/s")
}

// BenchmarkWatchEvents is the same for watch events: each changes an object that is known.
func BenchmarkWatchEvents(b *testing.B) {
	s := newRecording(b)
	s.events = true
	for b.Loop() {
		g := &graph{Graph: ownership.New(), want: benchmarkObjects, complete: make(chan struct{}), began: b.StartTimer}
		b.StopTimer()
		s.observe(b, g)
	}
	b.ReportMetric(float64(benchmarkObjects)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// graph is a Sink that expects so many objects in a list, and then, when began is set, so
// many events.
type graph struct {
	mu sync.Mutex
	*ownership.Graph
	want, got int
	began     func() // called when the list is complete
	complete  chan struct{}
}

func (g *graph) Observe(o ownership.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Graph.Observe(o)
	if g.got++; g.got == g.want && g.began != nil {
		close(g.complete)
	}
}

func (g *graph) StartList(kind ownership.Kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Graph.StartList(kind)
}

func (g *graph) Listed(_ ownership.Kind, objects []ownership.Object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Load(objects)
}

func (g *graph) EndList(kind ownership.Kind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.Graph.EndList(kind)
	switch {
	case g.Count(kind) == 0: // the other kinds have none
	case g.began != nil:
		g.began()
	default:
		close(g.complete)
	}
}

func (g *graph) Forget(ownership.UID, string)                 {}
func (g *graph) SetScope(k ownership.Kind, s ownership.Scope) { g.Graph.SetScope(k, s) }
func (g *graph) NewEpoch()                                    {}

// recording is a server with pods, and the bytes that it sends in answer to a watch.
type recording struct {
	*fakeServer
	list, changes []byte
	events        bool // changes follow the list
}

func newRecording(b *testing.B) *recording {
	b.Helper()
	s := &recording{fakeServer: newServer(pods)}
	var list, changes recorded
	list.codec, changes.codec = newCodec(b), newCodec(b)
	uids := make([]types.UID, benchmarkObjects)
	owner := uuid.NewUUID()
	meta := func(i, revision int) *metav1.PartialObjectMetadata {
		if i%8 == 0 {
			owner = uuid.NewUUID()
		}
		return podMeta(uids[i], owner, i, revision)
	}
	for i := range uids {
		uids[i] = uuid.NewUUID()
		list.add(b, watch.Added, meta(i, i+1))
	}
	list.add(b, watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(benchmarkObjects),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}})
	for i := range uids {
		changes.add(b, watch.Modified, meta(i, benchmarkObjects+i+1))
	}
	s.list, s.changes = list.Bytes(), changes.Bytes()
	return s
}

// podMeta returns the metadata of a ReplicaSet's pod.
func podMeta(uid, owner types.UID, i, revision int) *metav1.PartialObjectMetadata {
	name := fmt.Sprintf("service-%06d-5d9c7b8f4", i/8)
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		UID: uid, Namespace: fmt.Sprintf("team-%03d", i/8%200), Name: fmt.Sprintf("%s-%05x", name, i), GenerateName: name + "-",
		ResourceVersion: strconv.Itoa(revision), CreationTimestamp: metav1.Now(),
		Labels: map[string]string{"app": "service", "pod-template-hash": "5d9c7b8f4"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: owner, Controller: new(true), BlockOwnerDeletion: new(true),
		}},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: bytes.Repeat([]byte(`{"f:metadata":{}}`), 60)}, // a kilobyte, as is usual
		}},
	}}
}

// observe runs a feed of the server until the graph is complete.
func (s *recording) observe(b *testing.B, g *graph) {
	b.Helper()
	config := &rest.Config{Host: "http://server", QPS: -1, Transport: s}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	client, err := feed.NewClient(config)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { feed.New(d, client, feed.Config{}).Run(ctx, g) })
	<-g.complete
	cancel()
	running.Wait()
}

// RoundTrip answers a watch of pods with the recorded events.
func (s *recording) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" || r.URL.Path != "/api/v1/pods" {
		return s.fakeServer.RoundTrip(r)
	}
	response := answer(http.StatusOK, nil)
	response.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	body := []io.Reader{bytes.NewReader(s.list)}
	if s.events {
		body = append(body, bytes.NewReader(s.changes))
	}
	rest, wire := io.Pipe() // stays open until the reader closes it
	context.AfterFunc(r.Context(), func() { wire.Close() })
	response.Body = io.NopCloser(io.MultiReader(append(body, rest)...))
	return response, nil
}

// codec encodes watch events as a server does.
type codec struct {
	object, event runtime.Encoder
	framer        runtime.Framer
}

func newCodec(b testing.TB) codec {
	b.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	factory := serializer.NewCodecFactory(scheme)
	return codec{
		object: factory.EncoderForVersion(protobuf.NewSerializer(scheme, scheme), metav1.SchemeGroupVersion),
		event:  protobuf.NewRawSerializer(scheme, scheme),
		framer: protobuf.LengthDelimitedFramer,
	}
}

// recorded is a stream of watch events.
type recorded struct {
	bytes.Buffer
	codec codec
}

func (r *recorded) add(b testing.TB, event watch.EventType, meta *metav1.PartialObjectMetadata) {
	b.Helper()
	var object runtime.Object = meta
	if event == watch.Error {
		object = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError}
	}
	raw, err := runtime.Encode(r.codec.object, object)
	if err != nil {
		b.Fatal(err)
	}
	outer := &metav1.WatchEvent{Type: string(event), Object: runtime.RawExtension{Raw: raw}}
	if err := r.codec.event.Encode(outer, r.codec.framer.NewFrameWriter(&r.Buffer)); err != nil {
		b.Fatal(err)
	}
}
