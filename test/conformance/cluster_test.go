package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/coppice-dev/coppice/internal/testing/eventually"
)

// cluster is the server as one test sees it: a namespace of its own, and what the test does
// there.
type cluster struct {
	t      testing.TB
	server *server
	space  string

	mu   sync.Mutex
	made []object // guarded by mu; every object that was created, to clean up
}

// run makes the names of this run's namespaces differ from those of any other run
// against the same server.
var (
	run    = string(uuid.NewUUID())[:6]
	spaces atomic.Int64
)

var listOne = metav1.ListOptions{Limit: 1}

func newCluster(t testing.TB, s *server) *cluster {
	t.Helper()
	record(t)
	w := &cluster{t: t, server: s, space: fmt.Sprintf("conformance-%s-%d", run, spaces.Add(1))}
	_, err := s.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.space}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create namespace: %v", err)
	}
	t.Cleanup(w.cleanUp)
	return w
}

// another returns a second namespace of the same test.
func (w *cluster) another() *cluster {
	w.t.Helper()
	return newCluster(w.t, w.server)
}

// cleanUp removes what is left, finalizers or not. It does not wait, and a server
// without a namespace controller keeps the namespace as Terminating.
func (w *cluster) cleanUp() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, o := range slices.Backward(w.made) {
		client := w.objects(o)
		err := client.Delete(ctx, o.name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &o.uid}, GracePeriodSeconds: new(int64(0)),
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		if err != nil {
			continue // gone, or under this name there is another
		}
		_, _ = client.Patch(ctx, o.name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, o.uid), metav1.PatchOptions{})
	}
	_ = w.server.kube.CoreV1().Namespaces().Delete(ctx, w.space, metav1.DeleteOptions{})
}

// kind is a kind of objects, and how to create one.
type kind struct {
	schema.GroupVersionResource
	name    string
	cluster bool // in no namespace
	body    map[string]any
}

func (k kind) apiVersion() string { return k.GroupVersion().String() }

var (
	configMaps = core("configmaps", "ConfigMap", nil)
	secrets    = core("secrets", "Secret", nil)
	pods       = core("pods", "Pod", map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "main", "image": "none"}},
	}})
	replicationControllers = core("replicationcontrollers", "ReplicationController", map[string]any{"spec": workload(0, map[string]any{"app": "conformance"})})
	replicaSets            = kind{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "replicasets"}, "ReplicaSet", false, replicated(0)}
	deployments            = kind{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment", false, replicated(0)}
	jobs                   = kind{schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}, "Job", false, map[string]any{"spec": suspendedJob()}}
	cronJobs               = kind{schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}, "CronJob", false, map[string]any{"spec": map[string]any{
		"schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": map[string]any{"spec": suspendedJob()},
	}}}
	clusterRoles = kind{schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, "ClusterRole", true, nil}
)

func core(resource, name string, body map[string]any) kind {
	return kind{corev1.SchemeGroupVersion.WithResource(resource), name, false, body}
}

// workload returns the spec of an object with a pod template for which no controller has anything
// to do.
func workload(replicas int64, selector map[string]any) map[string]any {
	return map[string]any{"replicas": replicas, "selector": selector, "template": template()}
}

func replicated(replicas int64) map[string]any {
	return map[string]any{"spec": workload(replicas, map[string]any{"matchLabels": map[string]any{"app": "conformance"}})}
}

func template() map[string]any {
	return map[string]any{
		"metadata": map[string]any{"labels": map[string]any{"app": "conformance"}},
		"spec":     map[string]any{"containers": []any{map[string]any{"name": "main", "image": "none"}}},
	}
}

func suspendedJob() map[string]any {
	t := template()
	t["spec"].(map[string]any)["restartPolicy"] = "Never"
	return map[string]any{"suspend": true, "template": t}
}

// object is an object that was created.
type object struct {
	kind  kind
	space string
	name  string
	uid   types.UID
}

func (o object) String() string { return o.kind.name + " " + o.name }

// ref refers to an owner, without saying whether it blocks.
func ref(owner object) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.kind.apiVersion(), Kind: owner.kind.name, Name: owner.name, UID: owner.uid}
}

// blocking refers to an owner that has to wait.
func blocking(owner object) metav1.OwnerReference {
	r := ref(owner)
	r.BlockOwnerDeletion = new(true)
	return r
}

// controlled refers to an owner that is the controller.
func controlled(owner object) metav1.OwnerReference {
	r := blocking(owner)
	r.Controller = new(true)
	return r
}

// nobody returns a reference to an owner of a kind that never existed.
func nobody(k kind) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: k.apiVersion(), Kind: k.name, Name: "nobody", UID: uuid.NewUUID()}
}

// option modifies an object before it is created.
type option func(u *unstructured.Unstructured)

