// Package laggingcache is an API server in memory, and caches that lag behind it, for the
// tests of controllers.
//
// A Cluster has a real controller context and real controllers. Their client writes
// directly to the Server, but they read from caches, and the test decides how far each
// cache lags: Step brings one event of one resource to its cache, or lets one controller
// reconcile one key. Requests can be refused, and answers lost. Play does so at random.
//
// The server implements names, uids, resourceVersions, preconditions, patches and statuses. It
// does not validate, and does not collect garbage.
package laggingcache

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// errLost is the error that a client gets if the answer to a request is lost.
var errLost = errors.New("the connection was lost")

// object is a stored object.
type object interface {
	runtime.Object
	metav1.Object
}

// change is one watch event. For a removed object it has the last state.
type change struct {
	object object
	gone   bool
}

// Server is an API server in memory. It is safe for concurrent use.
type Server struct {
	// Fate decides the outcome of a request; if nil, all are answered.
	Fate func(verb, resource, name string) Fate
	// Watch is called with an object before it is created, and with an existing one before it is
	// deleted.
	Watch func(verb string, obj runtime.Object)

	now func() time.Time

	mu        sync.Mutex
	revision  int // guarded by mu, as is all below
	conflicts int
	objects   map[string]map[string]object // by resource and key
	changes   map[string][]change          // by resource
}

// Fate is the outcome of a request.
type Fate int

// The fates.
const (
	Answered Fate = iota
	Refused       // it is not carried out
	Lost          // it is carried out, and the answer is lost
)

func newServer(now func() time.Time) *Server {
	return &Server{now: now, objects: map[string]map[string]object{}, changes: map[string][]change{}}
}

func (s *Server) client() *fake.Clientset {
	c := &fake.Clientset{}
	c.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := s.serve(action)
		return true, obj, err
	})
	return c
}

func (s *Server) serve(action clienttesting.Action) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resource, name := action.GetResource().Resource, nameIn(action)
	fate := Answered
	if s.Fate != nil {
		fate = s.Fate(action.GetVerb(), resource, name)
	}
	if fate == Refused {
		return nil, apierrors.NewInternalError(errors.New("refused"))
	}
	obj, err := s.carryOutLocked(action, resource, action.GetNamespace()+"/"+name)
	if apierrors.IsConflict(err) {
		s.conflicts++
	}
	if fate == Lost && err == nil {
		return nil, errLost
	}
	return obj, err
}

// Conflicts returns how many writes had a conflict.
func (s *Server) Conflicts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conflicts
}

func nameIn(action clienttesting.Action) string {
	switch a := action.(type) {
	case clienttesting.GetAction: // deletions and patches, too: they have its methods
		return a.GetName()
	case clienttesting.UpdateAction:
		if o, err := meta.Accessor(a.GetObject()); err == nil {
			return o.GetName()
		}
	}
	return ""
}

func (s *Server) carryOutLocked(action clienttesting.Action, resource, key string) (runtime.Object, error) {
	if create, ok := action.(clienttesting.CreateAction); ok && action.GetVerb() == "create" {
		obj, ok := create.GetObject().DeepCopyObject().(object)
		if !ok {
			return nil, fmt.Errorf("create %T", create.GetObject())
		}
		obj.SetNamespace(action.GetNamespace())
		return s.createLocked(resource, obj)
	}
	if action.GetVerb() == "list" {
		return s.listLocked(resource, action.GetNamespace())
	}
	was := s.objects[resource][key]
	if was == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, key)
	}
	switch a := action.(type) {
	case clienttesting.PatchAction:
		return s.patchLocked(resource, was, a)
	case clienttesting.UpdateAction:
		return s.updateLocked(resource, was, a)
	case clienttesting.DeleteAction:
		if action.GetVerb() == "delete" {
			return nil, s.deleteLocked(resource, was, a.GetDeleteOptions())
		}
	}
	return was.DeepCopyObject(), nil
}

func (s *Server) createLocked(resource string, obj object) (runtime.Object, error) {
	if obj.GetName() == "" {
		obj.SetName(obj.GetGenerateName() + strconv.Itoa(s.revision))
	}
	if s.objects[resource][keyOf(obj)] != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: resource}, obj.GetName())
	}
	if s.Watch != nil {
		s.Watch("create", obj)
	}
	obj.SetUID(uidOf(resource, s.revision+1))
	obj.SetCreationTimestamp(metav1.NewTime(s.now()))
	obj.SetGeneration(1)
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
	return s.putLocked(resource, obj), nil
}

