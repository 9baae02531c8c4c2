package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/apiserver/auth/bootstrappolicy"
	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

var configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")

// storedMetadata returns the collector's metadata clients: of the store, and of the API.
func (s *server) storedMetadata(t *testing.T) (stored, api metadata.Interface) {
	t.Helper()
	config, err := s.Collector()
	if err != nil {
		t.Fatal(err)
	}
	api, err = metadata.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return s.CollectorMetadata(api), api
}

// streamed are the options of a watch that begins with all objects, as a Reflector sets them.
func streamed() metav1.ListOptions {
	return metav1.ListOptions{SendInitialEvents: new(true), AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}
}

// nextMetadata returns the next event of a watch: its type, and the object's name.
func nextMetadata(t *testing.T, w watch.Interface) (string, *metav1.PartialObjectMetadata) {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			return "end", nil
		}
		meta, ok := e.Object.(*metav1.PartialObjectMetadata)
		if !ok {
			t.Fatalf("%s %v", e.Type, e.Object)
		}
		return strings.TrimSpace(string(e.Type) + " " + meta.Name), meta
	case <-time.After(eventually.Patience):
		t.Fatal("no event comes")
		return "", nil
	}
}

// awaitEvents reads events up to the last expected one, and compares their types and names. It ignores
// bookmarks.
func awaitEvents(t *testing.T, w watch.Interface, want ...string) (last *metav1.PartialObjectMetadata) {
	t.Helper()
	var got []string
	for len(got) < len(want) {
		e, meta := nextMetadata(t, w)
		if e == "BOOKMARK" && meta.Annotations[metav1.InitialEventsAnnotationKey] == "" {
			continue
		}
		got, last = append(got, e), meta
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the events are %v, want %v", got, want)
	}
	return last
}

// Reads from the store return the same objects as the API, page by page, in one namespace or all.
func TestStoredMetadataAreThoseOfTheAPI(t *testing.T) {
	s := sharedServer(t)
	stored, api := s.storedMetadata(t)
	_, instances := s.things(t)
	namespace := instances.create("thing", foreign).GetNamespace()
	c := s.configMaps(t, namespace)
	for i := range 5 {
		c.create(fmt.Sprintf("map-%d", i), foreign)
		instances.create(fmt.Sprintf("thing-%d", i), foreign)
	}
	for _, resource := range []schema.GroupVersionResource{configMapsResource, instances.resource.WithVersion("v1")} {
		want, err := api.Resource(resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range want.Items {
			want.Items[i].ManagedFields = nil
		}
		var got []metav1.PartialObjectMetadata
		for options := (metav1.ListOptions{Limit: 2}); ; {
			page, err := stored.Resource(resource).Namespace(namespace).List(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, page.Items...)
			if left := page.RemainingItemCount; left != nil && int(*left) != len(want.Items)-len(got) {
				t.Errorf("%s: %d remain after %d of %d", resource, *left, len(got), len(want.Items))
			}
			if options.Continue = page.Continue; options.Continue == "" {
				break
			}
		}
		if diff := cmp.Diff(want.Items, got); diff != "" {
			t.Errorf("%s: (-API +store)\n%s", resource, diff)
		}
		everywhere, err := stored.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(everywhere.Items) < len(got) {
			t.Errorf("%s in all namespaces: %d objects, %v", resource, len(everywhere.Items), err)
		}
	}
	if _, err := stored.Resource(configMapsResource).List(t.Context(), metav1.ListOptions{Continue: "nonsense"}); !apierrors.IsBadRequest(err) {
		t.Errorf("a continue token that is none: %v, want 400", err)
	}
	some, err := stored.Resource(configMapsResource).Namespace(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=map-1"})
	if err != nil || len(some.Items) != 1 {
		t.Errorf("with a selector: %v, %v", some, err)
	}
}

// A client that decodes objects itself gets the metadata of the existing ones, of built-in and of custom resources, before
// the events of a watch. Other watches are not for it.
func TestStoredMetadataAreWatchedEncoded(t *testing.T) {
	type encodedWatcher interface {
		WatchEncoded(context.Context, metav1.ListOptions, func([]byte, string) error) (watch.Interface, bool, error)
	}
	s := sharedServer(t)
	stored, api := s.storedMetadata(t)
	_, instances := s.things(t)
	namespace := instances.create("thing", foreign).GetNamespace()
	s.configMaps(t, namespace).create("map", foreign)
	for _, resource := range []schema.GroupVersionResource{configMapsResource, instances.resource.WithVersion("v1")} {
		client := stored.Resource(resource).(encodedWatcher)
		got := map[types.UID]string{}
		var w watch.Interface
		eventually.Succeeds(t, func() error { // until the store has observed the definition
			var isEncoded bool
			var err error
			w, isEncoded, err = client.WatchEncoded(t.Context(), streamed(), func(encoded []byte, version string) error {
				var meta metav1.ObjectMeta
				err := meta.Unmarshal(encoded)
				got[meta.UID] = version + " of " + meta.Name
				return err
			})
			if err == nil && !isEncoded {
				err = fmt.Errorf("a watch of %s is not encoded", resource)
			}
			return err
		})
		awaitEvents(t, w, "BOOKMARK")
		w.Stop()
		list, err := api.Resource(resource).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: %d objects, %v", resource, len(list.Items), err)
		}
		for _, o := range list.Items {
			if want := o.ResourceVersion + " of " + o.Name; got[o.UID] != want {
				t.Errorf("%s: %q, want %q", resource, got[o.UID], want)
			}
		}
		w, _, err = client.WatchEncoded(t.Context(), streamed(), func([]byte, string) error { return errors.New("the client cannot decode it") })
		if err != nil {
			t.Fatal(err)
		}
		if e := <-w.ResultChan(); e.Type != watch.Error {
			t.Errorf("%s: %s, want an error", resource, e.Type)
		}
		if _, isEncoded, err := client.WatchEncoded(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion}, nil); isEncoded || err != nil {
			t.Errorf("%s: a watch from a revision is encoded: %t, %v", resource, isEncoded, err)
		}
	}
	absent := stored.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "absent"}).(encodedWatcher)
	if _, isEncoded, err := absent.WatchEncoded(t.Context(), streamed(), nil); isEncoded || err != nil {
		t.Errorf("a resource that the store does not have: %t, %v", isEncoded, err)
	}
}

