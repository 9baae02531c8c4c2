package crowd

import (
	"bufio"
	"context"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/coppice-dev/coppice/bench/internal/credentials"
)

const testObjects = 2000

// fixture is a server in the process of the test, with its clients.
type fixture struct {
	*testing.T
	config     *rest.Config
	metadata   metadata.Interface
	control    *Control
	population *Population
}

func serve(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	out, in := io.Pipe()
	go func() {
		err := Serve(ctx, []string{strconv.Itoa(testObjects), dir}, in)
		_ = in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != Ready+"\n" {
		t.Fatalf("the server prints %q: %v", line, err)
	}
	f := &fixture{T: t, population: newPopulation(t, testObjects)}
	kubeconfig := filepath.Join(dir, credentials.KubeconfigFile)
	var err error
	if f.config, err = clientcmd.BuildConfigFromFlags("", kubeconfig); err != nil {
		t.Fatal(err)
	}
	f.config.QPS = -1
	if f.metadata, err = metadata.NewForConfig(f.config); err != nil {
		t.Fatal(err)
	}
	if f.control, err = NewControl(kubeconfig); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) must(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// count returns the number of objects of a resource.
func (f *fixture) count(resource string) int {
	n := 0
	for _, c := range f.population.cohorts {
		if c.kind.Resource == resource {
			n += c.count
		}
	}
	return n
}

// garbage removes an owner that has dependents of a cohort, and returns one of them.
func (f *fixture) garbage(word string) *metav1.PartialObjectMetadata {
	f.Helper()
	for range f.population.Objects {
		_, err := f.control.RemoveOwners(f.Context(), 1)
		f.must(err)
		c := f.population.words[word]
		list, err := f.metadata.Resource(c.kind.GroupVersionResource).List(f.Context(), metav1.ListOptions{})
		f.must(err)
		owners, err := f.metadata.Resource(c.owner.kind.GroupVersionResource).List(f.Context(), metav1.ListOptions{})
		f.must(err)
		for _, object := range list.Items {
			exists := slices.ContainsFunc(owners.Items, func(o metav1.PartialObjectMetadata) bool {
				return len(object.OwnerReferences) == 0 || o.UID == object.OwnerReferences[0].UID
			})
			if !exists && object.OwnerReferences[0].Kind == c.owner.kind.Kind {
				return &object
			}
		}
	}
	f.Fatalf("no object of %s is garbage", word)
	return nil
}

func pods() schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: "pods"}
}

func replicaSets() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}
}

// TestDiscoveryHasAllKinds: aggregated and not.
func TestDiscoveryHasAllKinds(t *testing.T) {
	f := serve(t)
	client, err := kubernetes.NewForConfig(f.config)
	f.must(err)
	legacy := client.Discovery()
	_, lists, err := legacy.ServerGroupsAndResources()
	f.must(err)
	kinds := 0
	for _, list := range lists {
		kinds += len(list.APIResources)
	}
	if want := len(f.population.Kinds); kinds != want {
		t.Errorf("discovery has %d kinds, want %d", kinds, want)
	}
	for _, gv := range []string{"v1", "apps/v1"} {
		list, err := legacy.ServerResourcesForGroupVersion(gv)
		f.must(err)
		if len(list.APIResources) == 0 {
			t.Errorf("%s has no resources", gv)
		}
	}
}

// TestListInPages: pages have all objects, each once, as a list without pages has them.
func TestListInPages(t *testing.T) {
	f := serve(t)
	whole, err := f.metadata.Resource(pods()).List(t.Context(), metav1.ListOptions{})
	f.must(err)
	var paged []metav1.PartialObjectMetadata
	for options := (metav1.ListOptions{Limit: 70}); ; {
		list, err := f.metadata.Resource(pods()).List(t.Context(), options)
		f.must(err)
		paged = append(paged, list.Items...)
		if list.Continue == "" {
			break
		}
		options.Continue = list.Continue
	}
	uid := func(o metav1.PartialObjectMetadata) types.UID { return o.UID }
	if got, want := uids(paged, uid), uids(whole.Items, uid); !slices.Equal(got, want) || len(got) != f.count("pods") {
		t.Errorf("pages have %d pods, the list %d, want %d", len(got), len(want), f.count("pods"))
	}
	name := whole.Items[3].Name
	one, err := f.metadata.Resource(pods()).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	f.must(err)
	if len(one.Items) != 1 || one.Items[0].Name != name {
		t.Errorf("the list of %s has %v", name, one.Items)
	}
	namespace := whole.Items[3].Namespace
	some, err := f.metadata.Resource(pods()).Namespace(namespace).List(t.Context(), metav1.ListOptions{})
	f.must(err)
	want := slices.DeleteFunc(slices.Clone(whole.Items), func(o metav1.PartialObjectMetadata) bool { return o.Namespace != namespace })
	if !slices.Equal(uids(some.Items, uid), uids(want, uid)) {
		t.Errorf("the list of %s has %d pods, want %d", namespace, len(some.Items), len(want))
	}
}