func ownedBy(owners ...metav1.OwnerReference) option {
	return func(u *unstructured.Unstructured) { u.SetOwnerReferences(owners) }
}

func withFinalizers(finalizers ...string) option {
	return func(u *unstructured.Unstructured) { u.SetFinalizers(finalizers) }
}

// hold adds a foreign finalizer.
const hold = "conformance.example.com/hold"

var held = withFinalizers(hold)

// create creates an object in the test's namespace, or in none if its kind is cluster-scoped;
// then its name is made unique to the test.
func (w *cluster) create(k kind, name string, options ...option) object {
	w.t.Helper()
	o, err := w.tryCreate(k, name, options...)
	if err != nil {
		w.t.Fatalf("create %s %s: %v", k.name, name, err)
	}
	return o
}

func (w *cluster) tryCreate(k kind, name string, options ...option) (object, error) {
	w.t.Helper()
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(k.body)}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	u.SetAPIVersion(k.apiVersion())
	u.SetKind(k.name)
	u.SetName(name)
	o := object{kind: k, space: w.spaceOf(k), name: name}
	if k.cluster {
		o.name = w.space + "-" + name
		u.SetName(o.name)
	}
	for _, option := range options {
		option(u)
	}
	created, err := w.whole(o).Create(w.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		return object{}, err
	}
	o.uid = created.GetUID()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.made = append(w.made, o)
	return o, nil
}

// createMany makes n objects with names that begin the same.
func (w *cluster) createMany(n int, k kind, name string, options ...option) []object {
	w.t.Helper()
	all := make([]object, 0, n)
	for i := range n {
		all = append(all, w.create(k, fmt.Sprintf("%s-%d", name, i), options...))
	}
	return all
}

// spaceOf returns the namespace of the test's objects of a kind.
func (w *cluster) spaceOf(k kind) string {
	if k.cluster {
		return ""
	}
	return w.space
}

// objects returns the client for the metadata of objects like o.
func (w *cluster) objects(o object) metadata.ResourceInterface {
	if o.space == "" {
		return w.server.metadata.Resource(o.kind.GroupVersionResource)
	}
	return w.server.metadata.Resource(o.kind.GroupVersionResource).Namespace(o.space)
}

// whole returns the client for complete objects like o.
func (w *cluster) whole(o object) dynamic.ResourceInterface {
	if o.space == "" {
		return w.server.dynamic.Resource(o.kind.GroupVersionResource)
	}
	return w.server.dynamic.Resource(o.kind.GroupVersionResource).Namespace(o.space)
}

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// remove deletes an object under a policy.
func (w *cluster) remove(o object, policy metav1.DeletionPropagation) {
	w.t.Helper()
	w.removeWith(o, metav1.DeleteOptions{PropagationPolicy: &policy})
}

func (w *cluster) removeWith(o object, options metav1.DeleteOptions) {
	w.t.Helper()
	if err := w.objects(o).Delete(w.t.Context(), o.name, options); err != nil {
		w.t.Fatalf("delete %s: %v", o, err)
	}
}

// look reads an object; it returns false if the object is gone, even if another one has its name.
func (w *cluster) look(o object) (*metav1.PartialObjectMetadata, bool) {
	w.t.Helper()
	now, err := w.objects(o).Get(w.t.Context(), o.name, metav1.GetOptions{})
	switch {
	case isGone(err), err == nil && now.UID != o.uid:
		return nil, false
	case err != nil:
		w.t.Fatalf("read %s: %v", o, err)
	}
	return now, true
}

// must reads an object that has to exist.
func (w *cluster) must(o object) *metav1.PartialObjectMetadata {
	w.t.Helper()
	now, ok := w.look(o)
	if !ok {
		w.t.Fatalf("%s is gone", o)
	}
	return now
}

// patch applies a JSON merge patch to the metadata of an object.
func (w *cluster) patch(o object, change map[string]any) {
	w.t.Helper()
	if err := w.tryPatch(o, change); err != nil {
		w.t.Fatalf("patch %s: %v", o, err)
	}
}

