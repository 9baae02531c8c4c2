package core

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/coppice-dev/coppice/internal/apiserver/registry"
	"github.com/coppice-dev/coppice/internal/apiserver/registry/podspec"
)

// applyRuntimeClass gives a pod the overhead of its runtime class, and the node selector and tolerations for the nodes
// that have the runtime. Only users who may create classes choose the overhead.
func applyRuntimeClass(ctx context.Context, d registry.Registries, p *corev1.Pod) error {
	class, err := runtimeClassOf(ctx, d, p)
	if err != nil {
		return err
	}
	if class.Overhead == nil {
		if p.Spec.Overhead != nil && len(podspec.ValidatePod(p)) == 0 { // errors of validation come first
			return podForbidden(p, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
		}
	} else {
		if len(p.Spec.Overhead) > 0 && !equality.Semantic.DeepEqual(class.Overhead.PodFixed, p.Spec.Overhead) {
			return podForbidden(p, "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead")
		}
		p.Spec.Overhead = class.Overhead.PodFixed.DeepCopy()
	}
	if class.Scheduling == nil {
		return nil
	}
	selector, err := mergeSelectors(p, class.Scheduling.NodeSelector)
	if err != nil {
		return err
	}
	p.Spec.NodeSelector = selector
	p.Spec.Tolerations = mergeTolerations(tolerateLostNodes(p.Spec.Tolerations), class.Scheduling.Tolerations)
	return nil
}

// runtimeClassOf returns the class that a pod names, otherwise an empty one. It reads the store, not the cache, because
// clients often create a class just before the pods that use it.
func runtimeClassOf(ctx context.Context, d registry.Registries, p *corev1.Pod) (*nodev1.RuntimeClass, error) {
	if p.Spec.RuntimeClassName == nil {
		return &nodev1.RuntimeClass{}, nil
	}
	name, classes := *p.Spec.RuntimeClassName, d[nodev1.Resource("runtimeclasses")]
	if classes == nil {
		return &nodev1.RuntimeClass{}, nil
	}
	// client-go has this message for a request without a name.
	if name == "" {
		return nil, errors.New("resource name may not be empty")
	}
	if complaints := content.IsPathSegmentName(name); len(complaints) > 0 {
		return nil, fmt.Errorf("invalid resource name %q: %v", name, complaints)
	}
	obj, err := classes.Get(genericrequest.WithNamespace(ctx, metav1.NamespaceNone), name, &metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, podForbidden(p, "pod rejected: RuntimeClass %q not found", name)
	case err != nil:
		return nil, fmt.Errorf("look up RuntimeClass %s: %w", name, err)
	}
	return obj.(*nodev1.RuntimeClass), nil
}

// mergeSelectors adds the labels of the nodes that have the runtime to a pod's node selector.
func mergeSelectors(p *corev1.Pod, of map[string]string) (map[string]string, error) {
	if p.Spec.NodeSelector == nil {
		return maps.Clone(of), nil
	}
	merged := maps.Clone(p.Spec.NodeSelector)
	for _, key := range slices.Sorted(maps.Keys(of)) {
		if value, ok := merged[key]; ok && value != of[key] {
			return nil, podForbidden(p, "conflict: runtimeClass.scheduling.nodeSelector[%s] = %s; pod.spec.nodeSelector[%s] = %s", key, of[key], key, value)
		}
		merged[key] = of[key]
	}
	return merged, nil
}
