package sections

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/stopwatch"
)

const (
	// definitionClients is the number of clients that create definitions at the same time.
	definitionClients = 8
	// fieldsPerDefinition is the number of described fields of each custom resource.
	fieldsPerDefinition = 120
)

// manyDefinitions measures the cost of many CustomResourceDefinitions that only the collector uses:
// the memory, the time to create them, and the time until an object of the last one is collected.
func manyDefinitions(ctx context.Context, b *Bench) error {
	for _, n := range b.Sizes.Definitions {
		err := b.onCoppice(ctx, func(ctx context.Context, p *controlplane.Plane) error {
			if err := p.Collecting(ctx); err != nil {
				return err
			}
			return b.definitions(ctx, p, coppiceUp, n)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", coppiceUp, err)
		}
		err = b.onKubernetes(ctx, func(ctx context.Context, p *controlplane.Plane) error {
			c, err := p.StartControllerManager(ctx, "--controllers=garbage-collector-controller")
			if err != nil {
				return err
			}
			if err := b.definitions(ctx, p, kubernetes, n); err != nil {
				return err
			}
			return c.Stop()
		})
		if err != nil {
			return fmt.Errorf("%s: %w", kubernetes, err)
		}
	}
	return nil
}

// definitions creates n definitions, and an orphan of the last one.
func (b *Bench) definitions(ctx context.Context, p *controlplane.Plane, side string, n int) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	with := func(figure string) string { return fmt.Sprintf("%s, %d definitions", figure, n) }
	last := describedResource(n - 1)
	watch := stopwatch.Start()
	group, creating := errgroup.WithContext(ctx)
	group.SetLimit(definitionClients)
	for i := range n {
		group.Go(func() error {
			_, err := p.Dynamic.Resource(definitionsResource()).Create(creating, describedDefinition(describedResource(i)), metav1.CreateOptions{})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	b.add(side, with("created each second"), "", float64(n)/watch.Seconds())
	after := stopwatch.Start()
	things := p.Dynamic.Resource(last).Namespace(metav1.NamespaceDefault)
	orphan := &unstructured.Unstructured{Object: map[string]any{}}
	orphan.SetGroupVersionKind(last.GroupVersion().WithKind(describedKind(last)))
	orphan.SetName("orphan")
	orphan.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "absent", UID: uuid.NewUUID()}})
	err := controlplane.Poll(ctx, "the last resource is not served", func(ctx context.Context) (bool, error) {
		_, err := things.Create(ctx, orphan, metav1.CreateOptions{})
		if apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return err
	}
	b.add(side, with("from the last creation until that one is served"), "s", after.Seconds())
	err = controlplane.Poll(ctx, "the orphan is not collected", func(ctx context.Context) (bool, error) {
		_, err := things.Get(ctx, orphan.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, err
	})
	if err != nil {
		return err
	}
	b.add(side, with("from the last creation until an orphan of it is collected"), "s", after.Seconds())
	if err := pause(ctx, b.Sizes.Idle); err != nil {
		return err
	}
	memory, err := p.Memory()
	if err != nil {
		return err
	}
	b.add(side, with("memory, RssAnon"), "MB", memory.Anonymous)
	return nil
}

func definitionsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// describedResource returns the ith custom resource. Ten share a group, as an operator's resources
// do.
func describedResource(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: fmt.Sprintf("operator%d.bench.example", i/10), Version: "v1", Resource: fmt.Sprintf("things%d", i)}
}

func describedKind(resource schema.GroupVersionResource) string {
	return kindOfThings + resource.Resource
}

// describedDefinition returns a definition with described fields.
func describedDefinition(resource schema.GroupVersionResource) *unstructured.Unstructured {
	fields := make(map[string]any, fieldsPerDefinition)
	for i := range fieldsPerDefinition {
		fields[fmt.Sprintf("field%03d", i)] = map[string]any{"type": "string", "description": fmt.Sprintf(
			"Field %d of %s says how the thing behaves in a situation that is described here at the length of a "+
				"comment in Go; see the documentation for all that can be known about it, and for its default values.", i, resource.Resource)}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": resource.Resource + "." + resource.Group},
		"spec": map[string]any{
			"group": resource.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": resource.Resource, "singular": resource.Resource, "kind": describedKind(resource), "listKind": describedKind(resource) + "List"},
			"versions": []any{map[string]any{
				"name": resource.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
					"spec":   map[string]any{"type": "object", "properties": fields},
					"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
				}}},
			}},
		},
	}}
}
