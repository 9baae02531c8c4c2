package sections

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

// newResource measures how soon the collector handles a resource that did not exist before.
func newResource(ctx context.Context, b *Bench) error {
	err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		if err := p.Collecting(ctx); err != nil {
			return err
		}
		return b.customResource(ctx, p, coppiceUp)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", coppiceUp, err)
	}
	return b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
		return b.eachCollector(ctx, p, func(ctx context.Context, c collector, _ *controlplane.Collector) error {
			// Upstream's collector discovers resources every 30 seconds: the runs start at
			// different phases of that interval.
			if err := pause(ctx, b.Sizes.DiscoveryPhase*time.Duration(b.Run)/time.Duration(b.Runs)); err != nil {
				return err
			}
			return b.customResource(ctx, p, c.side)
		})
	})
}

// customResource creates a CustomResourceDefinition, an object of it that has an owner, and
// deletes the owner.
func (b *Bench) customResource(ctx context.Context, p *controlplane.Plane, side string) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	name := b.name("owner")
	owner, err := newOwner(ctx, p, metav1.NamespaceDefault, name)
	if err != nil {
		return err
	}
	resource, definition := newDefinition(b.name("thing"))
	watch := stopwatch.Start()
	if _, err := p.Dynamic.Resource(definitionsResource()).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		return err
	}
	things := p.Dynamic.Resource(resource).Namespace(metav1.NamespaceDefault)
	thing := &unstructured.Unstructured{Object: map[string]any{}}
	thing.SetGroupVersionKind(resource.GroupVersion().WithKind(kindOfThings))
	thing.SetName("dependent")
	thing.SetOwnerReferences([]metav1.OwnerReference{owner})
	err = controlplane.Poll(ctx, "the resource is not served", func(ctx context.Context) (bool, error) {
		_, err := things.Create(ctx, thing, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	b.add(side, "a new CustomResourceDefinition, to the first object created", "s", watch.Seconds())
	if err := p.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	err = controlplane.Poll(ctx, "the dependent is not collected", func(ctx context.Context) (bool, error) {
		_, err := things.Get(ctx, "dependent", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	b.add(side, "to that object collected, whose owner was deleted at once", "s", watch.Seconds())
	return err
}

const kindOfThings = "Thing"

// newDefinition returns a CustomResourceDefinition in a group of its own.
func newDefinition(name string) (schema.GroupVersionResource, *unstructured.Unstructured) {
	resource := schema.GroupVersionResource{Group: name + ".bench.example", Version: "v1", Resource: "things"}
	return resource, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": resource.Resource + "." + resource.Group},
		"spec": map[string]any{
			"group": resource.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": resource.Resource, "singular": "thing", "kind": kindOfThings},
			"versions": []any{map[string]any{
				"name": resource.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}}
}