// A watch begins with all objects and continues from there; another one resumes it. R3: the event of a
// deletion contains the last state of the object, and the revision of the deletion.
func TestR3_StoredMetadataAreWatched(t *testing.T) {
	s := sharedServer(t)
	stored, _ := s.storedMetadata(t)
	_, instances := s.things(t)
	things := stored.Resource(instances.resource.WithVersion("v1"))
	instances.create("first")
	w, err := things.Watch(t.Context(), streamed())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	listed := awaitEvents(t, w, "ADDED first", "BOOKMARK")
	uid := instances.create("second", foreign).GetUID()
	instances.mustRemove("second", nil)
	marked := awaitEvents(t, w, "ADDED second", "MODIFIED second")
	if marked.DeletionTimestamp == nil || marked.UID != uid {
		t.Errorf("what was marked is %+v", marked)
	}
	if _, err := instances.patch("second", types.MergePatchType, mergeFinalizers()); err != nil {
		t.Fatal(err)
	}
	gone := awaitEvents(t, w, "DELETED second")
	if gone.UID != uid || gone.ResourceVersion <= marked.ResourceVersion {
		t.Errorf("the deletion is of %s at revision %s, want %s after %s", gone.UID, gone.ResourceVersion, uid, marked.ResourceVersion)
	}
	for from, want := range map[string][]string{
		listed.ResourceVersion: {"ADDED second", "MODIFIED second", "DELETED second"},
		marked.ResourceVersion: {"DELETED second"},
	} {
		resumed, err := things.Watch(t.Context(), metav1.ListOptions{ResourceVersion: from, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(math.MaxInt64))})
		if err != nil {
			t.Fatal(err)
		}
		last := awaitEvents(t, resumed, want...)
		if last.UID != uid || last.ResourceVersion != gone.ResourceVersion {
			t.Errorf("from %s, the deletion is of %s at revision %s", from, last.UID, last.ResourceVersion)
		}
		resumed.Stop() // this may stop the decoder within an event, which is an error of the client itself
		for e, ok := <-resumed.ResultChan(); ok; e, ok = <-resumed.ResultChan() {
			isClients := e.Type == watch.Error && apierrors.HasStatusCause(apierrors.FromObject(e.Object), "ClientWatchDecoding")
			if e.Type != watch.Bookmark && !isClients {
				t.Errorf("after that comes %v", e)
			}
		}
	}
}