func uids[T any](objects []T, uid func(T) types.UID) []types.UID {
	var all []types.UID
	for _, o := range objects {
		all = append(all, uid(o))
	}
	return all
}

// TestReflectorFollows: a Reflector, which lists by watch, has all objects, and then the changes.
func TestReflectorFollows(t *testing.T) {
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		t.Run(contentType, func(t *testing.T) {
			f := serve(t)
			victim := f.garbage("web-revision")
			gone := make(chan types.UID, 100)
			config := metadata.ConfigFor(f.config)
			config.AcceptContentTypes, config.ContentType = contentType, contentType
			client, err := metadata.NewForConfig(config)
			f.must(err)
			sets := client.Resource(replicaSets())
			_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
				ListerWatcher: &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return sets.List(ctx, o) },
					WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
						return sets.Watch(ctx, o)
					},
				},
				ObjectType: &metav1.PartialObjectMetadata{},
				Handler: cache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
					gone <- object.(*metav1.PartialObjectMetadata).UID
				}},
			})
			go controller.RunWithContext(t.Context())
			if !cache.WaitForCacheSync(t.Context().Done(), controller.HasSynced) {
				t.Fatal("the informer does not sync")
			}
			f.must(sets.Namespace(victim.Namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{}))
			if uid := <-gone; uid != victim.UID {
				t.Errorf("%s is deleted, want %s", uid, victim.UID)
			}
		})
	}
}

// TestWatchFromRevision: a watch from a revision has the changes since.
func TestWatchFromRevision(t *testing.T) {
	f := serve(t)
	victim := f.garbage("web-revision")
	sets := f.metadata.Resource(replicaSets())
	list, err := sets.List(t.Context(), metav1.ListOptions{Limit: 1})
	f.must(err)
	f.must(sets.Namespace(victim.Namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{}))
	w, err := sets.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	f.must(err)
	defer w.Stop()
	e := <-w.ResultChan()
	object, ok := e.Object.(*metav1.PartialObjectMetadata)
	if !ok || e.Type != watch.Deleted || object.UID != victim.UID || object.ResourceVersion <= list.ResourceVersion {
		t.Errorf("the watch from %s has %v", list.ResourceVersion, e)
	}
}

// TestHistoryExpires: a watch from before the kept history is refused.
func TestHistoryExpires(t *testing.T) {
	var h history
	for i := range 3 * keptEvents {
		h.add(event{revision: uint64(i + 1)})
	}
	if _, known := h.after(1); known {
		t.Error("the first event is still known")
	}
	position, known := h.after(3*keptEvents - 1)
	if copied, kept := h.from(position, make([]event, 0, 2)); !known || !kept || len(copied) != 1 || copied[0].revision != 3*keptEvents {
		t.Errorf("after the last but one: %v %t %t", copied, known, kept)
	}
}

