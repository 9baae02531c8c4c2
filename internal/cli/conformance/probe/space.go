package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
)

// Space is a namespace of a check, with methods for the steps of the check. They are safe for
// concurrent use.
type Space struct {
	T      T
	Server *Server
	Name   string // of the namespace

	made  *made
	hurry time.Duration // replaces the server's patience, unless 0
}

// made are the objects that a check has created, for the cleanup.
type made struct {
	sync.Mutex
	objects []Object // guarded
}

// run is a part of the names of this process's namespaces, so that they differ from the names
// of other processes on the same server.
var (
	run    = string(uuid.NewUUID())[:6]
	spaces atomic.Int64
)

// RunLabel is a label of every namespace of checks; its value, Run, identifies this process.
const RunLabel = "conformance.example.com/run"

// Run returns the value of RunLabel. The names of namespaces and of cluster-scoped objects begin
// with "conformance-" and this value.
func Run() string { return run }

// NewSpace creates a namespace. When t ends, the namespace is removed with all its objects.
func NewSpace(t T, s *Server) *Space {
	t.Helper()
	w := At(t, s, fmt.Sprintf("conformance-%s-%d", run, spaces.Add(1)))
	t.Cleanup(w.cleanUp)
	w.createItself()
	return w
}

// At returns the Space of a namespace that need not exist.
func At(t T, s *Server, namespace string) *Space {
	return &Space{T: t, Server: s, Name: namespace, made: &made{}}
}

func (w *Space) createItself() *corev1.Namespace {
	w.T.Helper()
	ns, err := w.Server.Kube.CoreV1().Namespaces().Create(w.T.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Labels: map[string]string{RunLabel: run}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.T.Fatalf("create namespace %s: %v", w.Name, err)
	}
	return ns
}

// Another creates a second namespace for the same check.
func (w *Space) Another() *Space {
	w.T.Helper()
	other := NewSpace(w.T, w.Server)
	other.hurry = w.hurry
	return other
}

// cleanUpTime bounds the cleanup after a check.
const cleanUpTime = time.Minute

// cleaning returns the context of the cleanup; the check's own context has ended by then.
func (w *Space) cleaning() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(w.T.Context()), cleanUpTime)
}