// At its timeout, a watch sends its current revision, and ends.
func TestStoredMetadataWatchIsLimited(t *testing.T) {
	s := sharedServer(t)
	stored, _ := s.storedMetadata(t)
	now, err := s.store.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, instances := s.things(t)
	w, err := stored.Resource(instances.resource.WithVersion("v1")).Watch(t.Context(), metav1.ListOptions{
		ResourceVersion: fmt.Sprint(now), AllowWatchBookmarks: true, TimeoutSeconds: new(int64(1)),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e, meta := nextMetadata(t, w)
	if e != "BOOKMARK" || meta.ResourceVersion < fmt.Sprint(now) {
		t.Errorf("%s %v, want a bookmark at %d or later", e, meta, now)
	}
	if e, _ := nextMetadata(t, w); e != "end" {
		t.Errorf("then comes %s", e)
	}
}

// When a kind is removed, the deletions of its last objects come first; then it is not found.
func TestStoredMetadataOfAKindThatGoes(t *testing.T) {
	s := sharedServer(t)
	stored, _ := s.storedMetadata(t)
	name, instances := s.things(t)
	instances.create("last")
	w, err := stored.Resource(instances.resource.WithVersion("v1")).Watch(t.Context(), streamed())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	awaitEvents(t, w, "ADDED last", "BOOKMARK")
	s.definitions(t).mustRemove(name, nil)
	for e := ""; e != "DELETED last"; e, _ = nextMetadata(t, w) {
		if e == "end" {
			t.Fatal("the watch ends before the last object is gone")
		}
	}
	awaitEvents(t, w, "end")
	eventually.Agrees(t, func() string {
		again, err := stored.Resource(instances.resource.WithVersion("v1")).Watch(t.Context(), streamed())
		if err == nil {
			again.Stop()
		}
		if _, listed := stored.Resource(instances.resource.WithVersion("v1")).List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) || !apierrors.IsNotFound(listed) {
			return fmt.Sprintf("watch: %v, list: %v, want 404", err, listed)
		}
		return ""
	})
}

// A user who may not list or watch a resource through the API may not do so here, and gets the same error.
func TestStoredMetadataAreForTheAuthorized(t *testing.T) {
	s := startServer(t, nil)
	stored, api := s.storedMetadata(t)
	if _, err := stored.Resource(configMapsResource).List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := typed(t, s.config).RbacV1().ClusterRoleBindings().Delete(t.Context(), bootstrappolicy.Collector, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually.Agrees(t, func() string {
		_, list := stored.Resource(configMapsResource).List(t.Context(), metav1.ListOptions{})
		_, want := api.Resource(configMapsResource).List(t.Context(), metav1.ListOptions{})
		_, watching := stored.Resource(configMapsResource).Watch(t.Context(), streamed())
		if !apierrors.IsForbidden(list) || !apierrors.IsForbidden(watching) || want == nil || list.Error() != want.Error() {
			return fmt.Sprintf("list: %v, want %v; watch: %v", list, want, watching)
		}
		return ""
	})
}

// R18: the error names an object that cannot be decoded.
func TestR18_UnreadableStoredMetadata(t *testing.T) {
	s := startServer(t, nil)
	stored, _ := s.storedMetadata(t)
	namespace := s.namespace(t)
	w, err := stored.Resource(configMapsResource).Watch(t.Context(), streamed())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	s.damage(t, namespace, "damaged")
	failed := false
	for e := range w.ResultChan() {
		failed = failed || e.Type == watch.Error && strings.Contains(apierrors.FromObject(e.Object).Error(), namespace+"/damaged")
	}
	if !failed {
		t.Error("the watch ends without an error that names the object")
	}
	_, err = stored.Resource(configMapsResource).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), namespace+"/damaged") {
		t.Errorf("list: %v, want an internal error that names the object", err)
	}
}
