package feed_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/coppice-dev/coppice/internal/collect/feed"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
	"github.com/coppice-dev/coppice/internal/rules/protection"
)

// seen is a sink that keeps what it gets, as text.
type seen struct {
	mu      sync.Mutex
	objects map[ownership.UID]string
	parts   []int // the sizes of the parts of lists of pods
	ends    int   // of lists of pods
	gone    []ownership.UID
}

func (s *seen) Observe(o ownership.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects == nil {
		s.objects = make(map[ownership.UID]string)
	}
	s.objects[o.UID] = fmt.Sprintf("%+v", o)
}

func (s *seen) Listed(_ ownership.Kind, objects []ownership.Object) {
	for _, o := range objects {
		s.Observe(o)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parts = append(s.parts, len(objects))
}

func (s *seen) EndList(kind ownership.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if kind == podKind {
		s.ends++
	}
}

func (s *seen) Forget(uid ownership.UID, _ string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, uid)
}

func (s *seen) StartList(ownership.Kind)                 {}
func (s *seen) SetScope(ownership.Kind, ownership.Scope) {}
func (s *seen) NewEpoch()                                {}

// sending is a server that answers each watch of pods with the next of these bodies, and keeps the last one open.
type sending struct {
	*fakeServer
	bodies [][]byte
}

func (s *sending) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("watch") == "" || r.URL.Path != "/api/v1/pods" {
		return s.fakeServer.RoundTrip(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	response := answer(http.StatusOK, nil)
	response.Header.Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	body := s.bodies[0]
	if len(s.bodies) > 1 {
		s.bodies = s.bodies[1:]
		response.Body = io.NopCloser(bytes.NewReader(body))
		return response, nil
	}
	open, end := io.Pipe()
	context.AfterFunc(r.Context(), func() { end.Close() })
	response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), open))
	return response, nil
}

// observe runs a feed of the server with a client until stop is called.
func (s *sending) observe(t *testing.T, newClient func(*rest.Config) (metadata.Interface, error)) (sink *seen, stop func()) {
	t.Helper()
	config := &rest.Config{Host: "http://server", QPS: -1, Transport: s}
	d, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	client, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	sink = &seen{}
	running.Go(func() { feed.New(d, client, feed.Config{}).Run(ctx, sink) })
	return sink, func() {
		cancel()
		running.Wait()
	}
}

// clients are the ones that a feed works with.
func clients() map[string]func(*rest.Config) (metadata.Interface, error) {
	return map[string]func(*rest.Config) (metadata.Interface, error){
		"its own":   feed.NewClient,
		"client-go": func(config *rest.Config) (metadata.Interface, error) { return metadata.NewForConfig(config) },
	}
}

// manyObjects returns metadata with all the fields that matter, and some that do not.
func manyObjects() (all []*metav1.PartialObjectMetadata) {
	due := metav1.Unix(1_700_000_000, 0)
	vary := []func(*metav1.ObjectMeta){
		func(*metav1.ObjectMeta) {},
		func(m *metav1.ObjectMeta) { m.Namespace = "" },
		func(m *metav1.ObjectMeta) { m.OwnerReferences = nil },
		func(m *metav1.ObjectMeta) {
			m.DeletionTimestamp, m.Finalizers = &due, []string{"example.com/a", ownership.FinalizerForeground}
		},
		func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &due },
		func(m *metav1.ObjectMeta) { m.Labels[protection.Label] = "always" },
		func(m *metav1.ObjectMeta) { m.Labels[protection.Label] = protection.None },
		func(m *metav1.ObjectMeta) {
			m.OwnerReferences[0].Controller, m.OwnerReferences[0].BlockOwnerDeletion = new(false), nil
			m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: strings.Repeat("n", 200), UID: "no-uuid"})
		},
		func(m *metav1.ObjectMeta) { m.OwnerReferences[0].Kind = strings.Repeat("K", 70_000) },
		func(m *metav1.ObjectMeta) { m.Name = strings.Repeat("x", ownership.MaxName+1) },
		func(m *metav1.ObjectMeta) { m.UID = "" },
	}
	for i := range 2000 {
		object := podMeta(types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), "owner", i, i+1)
		vary[i%len(vary)](&object.ObjectMeta)
		all = append(all, object)
	}
	return all
}

func endOfList(revision string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: revision, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
}

// TestStreamsAreDecodedAsClientGoDoes compares the observations from the bytes of one stream: of the initial events, and of
// events that follow.
func TestStreamsAreDecodedAsClientGoDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := recorded{codec: newCodec(t)}
		all := manyObjects()
		for _, object := range all[:1500] {
			stream.add(t, watch.Added, object)
		}
		stream.add(t, watch.Deleted, all[0]) // after the state of the list
		stream.add(t, watch.Bookmark, endOfList("3000"))
		for i, object := range all[1000:] {
			object.ResourceVersion = fmt.Sprint(3001 + i)
			stream.add(t, watch.Modified, object)
		}
		stream.add(t, watch.Deleted, all[1])
		stream.add(t, watch.Bookmark, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "9000"}})
		found := map[string]*seen{}
		for name, newClient := range clients() {
			s := &sending{newServer(pods), [][]byte{stream.Bytes()}}
			got, stop := s.observe(t, newClient)
			time.Sleep(time.Minute)
			stop()
			if found[name] = got; got.ends != 1 || len(got.gone) != 2 || slices.Max(got.parts) > 512 || len(got.parts) < 3 {
				t.Errorf("%s: %d lists have ended, in parts of %v; %v are gone", name, got.ends, got.parts, got.gone)
			}
		}
		if diff := cmp.Diff(found["client-go"].objects, found["its own"].objects); diff != "" {
			t.Errorf("observations (-client-go +own):\n%s", diff)
		}
		want := 0
		for _, object := range all {
			if object.UID != "" && len(object.Name) <= ownership.MaxName {
				want++
			}
		}
		if n := len(found["its own"].objects); n != want {
			t.Errorf("%d objects were observed, want %d", n, want)
		}
	})
}

// TestListsThatBreakOffAreReadAgain has streams that end or cannot be read before the list is complete.
func TestListsThatBreakOffAreReadAgain(t *testing.T) {
	whole := recorded{codec: newCodec(t)}
	for _, object := range manyObjects()[:700] {
		whole.add(t, watch.Added, object)
	}
	broken := recorded{codec: whole.codec}
	broken.Write(whole.Bytes())
	failing := recorded{codec: whole.codec}
	failing.Write(whole.Bytes())
	failing.add(t, watch.Error, nil)
	whole.add(t, watch.Bookmark, endOfList("3000"))
	for name, first := range map[string][]byte{
		"nothing":           nil,
		"no end":            broken.Bytes(),
		"half an event":     broken.Bytes()[:broken.Len()-100],
		"half a length":     append(bytes.Clone(broken.Bytes()), 0, 0),
		"too long a frame":  append(bytes.Clone(broken.Bytes()), 0x7a, 0, 0, 0),
		"something else":    append(bytes.Clone(broken.Bytes()), 0, 0, 0, 4, 'x', 'x', 'x', 'x'),
		"an error":          failing.Bytes(),
		"JSON that is none": []byte("{]"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sending{newServer(pods), [][]byte{first, whole.Bytes()}}
				got, stop := s.observe(t, feed.NewClient)
				time.Sleep(time.Minute)
				stop()
				if got.ends != 1 || len(got.objects) < 500 {
					t.Errorf("%d lists have ended, %d objects are observed: %v", got.ends, len(got.objects), slices.Sorted(maps.Keys(got.objects))[:1])
				}
			})
		})
	}
}