// cleanUp removes the remaining objects and their finalizers. It does not wait. A server without a
// namespace controller keeps the namespace as Terminating.
func (w *Space) cleanUp() {
	ctx, cancel := w.cleaning()
	defer cancel()
	w.made.Lock()
	defer w.made.Unlock()
	for _, o := range slices.Backward(w.made.objects) {
		client := w.Objects(o)
		err := client.Delete(ctx, o.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &o.UID}, GracePeriodSeconds: new(int64(0)),
			PropagationPolicy: new(metav1.DeletePropagationBackground),
		})
		if err != nil {
			continue // it is gone, or another object has its name
		}
		_, _ = client.Patch(ctx, o.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q,"finalizers":null}}`, o.UID), metav1.PatchOptions{})
	}
	_ = w.Server.Kube.CoreV1().Namespaces().Delete(ctx, w.Name, metav1.DeleteOptions{})
}

// Forget leaves the created objects to the deletion of the namespace: a cleanup of many objects, one
// by one, takes long.
func (w *Space) Forget() {
	w.made.Lock()
	defer w.made.Unlock()
	w.made.objects = nil
}

// Create creates an object in the check's namespace. A cluster-scoped object gets a name that is
// unique to the check.
func (w *Space) Create(k Kind, name string, options ...Option) Object {
	w.T.Helper()
	return w.createOnceReady(needsAccount, k, name, options...)
}

// createOnceReady creates an object. As long as the server refuses it because the namespace is not ready, it tries again.
func (w *Space) createOnceReady(isEarly func(error) bool, k Kind, name string, options ...Option) Object {
	w.T.Helper()
	o, err := w.TryCreate(k, name, options...)
	if isEarly(err) {
		w.Until(fmt.Sprintf("the namespace to be ready for %s %s", k.Name, name), func() string {
			if o, err = w.TryCreate(k, name, options...); isEarly(err) {
				return err.Error()
			}
			return ""
		})
	}
	if err != nil {
		w.T.Fatalf("create %s %s: %v", k.Name, name, err)
	}
	return o
}

// needsAccount reports whether a pod was refused because its new namespace does not have a service
// account yet.
func needsAccount(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "service account")
}

// TryCreate is Create for an object that the server may refuse.
func (w *Space) TryCreate(k Kind, name string, options ...Option) (Object, error) {
	o, u := w.draft(k, name, options...)
	created, err := w.Whole(o).Create(w.T.Context(), u, metav1.CreateOptions{})
	if err != nil {
		return Object{}, err
	}
	o.UID = created.GetUID()
	w.made.Lock()
	defer w.made.Unlock()
	w.made.objects = append(w.made.objects, o)
	return o, nil
}

// DryCreate returns the server's answer to a dry run of Create.
func (w *Space) DryCreate(k Kind, name string, options ...Option) error {
	o, u := w.draft(k, name, options...)
	_, err := w.Whole(o).Create(w.T.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (w *Space) draft(k Kind, name string, options ...Option) (Object, *unstructured.Unstructured) {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(k.body)}
	if u.Object == nil {
		u.Object = map[string]any{}
	}
	u.SetAPIVersion(k.APIVersion())
	u.SetKind(k.Name)
	o := Object{Kind: k, Namespace: w.namespaceOf(k), Name: name}
	if k.Cluster {
		o.Name = w.Name + "-" + name
	}
	u.SetName(o.Name)
	for _, option := range options {
		option(u)
	}
	return o, u
}

// CreateMany creates n objects with a common prefix of their names.
func (w *Space) CreateMany(n int, k Kind, name string, options ...Option) []Object {
	w.T.Helper()
	all := make([]Object, 0, n)
	for i := range n {
		all = append(all, w.Create(k, fmt.Sprintf("%s-%d", name, i), options...))
	}
	return all
}

// namespaceOf returns the namespace of the check's objects of a kind.
func (w *Space) namespaceOf(k Kind) string {
	if k.Cluster {
		return ""
	}
	return w.Name
}

// Objects returns the metadata client for objects of o's kind and namespace.
func (w *Space) Objects(o Object) metadata.ResourceInterface {
	if o.Namespace == "" {
		return w.Server.Metadata.Resource(o.Kind.GroupVersionResource)
	}
	return w.Server.Metadata.Resource(o.Kind.GroupVersionResource).Namespace(o.Namespace)
}

// Whole returns the client for complete objects of o's kind and namespace.
func (w *Space) Whole(o Object) dynamic.ResourceInterface {
	if o.Namespace == "" {
		return w.Server.Dynamic.Resource(o.Kind.GroupVersionResource)
	}
	return w.Server.Dynamic.Resource(o.Kind.GroupVersionResource).Namespace(o.Namespace)
}

// Remove deletes an object with a policy.
func (w *Space) Remove(o Object, policy metav1.DeletionPropagation) {
	w.T.Helper()
	w.RemoveWith(o, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// RemoveWith deletes an object with options.
func (w *Space) RemoveWith(o Object, options metav1.DeleteOptions) {
	w.T.Helper()
	if err := w.TryRemove(o, options); err != nil {
		w.T.Fatalf("delete %s: %v", o, err)
	}
}

// TryRemove is RemoveWith for a DELETE that the server may refuse.
func (w *Space) TryRemove(o Object, options metav1.DeleteOptions) error {
	return w.Objects(o).Delete(w.T.Context(), o.Name, options)
}

// Look reads an object; it returns false if the object is gone, even if another one has its name.
func (w *Space) Look(o Object) (*metav1.PartialObjectMetadata, bool) {
	w.T.Helper()
	now, err := w.Objects(o).Get(w.T.Context(), o.Name, metav1.GetOptions{})
	switch {
	case IsGone(err), err == nil && now.UID != o.UID:
		return nil, false
	case err != nil:
		w.T.Fatalf("read %s: %v", o, err)
	}
	return now, true
}

// Must reads an object that must exist.
func (w *Space) Must(o Object) *metav1.PartialObjectMetadata {
	w.T.Helper()
	now, ok := w.Look(o)
	if !ok {
		w.T.Fatalf("want %s to be there; it is gone", o)
	}
	return now
}

// Patch applies a JSON merge patch to the metadata of an object.
func (w *Space) Patch(o Object, change map[string]any) {
	w.T.Helper()
	if err := w.TryPatch(o, change); err != nil {
		w.T.Fatalf("patch %s: %v", o, err)
	}
}

// TryPatch is Patch for a change that the server may refuse. It works even after the check has ended.
func (w *Space) TryPatch(o Object, change map[string]any) error {
	change["uid"] = o.UID
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	ctx, cancel := w.cleaning()
	defer cancel()
	_, err = w.Objects(o).Patch(ctx, o.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// SetOwners replaces the owner references of an object.
func (w *Space) SetOwners(o Object, owners ...metav1.OwnerReference) {
	w.T.Helper()
	w.Patch(o, map[string]any{"ownerReferences": owners})
}

// LetGo removes all finalizers of an object except the named ones.
func (w *Space) LetGo(o Object, but ...string) {
	w.T.Helper()
	w.Patch(o, map[string]any{"finalizers": but})
}