func (w *cluster) tryPatch(o object, change map[string]any) error {
	change["uid"] = o.uid
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return err
	}
	_, err = w.objects(o).Patch(context.Background(), o.name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// setOwners replaces the owner references of an object.
func (w *cluster) setOwners(o object, owners ...metav1.OwnerReference) {
	w.t.Helper()
	w.patch(o, map[string]any{"ownerReferences": owners})
}

// letGo removes all finalizers of an object except the named ones.
func (w *cluster) letGo(o object, but ...string) {
	w.t.Helper()
	w.patch(o, map[string]any{"finalizers": but})
}

// eventuallyGone waits until objects are gone.
func (w *cluster) eventuallyGone(objects ...object) {
	w.t.Helper()
	for _, o := range objects {
		eventually.Agrees(w.t, func() string {
			if now, ok := w.look(o); ok {
				return fmt.Sprintf("%s is still there: %s", o, describe(now))
			}
			return ""
		})
	}
}

// eventuallyLeaving waits until objects are being deleted, if they are not gone.
func (w *cluster) eventuallyLeaving(objects ...object) {
	w.t.Helper()
	for _, o := range objects {
		eventually.Agrees(w.t, func() string {
			if now, ok := w.look(o); ok && now.DeletionTimestamp == nil {
				return fmt.Sprintf("%s is not being deleted: %s", o, describe(now))
			}
			return ""
		})
	}
}

// eventuallyOwned waits until an object has just these owner references.
func (w *cluster) eventuallyOwned(o object, owners ...metav1.OwnerReference) {
	w.t.Helper()
	eventually.Agrees(w.t, func() string {
		if diff := cmp.Diff(owners, w.must(o).OwnerReferences, equateEmpty); diff != "" {
			return fmt.Sprintf("owner references of %s (-want +got):\n%s", o, diff)
		}
		return ""
	})
}

// eventuallyFinalizers waits until an object has just these finalizers.
func (w *cluster) eventuallyFinalizers(o object, finalizers ...string) {
	w.t.Helper()
	eventually.Agrees(w.t, func() string {
		if diff := cmp.Diff(finalizers, w.must(o).Finalizers, equateEmpty); diff != "" {
			return fmt.Sprintf("finalizers of %s (-want +got):\n%s", o, diff)
		}
		return ""
	})
}

// settle waits until a collector has processed everything from before: garbage of each kind that
// is created now is collected after it. It does so twice, because an object that came earlier may
// still be with a worker when the first garbage is gone.
func (w *cluster) settle(kinds ...kind) {
	w.t.Helper()
	for i := range 2 {
		for _, k := range kinds {
			sentinel := w.create(k, fmt.Sprintf("sentinel-%d-%s", i, uuid.NewUUID()[:8]), ownedBy(nobody(sentinelOwner(k))))
			w.eventuallyGone(sentinel)
		}
	}
}

func sentinelOwner(k kind) kind {
	if k.cluster {
		return clusterRoles
	}
	return configMaps
}

// stay waits until nothing is left to be done, and asserts that objects are untouched.
func (w *cluster) stay(objects ...object) {
	w.t.Helper()
	var kinds []kind
	for _, o := range objects {
		if !slices.ContainsFunc(kinds, func(k kind) bool { return k.GroupVersionResource == o.kind.GroupVersionResource }) {
			kinds = append(kinds, o.kind)
		}
	}
	w.settle(kinds...)
	w.areKept(objects...)
}

// areKept asserts that objects exist and are not being deleted.
func (w *cluster) areKept(objects ...object) {
	w.t.Helper()
	for _, o := range objects {
		now, ok := w.look(o)
		switch {
		case !ok:
			w.t.Errorf("%s was deleted, and was to be kept", o)
		case now.DeletionTimestamp != nil:
			w.t.Errorf("%s is being deleted, and was to be kept: %s", o, describe(now))
		}
	}
}

// eventuallyReported waits for an Event about an object.
func (w *cluster) eventuallyReported(o object, reason string) {
	w.t.Helper()
	space := o.space
	if space == "" {
		space = metav1.NamespaceDefault
	}
	eventually.Agrees(w.t, func() string {
		events, err := w.server.kube.CoreV1().Events(space).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		var others []string
		for _, e := range events.Items {
			if e.InvolvedObject.UID != o.uid {
				continue
			}
			if e.Reason == reason {
				return ""
			}
			others = append(others, e.Reason)
		}
		return fmt.Sprintf("no Event %s about %s, only %v", reason, o, others)
	})
}

const invalidNamespace = "OwnerRefInvalidNamespace"

func describe(now *metav1.PartialObjectMetadata) string {
	var parts []string
	if now.DeletionTimestamp != nil {
		parts = append(parts, "being deleted since "+now.DeletionTimestamp.Format(time.TimeOnly))
	}
	parts = append(parts, fmt.Sprintf("finalizers %v", now.Finalizers))
	for _, r := range now.OwnerReferences {
		parts = append(parts, fmt.Sprintf("owner %s %s %s", r.APIVersion, r.Kind, r.Name))
	}
	return strings.Join(parts, ", ")
}

// equateEmpty treats nil and an empty list as equal.
var equateEmpty = cmp.FilterValues(func(a, b any) bool { return isEmpty(a) && isEmpty(b) }, cmp.Ignore())

func isEmpty(v any) bool {
	switch v := v.(type) {
	case []metav1.OwnerReference:
		return len(v) == 0
	case []string:
		return len(v) == 0
	}
	return false
}
