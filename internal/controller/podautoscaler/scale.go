package podautoscaler

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/scale"
)

// scales reads and writes /scale of any resource that has it.
type scales struct {
	client scale.ScalesGetter
	mapper meta.ResettableRESTMapper
}

// target is the object that an autoscaler scales.
type target struct {
	resource schema.GroupResource
	scale    *autoscalingv1.Scale
}

func newScales(config *rest.Config, known discovery.DiscoveryInterface, mapper meta.ResettableRESTMapper) (*scales, error) {
	client, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc, scale.NewDiscoveryScaleKindResolver(known))
	if err != nil {
		return nil, fmt.Errorf("create the client of scales: %w", err)
	}
	return &scales{client, mapper}, nil
}

// get reads the scale of a referenced object. Only group and kind of the reference count; any
// version will do.
func (s *scales) get(ctx context.Context, namespace string, ref *autoscalingv2.CrossVersionObjectReference) (*target, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return nil, err
	}
	kind := schema.GroupKind{Group: version.Group, Kind: ref.Kind}
	mappings, err := s.mapper.RESTMappings(kind)
	if meta.IsNoMatchError(err) {
		s.mapper.Reset() // the kind may be new
		mappings, err = s.mapper.RESTMappings(kind)
	}
	if err != nil {
		return nil, err
	}
	first := errors.New("unrecognized resource")
	for i, mapping := range mappings {
		resource := mapping.Resource.GroupResource()
		found, err := s.client.Scales(namespace).Get(ctx, resource, ref.Name, metav1.GetOptions{})
		if err == nil {
			return &target{resource, found}, nil
		}
		if i == 0 {
			first = err
		}
	}
	if apierrors.IsNotFound(first) {
		s.mapper.Reset() // the kind may have another name now, as a custom resource can
	}
	return nil, first
}

// set writes the number of replicas, on the condition that the target has not changed since it was
// read.
func (s *scales) set(ctx context.Context, namespace string, t *target, replicas int32) error {
	wanted := t.scale.DeepCopy()
	wanted.Spec.Replicas = replicas
	_, err := s.client.Scales(namespace).Update(ctx, t.resource, wanted, metav1.UpdateOptions{})
	return err
}