// TestDeletionsAreJudged: preconditions hold, and only deletions of garbage are correct.
func TestDeletionsAreJudged(t *testing.T) {
	f := serve(t)
	victim := f.garbage("web-revision")
	f.must(f.control.Begin(t.Context()))
	sets := f.metadata.Resource(replicaSets()).Namespace(victim.Namespace)
	other, version := types.UID("other"), "1"
	for _, when := range []metav1.Preconditions{{UID: &other}, {ResourceVersion: &version}} {
		if err := sets.Delete(t.Context(), victim.Name, metav1.DeleteOptions{Preconditions: &when}); !apierrors.IsConflict(err) {
			t.Errorf("a DELETE with the preconditions %v: %v, want a conflict", when, err)
		}
	}
	holds := metav1.Preconditions{UID: &victim.UID, ResourceVersion: &victim.ResourceVersion}
	f.must(sets.Delete(t.Context(), victim.Name, metav1.DeleteOptions{Preconditions: &holds}))
	if err := sets.Delete(t.Context(), victim.Name, metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a second DELETE: %v, want that it is not found", err)
	}
	if _, err := sets.Get(t.Context(), victim.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("GET: %v, want that it is not found", err)
	}
	report, err := f.control.Report(t.Context())
	f.must(err)
	if report.Correct != 1 || report.Wrong != 0 || report.First == 0 || report.P99 <= 0 {
		t.Errorf("after the deletion of garbage: %+v", report)
	}
	services, err := f.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).List(t.Context(), metav1.ListOptions{})
	f.must(err)
	innocent := services.Items[0]
	f.must(f.metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "services"}).Namespace(innocent.Namespace).
		Delete(t.Context(), innocent.Name, metav1.DeleteOptions{}))
	if report, err = f.control.Report(t.Context()); err != nil || report.Wrong != 1 || len(report.Examples) != 1 {
		t.Errorf("after the deletion of a Service: %+v %v", report, err)
	}
}

// TestPatchRemovesOwners: an object without its reference is no garbage.
func TestPatchRemovesOwners(t *testing.T) {
	f := serve(t)
	victim := f.garbage("web-revision")
	before, err := f.control.Report(t.Context())
	f.must(err)
	sets := f.metadata.Resource(replicaSets()).Namespace(victim.Namespace)
	patched, err := sets.Patch(t.Context(), victim.Name, types.MergePatchType,
		[]byte(`{"metadata":{"uid":"`+string(victim.UID)+`","ownerReferences":null,"finalizers":["a/b"]}}`), metav1.PatchOptions{})
	f.must(err)
	if len(patched.OwnerReferences) != 0 || len(patched.Finalizers) != 1 || patched.ResourceVersion == victim.ResourceVersion {
		t.Errorf("the patched metadata are %v", patched)
	}
	if after, err := f.control.Report(t.Context()); err != nil || after.Garbage != before.Garbage-1 {
		t.Errorf("%d objects are garbage after the patch, %d before: %v", after.Garbage, before.Garbage, err)
	}
}

// TestLeases: a Lease is created, updated and read, and a write of an old version is refused.
func TestLeases(t *testing.T) {
	f := serve(t)
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		config := rest.CopyConfig(f.config)
		config.ContentType, config.AcceptContentTypes = contentType, contentType
		client, err := kubernetes.NewForConfig(config)
		f.must(err)
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}); err != nil {
			t.Errorf("%s: the namespace: %v", contentType, err)
		}
		leases := client.CoordinationV1().Leases(metav1.NamespaceSystem)
		holder, seconds := "somebody", int32(15)
		spec := coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}
		created, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l" + contentType[len(contentType)-4:]}, Spec: spec}, metav1.CreateOptions{})
		f.must(err)
		if _, err := leases.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
			t.Errorf("%s: update: %v", contentType, err)
		}
		if _, err := leases.Update(t.Context(), created, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("%s: update of an old version: %v, want a conflict", contentType, err)
		}
		report, err := f.control.Report(t.Context())
		f.must(err)
		if report.Leader != holder || report.LeaseEnds == 0 {
			t.Errorf("%s: the leader is %q until %d", contentType, report.Leader, report.LeaseEnds)
		}
	}
}

// TestChangesReachWatches: modified objects come as events.
func TestChangesReachWatches(t *testing.T) {
	f := serve(t)
	w, err := f.metadata.Resource(pods()).Watch(t.Context(), metav1.ListOptions{ResourceVersion: formatRevision(firstRevision + testObjects)})
	f.must(err)
	defer w.Stop()
	changed, err := f.control.Change(t.Context(), 2000, 10, 1)
	f.must(err)
	if changed != 2000 {
		t.Errorf("%d objects were changed, want 2000", changed)
	}
	if e := <-w.ResultChan(); e.Type != watch.Modified && e.Type != watch.Deleted {
		t.Errorf("the first event is %v", e)
	}
}
