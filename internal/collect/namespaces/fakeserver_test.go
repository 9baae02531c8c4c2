package namespaces

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	clienttesting "k8s.io/client-go/testing"
)

// fakeServer is an in-memory API server. Namespaces are in client-go's typed fake; contents are
// stored here, with the deletion semantics that fakes lack (UID preconditions, finalizers, pages).
type fakeServer struct {
	t     *testing.T
	typed *fake.Clientset

	mu              sync.Mutex
	types           []Resource
	discovery       error
	objects         map[Resource][]*metav1.PartialObjectMetadata // guarded by mu
	requests        []string                                     // guarded by mu: "verb resource[ name]"
	failureReported bool                                         // guarded by mu: a condition has reported a failed DELETE
	removed         []string                                     // guarded by mu: resources of objects, in the order of removal
	broken          map[string]error                             // guarded by mu: request → its error
	once            map[string]error                             // guarded by mu: the same, for a single request
	before          func(request string)                         // runs before a request is served, not under mu
}

func newFakeServer(t *testing.T, types ...Resource) *fakeServer {
	w := &fakeServer{
		t: t, types: slices.Clone(types),
		typed:   fake.NewClientset(),
		objects: map[Resource][]*metav1.PartialObjectMetadata{},
		broken:  map[string]error{}, once: map[string]error{},
		before: func(string) {},
	}
	w.typed.PrependReactor("*", "namespaces", w.serveNamespace)
	return w
}

// Resources implements Catalogue.
func (w *fakeServer) Resources(context.Context) ([]Resource, error) {
	if err := w.record("discover"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.types), w.discovery
}

// record records a request, and returns its error, if any.
func (w *fakeServer) record(request string) error {
	w.before(request)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, request)
	if err := w.once[request]; err != nil {
		delete(w.once, request)
		return err
	}
	return w.broken[request]
}

// Resource implements metadata.Interface. client-go's fake ignores limit and continue in lists, so
// it cannot be used here.
func (w *fakeServer) Resource(gvr schema.GroupVersionResource) metadata.Getter {
	return contentsClient{w: w, gvr: gvr}
}

// contentsClient serves the three requests that the namespace controller sends for contents.
type contentsClient struct {
	metadata.ResourceInterface // any other request causes a nil dereference

	w         *fakeServer
	gvr       schema.GroupVersionResource
	namespace string
}

func (c contentsClient) Namespace(namespace string) metadata.ResourceInterface {
	c.namespace = namespace
	return c
}

// begin records a request for a type, and returns an error if the type is not served.
func (c contentsClient) begin(request string) (Resource, error) {
	if err := c.w.record(request); err != nil {
		return Resource{}, err
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	for _, r := range c.w.types {
		if r.GroupVersionResource == c.gvr {
			return r, nil
		}
	}
	return Resource{}, apierrors.NewNotFound(c.gvr.GroupResource(), "")
}

func (c contentsClient) List(_ context.Context, options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	r, err := c.begin("list " + c.gvr.Resource)
	if err != nil {
		return nil, err
	}
	return c.w.list(c.namespace, r, options), nil
}

func (c contentsClient) Delete(_ context.Context, name string, options metav1.DeleteOptions, _ ...string) error {
	r, err := c.begin("delete " + c.gvr.Resource + " " + name)
	if err != nil {
		return err
	}
	return c.w.delete(c.namespace, r, name, options)
}

func (c contentsClient) DeleteCollection(_ context.Context, _ metav1.DeleteOptions, options metav1.ListOptions) error {
	r, err := c.begin("deletecollection " + c.gvr.Resource)
	if err != nil {
		return err
	}
	c.w.deleteCollection(c.namespace, r, options)
	return nil
}

func (w *fakeServer) list(namespace string, r Resource, options metav1.ListOptions) *metav1.PartialObjectMetadataList {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.inLocked(namespace, r)
	start, _ := strconv.Atoi(options.Continue)
	end := min(len(all), start+int(options.Limit))
	list := &metav1.PartialObjectMetadataList{}
	for _, o := range all[min(start, end):end] {
		list.Items = append(list.Items, *o.DeepCopy())
	}
	if rest := int64(len(all) - end); rest > 0 {
		list.Continue, list.RemainingItemCount = strconv.Itoa(end), &rest
	}
	return list
}

func (w *fakeServer) delete(namespace string, r Resource, name string, options metav1.DeleteOptions) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground {
		w.t.Errorf("DELETE %s %s: policy %v, want Background", r.Resource, name, options.PropagationPolicy)
	}
	if options.Preconditions == nil || options.Preconditions.UID == nil {
		w.t.Errorf("DELETE %s %s has no uid precondition", r.Resource, name)
		return nil
	}
	for _, o := range w.inLocked(namespace, r) {
		if o.Name != name {
			continue
		}
		if o.UID != *options.Preconditions.UID {
			return apierrors.NewConflict(r.GroupResource(), name, errors.New("uid"))
		}
		w.markLocked(r, o)
		return nil
	}
	return apierrors.NewNotFound(r.GroupResource(), name)
}

