package stage

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/coppice-dev/coppice/internal/cli/demo"
)

// rootCA is a config map of every namespace that no story needs.
const rootCA = "kube-root-ca.crt"

// shown returns the resources that the tree shows, besides the namespace itself.
func shown() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{
		{Group: "apps", Version: "v1", Resource: "deployments"},
		{Group: "apps", Version: "v1", Resource: "replicasets"},
		{Version: "v1", Resource: "pods"},
		{Version: "v1", Resource: "configmaps"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	}
}

// collection is one resource in the namespace, or the namespace itself.
type collection struct {
	name     string
	client   dynamic.ResourceInterface
	selector string
}

func collections(client dynamic.Interface, namespace string) []collection {
	var all []collection
	for _, r := range shown() {
		c := collection{name: r.Resource, client: client.Resource(r).Namespace(namespace)}
		if r.Resource == "configmaps" {
			c.selector = fields.OneTermNotEqualSelector(metav1.ObjectNameField, rootCA).String()
		}
		all = append(all, c)
	}
	return append(all, collection{
		name:     "namespaces",
		client:   client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}),
		selector: fields.OneTermEqualSelector(metav1.ObjectNameField, namespace).String(),
	})
}

// event is a watch event.
type event struct {
	object  demo.Object
	removed bool
}

// list lists the objects.
func (c collection) list(ctx context.Context) (objects []demo.Object, version string, err error) {
	list, err := c.client.List(ctx, metav1.ListOptions{FieldSelector: c.selector})
	if err != nil {
		return nil, "", fmt.Errorf("list %s: %w", c.name, err)
	}
	for i := range list.Items {
		objects = append(objects, demo.Read(&list.Items[i]))
	}
	return objects, list.GetResourceVersion(), nil
}

// follow sends the objects, and then their changes, until ctx ends. It returns an error if the watch
// ends: servers end watches after half an hour at the earliest, and no story takes that long.
func (c collection) follow(ctx context.Context, events chan<- event) error {
	objects, version, err := c.list(ctx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if !send(ctx, events, event{object: o}) {
			return nil
		}
	}
	watched, err := c.client.Watch(ctx, metav1.ListOptions{FieldSelector: c.selector, ResourceVersion: version})
	if err != nil {
		return fmt.Errorf("watch %s: %w", c.name, err)
	}
	defer watched.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e, ok := <-watched.ResultChan():
			if !ok {
				return fmt.Errorf("the watch of %s ended", c.name)
			}
			object, ok := e.Object.(*unstructured.Unstructured)
			if e.Type == watch.Error || !ok {
				return fmt.Errorf("watch %s: %w", c.name, apierrors.FromObject(e.Object))
			}
			if !send(ctx, events, event{demo.Read(object), e.Type == watch.Deleted}) {
				return nil
			}
		}
	}
}

func send(ctx context.Context, events chan<- event, e event) bool {
	select {
	case events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// followAll follows all collections until ctx ends or one of them fails.
func followAll(ctx context.Context, all []collection, events chan<- event) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range all {
		group.Go(func() error { return c.follow(ctx, events) })
	}
	return group.Wait()
}

// listAll lists the objects of every collection.
func listAll(ctx context.Context, all []collection) ([]demo.Object, error) {
	var objects []demo.Object
	for _, c := range all {
		of, _, err := c.list(ctx)
		if err != nil {
			return nil, err
		}
		objects = append(objects, of...)
	}
	return objects, nil
}