// listLocked lists pods and resource claims: controllers list nothing else.
func (s *Server) listLocked(resource, namespace string) (runtime.Object, error) {
	switch at := (metav1.ListMeta{ResourceVersion: strconv.Itoa(s.revision)}); resource {
	case "pods":
		return &corev1.PodList{ListMeta: at, Items: itemsOf[corev1.Pod](s.objects[resource], namespace)}, nil
	case "resourceclaims":
		return &resourcev1.ResourceClaimList{ListMeta: at, Items: itemsOf[resourcev1.ResourceClaim](s.objects[resource], namespace)}, nil
	}
	return nil, fmt.Errorf("list %s: not modelled", resource)
}

// itemsOf returns copies of the objects of a type, in a namespace or in all, ordered by their keys.
func itemsOf[T any](objects map[string]object, namespace string) (items []T) {
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if o := objects[key]; namespace == metav1.NamespaceAll || o.GetNamespace() == namespace {
			if one, ok := o.DeepCopyObject().(any).(*T); ok {
				items = append(items, *one)
			}
		}
	}
	return items
}

func (s *Server) patchLocked(resource string, was object, action clienttesting.PatchAction) (runtime.Object, error) {
	var patch map[string]any
	if err := json.Unmarshal(action.GetPatch(), &patch); err != nil {
		return nil, err
	}
	metadata, _ := patch["metadata"].(map[string]any)
	if uid, ok := metadata["uid"]; ok && uid != string(was.GetUID()) {
		return nil, conflict(resource, was)
	}
	if version, ok := metadata["resourceVersion"]; ok && version != was.GetResourceVersion() {
		return nil, conflict(resource, was)
	}
	before, err := json.Marshal(was)
	if err != nil {
		return nil, err
	}
	var after []byte
	if action.GetPatchType() == types.StrategicMergePatchType {
		after, err = strategicpatch.StrategicMergePatch(before, action.GetPatch(), was)
	} else {
		after, err = mergePatch(before, patch)
	}
	if err != nil {
		return nil, err
	}
	changed, ok := was.DeepCopyObject().(object)
	if !ok {
		return nil, fmt.Errorf("patch %T", was)
	}
	// Decoding adds to existing lists: lists that a patch may shorten must be empty before.
	changed.SetOwnerReferences(nil)
	changed.SetLabels(nil)
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, err
	}
	return s.putLocked(resource, changed), nil
}

// mergePatch implements RFC 7386.
func mergePatch(before []byte, patch map[string]any) ([]byte, error) {
	var into map[string]any
	if err := json.Unmarshal(before, &into); err != nil {
		return nil, err
	}
	merge(into, patch)
	return json.Marshal(into)
}

func merge(into, patch map[string]any) {
	for key, value := range patch {
		inner, isMap := value.(map[string]any)
		there, wasMap := into[key].(map[string]any)
		switch {
		case value == nil:
			delete(into, key)
		case isMap && wasMap:
			merge(there, inner)
		default:
			into[key] = value
		}
	}
}

// updateLocked writes statuses, and the whole of endpoints, resource claims and ReplicaSets: controllers update nothing
// else.
func (s *Server) updateLocked(resource string, was object, action clienttesting.UpdateAction) (runtime.Object, error) {
	sent, ok := action.GetObject().(object)
	whole := slices.Contains([]string{"endpoints", "endpointslices", "resourceclaims", "replicasets"}, resource) && action.GetSubresource() == ""
	if !ok || whole != (action.GetSubresource() == "") {
		return nil, fmt.Errorf("update %s: not modelled", resource)
	}
	if whole {
		return s.replaceLocked(resource, was, sent)
	}
	if sent.GetResourceVersion() != was.GetResourceVersion() || sent.GetUID() != was.GetUID() {
		return nil, conflict(resource, was)
	}
	switch changed := was.DeepCopyObject().(type) {
	case *appsv1.Deployment:
		changed.Status, changed.Annotations = sent.(*appsv1.Deployment).Status, sent.(*appsv1.Deployment).Annotations
		return s.putLocked(resource, changed), nil
	case *appsv1.ReplicaSet:
		changed.Status = sent.(*appsv1.ReplicaSet).Status
		return s.putLocked(resource, changed), nil
	case *appsv1.StatefulSet:
		changed.Status = sent.(*appsv1.StatefulSet).Status
		return s.putLocked(resource, changed), nil
	case *appsv1.DaemonSet:
		changed.Status = sent.(*appsv1.DaemonSet).Status
		return s.putLocked(resource, changed), nil
	case *resourcev1.DeviceTaintRule:
		changed.Status = sent.(*resourcev1.DeviceTaintRule).Status
		return s.putLocked(resource, changed), nil
	case *corev1.Pod:
		changed.Status = sent.(*corev1.Pod).Status
		return s.putLocked(resource, changed), nil
	case *resourcev1.ResourceClaim:
		changed.Status = sent.(*resourcev1.ResourceClaim).Status
		return s.putLocked(resource, changed), nil
	default:
		return nil, fmt.Errorf("write the status of %T: not modelled", was)
	}
}