func (w *fakeServer) deleteCollection(namespace string, r Resource, options metav1.ListOptions) {
	w.mu.Lock()
	defer w.mu.Unlock()
	selector, err := labels.Parse(options.LabelSelector)
	if err != nil {
		w.t.Error(err)
		return
	}
	page := slices.DeleteFunc(w.inLocked(namespace, r), func(o *metav1.PartialObjectMetadata) bool { return !selector.Matches(labels.Set(o.Labels)) })
	for _, o := range page[:min(len(page), int(options.Limit))] {
		w.markLocked(r, o)
	}
}

// markLocked implements deletion: mark the object if it has a finalizer, or else remove it.
func (w *fakeServer) markLocked(r Resource, o *metav1.PartialObjectMetadata) {
	if len(o.Finalizers) == 0 {
		w.removeLocked(r, o)
		return
	}
	if o.DeletionTimestamp != nil {
		w.t.Errorf("%s %s was deleted again", r.Resource, o.Name)
	}
	o.DeletionTimestamp = &metav1.Time{Time: time.Now()}
}

func (w *fakeServer) removeLocked(r Resource, o *metav1.PartialObjectMetadata) {
	w.objects[r] = slices.DeleteFunc(w.objects[r], func(other *metav1.PartialObjectMetadata) bool { return other == o })
	w.removed = append(w.removed, r.Resource)
}

// existing returns copies of the objects of a resource.
func (w *fakeServer) existing(r Resource) []metav1.PartialObjectMetadata {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []metav1.PartialObjectMetadata
	for _, o := range w.objects[r] {
		all = append(all, *o.DeepCopy())
	}
	return all
}

func (w *fakeServer) inLocked(namespace string, r Resource) []*metav1.PartialObjectMetadata {
	var found []*metav1.PartialObjectMetadata
	for _, o := range w.objects[r] {
		if o.Namespace == namespace {
			found = append(found, o)
		}
	}
	return found
}

// create creates an object; names may repeat, UIDs do not.
func (w *fakeServer) create(namespace string, r Resource, name string, finalizers ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[r] = append(w.objects[r], &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%s-%s-%d", r.Resource, name, len(w.requests))), Finalizers: finalizers,
	}})
}

// replace deletes an object and creates another one of the same name.
func (w *fakeServer) replace(namespace string, r Resource, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.inLocked(namespace, r) {
		if o.Name == name {
			o.UID += "-replaced"
		}
	}
}

// release removes the finalizers of all objects of a type, as their controllers would.
func (w *fakeServer) release(r Resource) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range slices.Clone(w.objects[r]) {
		o.Finalizers = nil
		if o.DeletionTimestamp != nil {
			w.removeLocked(r, o)
		}
	}
}

