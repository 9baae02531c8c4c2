package disruption

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	extensionsv1beta1 "k8s.io/api/extensions/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"

	"github.com/coppice-dev/coppice/internal/controller"
	"github.com/coppice-dev/coppice/internal/rules/ownership"
)

// scale is the number of pods that a controller should run.
type scale struct {
	controller types.UID
	replicas   int32
}

// uncountableError is the reason why the desired number of pods is unknown. Only a change of the
// pods or of their controllers can help.
type uncountableError string

// Error implements error.
func (e uncountableError) Error() string { return string(e) }

// scales finds the scales of controllers: in the caches, or through /scale.
type scales struct {
	deployments  appslisters.DeploymentLister
	replicaSets  appslisters.ReplicaSetLister
	statefulSets appslisters.StatefulSetLister
	replications corelisters.ReplicationControllerLister
	// live reads the scale of any other controller; nil if it does not exist.
	live func(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*scale, error)
}

func newScales(shared *controller.Informers, client kubernetes.Interface) *scales {
	return &scales{
		deployments: shared.Deployments.Lister(), replicaSets: shared.ReplicaSets.Lister(),
		statefulSets: shared.StatefulSets.Lister(), replications: shared.ReplicationControllers.Lister(),
		live: func(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*scale, error) {
			return liveScale(ctx, client, namespace, ref)
		},
	}
}

// sum returns how many pods the controllers of some pods should run, counting each controller
// once, and the names of the pods without a controller.
func (s *scales) sum(ctx context.Context, pods []*corev1.Pod) (total int32, unmanaged []string, err error) {
	looked, counted := map[types.UID]bool{}, map[types.UID]bool{}
	for _, pod := range pods {
		ref := metav1.GetControllerOfNoCopy(pod)
		switch {
		case ref == nil:
			unmanaged = append(unmanaged, pod.Name)
			continue
		case looked[ref.UID]:
			continue
		}
		looked[ref.UID] = true
		found, err := s.of(ctx, pod.Namespace, ref)
		if err != nil {
			return 0, nil, err
		}
		if found == nil {
			return 0, nil, uncountableError(fmt.Sprintf("found no controllers for pod %q", pod.Name))
		}
		if !counted[found.controller] {
			counted[found.controller] = true
			total += min(max(found.replicas, 0), math.MaxInt32-total) // a sum that is too large is the largest number
		}
	}
	return total, unmanaged, nil
}

// of returns the scale of the controller that a reference names; nil if it does not exist. For a
// ReplicaSet it is the scale of its Deployment, which has several ReplicaSets during a rollout.
func (s *scales) of(ctx context.Context, namespace string, ref *metav1.OwnerReference) (*scale, error) {
	var found *scale
	switch {
	case is(ref, "ReplicaSet", appsv1.GroupName, extensionsv1beta1.GroupName):
		if set, err := s.replicaSets.ReplicaSets(namespace).Get(ref.Name); err == nil && set.UID == ref.UID {
			found = s.ofReplicaSet(set)
		}
	case is(ref, "StatefulSet", appsv1.GroupName):
		if set, err := s.statefulSets.StatefulSets(namespace).Get(ref.Name); err == nil && set.UID == ref.UID {
			found = scaleOf(set, set.Spec.Replicas)
		}
	case is(ref, "ReplicationController", corev1.GroupName):
		if set, err := s.replications.ReplicationControllers(namespace).Get(ref.Name); err == nil && set.UID == ref.UID {
			found = scaleOf(set, set.Spec.Replicas)
		}
	}
	if found != nil {
		return found, nil
	}
	return s.live(ctx, namespace, ref) // the cache may be behind
}

func (s *scales) ofReplicaSet(set *appsv1.ReplicaSet) *scale {
	ref := metav1.GetControllerOfNoCopy(set)
	if ref != nil && is(ref, "Deployment", appsv1.GroupName, extensionsv1beta1.GroupName) {
		if deployment, err := s.deployments.Deployments(set.Namespace).Get(ref.Name); err == nil && deployment.UID == ref.UID {
			return scaleOf(deployment, deployment.Spec.Replicas)
		}
	}
	return scaleOf(set, set.Spec.Replicas)
}

func scaleOf(controller metav1.Object, replicas *int32) *scale {
	if replicas == nil {
		return &scale{controller.GetUID(), 1} // the default; the server has set it
	}
	return &scale{controller.GetUID(), *replicas}
}

func is(ref *metav1.OwnerReference, kind string, groups ...string) bool {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && ref.Kind == kind && slices.Contains(groups, version.Group)
}

// liveScale reads the scale of a controller of any kind from the server; nil if it does not
// exist.
func liveScale(ctx context.Context, client kubernetes.Interface, namespace string, ref *metav1.OwnerReference) (*scale, error) {
	if !ownership.IsName(ref.Name) {
		return nil, nil // the path of a request with this name would lead elsewhere
	}
	resource, err := scalable(ctx, client, ref)
	if err != nil {
		return nil, err
	}
	root := "/apis"
	if resource.Group == "" {
		root = "/api"
	}
	// Custom resources are not served as protobuf, which the client may prefer.
	answer := client.Discovery().RESTClient().Get().
		AbsPath(root, resource.GroupVersion().String(), "namespaces", namespace, resource.Resource, ref.Name, "scale").
		SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx)
	if err := answer.Error(); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read the scale of %s %s: %w", resource.GroupResource(), ref.Name, err)
	}
	text, err := answer.Raw()
	if err != nil {
		return nil, fmt.Errorf("read the scale of %s %s: %w", resource.GroupResource(), ref.Name, err)
	}
	var read autoscalingv1.Scale
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("read the scale of %s %s: %w", resource.GroupResource(), ref.Name, err)
	}
	if read.UID != ref.UID {
		return nil, nil
	}
	return &scale{read.UID, read.Spec.Replicas}, nil
}

// scalable returns the resource of a controller, which must have /scale.
func scalable(ctx context.Context, client kubernetes.Interface, ref *metav1.OwnerReference) (schema.GroupVersionResource, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return schema.GroupVersionResource{}, uncountableError(err.Error())
	}
	list, err := client.Discovery().ServerResourcesForGroupVersionWithContext(ctx, ref.APIVersion)
	if err != nil && !apierrors.IsNotFound(err) {
		return schema.GroupVersionResource{}, fmt.Errorf("discover the resources of %s: %w", ref.APIVersion, err)
	}
	if list == nil {
		list = &metav1.APIResourceList{}
	}
	isOf := func(r metav1.APIResource) bool { return r.Kind == ref.Kind && !strings.Contains(r.Name, "/") }
	i := slices.IndexFunc(list.APIResources, isOf)
	if i < 0 {
		return schema.GroupVersionResource{}, uncountableError(fmt.Sprintf("no matches for kind %q in version %q", ref.Kind, ref.APIVersion))
	}
	resource := version.WithResource(list.APIResources[i].Name)
	has := func(r metav1.APIResource) bool { return r.Name == resource.Resource+"/scale" }
	if !slices.ContainsFunc(list.APIResources, has) {
		return resource, uncountableError(resource.GroupResource().String() + " does not implement the scale subresource")
	}
	return resource, nil
}