// replaceLocked writes the whole of an object. Without a resourceVersion it overwrites any
// version: k8s.io/endpointslice reuses slices that way.
func (s *Server) replaceLocked(resource string, was, sent object) (runtime.Object, error) {
	changed, ok := sent.DeepCopyObject().(object)
	if !ok {
		return nil, fmt.Errorf("update %T", sent)
	}
	if sent.GetResourceVersion() == "" {
		changed.SetUID(was.GetUID())
		changed.SetResourceVersion(was.GetResourceVersion())
	}
	if changed.GetResourceVersion() != was.GetResourceVersion() || changed.GetUID() != was.GetUID() {
		return nil, conflict(resource, was)
	}
	changed.SetCreationTimestamp(was.GetCreationTimestamp())
	changed.SetGeneration(was.GetGeneration() + 1)
	if changed.GetDeletionTimestamp() != nil && len(changed.GetFinalizers()) == 0 {
		s.removeLocked(resource, was)
		return changed, nil
	}
	return s.putLocked(resource, changed), nil
}

// deleteLocked removes an object. It only marks objects with finalizers, and pods on a node, which their
// kubelet removes.
func (s *Server) deleteLocked(resource string, was object, options metav1.DeleteOptions) error {
	if p := options.Preconditions; p != nil {
		if p.UID != nil && *p.UID != was.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != was.GetResourceVersion() {
			return conflict(resource, was)
		}
	}
	if s.Watch != nil {
		s.Watch("delete", was)
	}
	pod, ok := was.(*corev1.Pod)
	if (!ok || pod.Spec.NodeName == "") && len(was.GetFinalizers()) == 0 {
		s.removeLocked(resource, was)
		return nil
	}
	if marked, ok := was.DeepCopyObject().(object); ok && was.GetDeletionTimestamp() == nil {
		at := metav1.NewTime(s.now())
		marked.SetDeletionTimestamp(&at)
		s.putLocked(resource, marked)
	}
	return nil
}

func conflict(resource string, obj object) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, obj.GetName(), errors.New("it has changed"))
}

func keyOf(obj metav1.Object) string { return obj.GetNamespace() + "/" + obj.GetName() }

func (s *Server) putLocked(resource string, obj object) runtime.Object {
	s.revision++
	obj.SetResourceVersion(strconv.Itoa(s.revision))
	if s.objects[resource] == nil {
		s.objects[resource] = map[string]object{}
	}
	s.objects[resource][keyOf(obj)] = obj
	s.changes[resource] = append(s.changes[resource], change{object: obj})
	return obj.DeepCopyObject()
}

func (s *Server) removeLocked(resource string, was object) {
	s.revision++
	last, ok := was.DeepCopyObject().(object)
	if !ok {
		return
	}
	last.SetResourceVersion(strconv.Itoa(s.revision))
	delete(s.objects[resource], keyOf(was))
	s.changes[resource] = append(s.changes[resource], change{object: last, gone: true})
}

func uidOf(resource string, revision int) types.UID {
	return types.UID(fmt.Sprintf("%s-%d", resource, revision))
}

// isExpected reports whether an error is explained by a lagging cache or by the Fate of a
// request.
func isExpected(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsInternalError(err) || errors.Is(err, errLost)
}