// serveNamespace adds to client-go's fake: the errors of the test, and finalize.
func (w *fakeServer) serveNamespace(a clienttesting.Action) (bool, runtime.Object, error) {
	request := a.GetVerb() + " namespace"
	if a.GetSubresource() != "" {
		request = a.GetSubresource() + " namespace"
	}
	if verb := a.GetVerb(); verb == "list" || verb == "watch" {
		return false, nil, nil
	}
	if err := w.record(request); err != nil {
		return true, nil, err
	}
	if update, ok := a.(clienttesting.UpdateActionImpl); ok {
		w.mu.Lock()
		for _, c := range update.Object.(*corev1.Namespace).Status.Conditions {
			w.failureReported = w.failureReported || c.Type == corev1.NamespaceDeletionContentFailure && c.Status == corev1.ConditionTrue
		}
		w.mu.Unlock()
	}
	if a.GetSubresource() != "finalize" {
		return false, nil, nil
	}
	ns := a.(clienttesting.CreateActionImpl).Object.(*corev1.Namespace)
	if ns.UID == "" || ns.ResourceVersion == "" {
		w.t.Error("finalize carries no uid and resourceVersion")
	}
	w.mu.Lock()
	for r := range w.objects {
		if left := w.inLocked(ns.Name, r); len(left) > 0 {
			w.t.Errorf("S8: finalized with %d %s left", len(left), r.Resource)
		}
	}
	w.mu.Unlock()
	if len(ns.Spec.Finalizers)+len(ns.Finalizers) > 0 {
		return true, ns, w.typed.Tracker().Update(a.GetResource(), ns, "")
	}
	return true, ns, w.typed.Tracker().Delete(a.GetResource(), "", ns.Name)
}

// terminating creates a namespace that was just deleted; change adapts it to the test.
func (w *fakeServer) terminating(name string, change ...func(*corev1.Namespace)) {
	ns := &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("ns-" + name), ResourceVersion: "1", DeletionTimestamp: &metav1.Time{Time: time.Now()}},
		Spec:       corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}},
		Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating},
	}
	for _, c := range change {
		c(ns)
	}
	if err := w.typed.Tracker().Add(ns); err != nil {
		w.t.Fatal(err)
	}
}

// touch updates a namespace, as a user who labels it does.
func (w *fakeServer) touch(name string) {
	ns := w.namespace(name).DeepCopy()
	ns.Labels = map[string]string{"touched": time.Now().String()}
	if err := w.typed.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), ns, ""); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// namespace returns a namespace, or nil if it is gone.
func (w *fakeServer) namespace(name string) *corev1.Namespace {
	object, err := w.typed.Tracker().Get(corev1.SchemeGroupVersion.WithResource("namespaces"), "", name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return object.(*corev1.Namespace)
}

// condition returns the status and the message of a condition.
func (w *fakeServer) condition(name string, t corev1.NamespaceConditionType) string {
	if ns := w.namespace(name); ns != nil {
		for _, c := range ns.Status.Conditions {
			if c.Type == t {
				return string(c.Status) + ": " + c.Message
			}
		}
	}
	return "absent"
}

// count counts the requests with the given prefix.
func (w *fakeServer) count(prefix string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, r := range w.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

// run starts a controller, which is stopped at the end of the test. It runs in a synctest bubble,
// so that time is virtual.
func (w *fakeServer) run(change ...func(*Config)) *Controller {
	w.t.Helper()
	config := Config{
		Client: w.typed, Metadata: w, Catalogue: w,
		Logger: slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&config)
	}
	c, err := New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- c.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
	})
	return c
}

// goneWithin waits until a namespace is gone, and returns the virtual time that this took.
func (w *fakeServer) goneWithin(name string, limit time.Duration) time.Duration {
	w.t.Helper()
	start := time.Now()
	for ; time.Since(start) <= limit; <-time.After(time.Millisecond) {
		if w.namespace(name) == nil {
			return time.Since(start)
		}
	}
	w.t.Fatalf("namespace %s is still there after %v; requests: %v", name, limit, w.tally())
	return limit
}

// tally counts the requests by kind, for messages.
func (w *fakeServer) tally() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := map[string]int{}
	for _, r := range w.requests {
		counts[r]++
	}
	var lines []string
	for r, n := range counts {
		lines = append(lines, fmt.Sprintf("%s: %d", r, n))
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return lines
}
