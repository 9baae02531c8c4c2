package sections

import (
	"context"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/coppice-dev/coppice/bench/internal/controlplane"
	"github.com/coppice-dev/coppice/bench/internal/rawclient"
)

// payload is the number of bytes that an object has besides its metadata.
const payload = 512

func (b *Bench) newNamespace(ctx context.Context, p *controlplane.Plane, prefix string) (string, error) {
	name := b.name(prefix)
	_, err := p.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return name, err
}

// newOwner creates an object and returns a blocking reference to it.
func newOwner(ctx context.Context, p *controlplane.Plane, namespace, name string) (metav1.OwnerReference, error) {
	owner, err := p.Client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return metav1.OwnerReference{}, err
	}
	blocking := true
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, BlockOwnerDeletion: &blocking}, nil
}

// newObjects returns objects that are not created yet, owned by the owners in turn if there are
// any.
func newObjects(namespace string, n int, owners ...metav1.OwnerReference) []*corev1.ConfigMap {
	objects := make([]*corev1.ConfigMap, n)
	for i := range objects {
		objects[i] = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%06d", i), Namespace: namespace},
			Data:       map[string]string{"payload": strings.Repeat("x", payload)},
		}
		if len(owners) > 0 {
			objects[i].OwnerReferences = []metav1.OwnerReference{owners[i%len(owners)]}
		}
	}
	return objects
}

// each calls do for all objects, with all clients concurrently.
func each(ctx context.Context, clients rawclient.Clients, objects []*corev1.ConfigMap, do func(context.Context, *rawclient.Client, *corev1.ConfigMap) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for worker, client := range clients {
		group.Go(func() error {
			for i := worker; i < len(objects); i += len(clients) {
				if err := do(ctx, client, objects[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func create(ctx context.Context, client *rawclient.Client, object *corev1.ConfigMap) error {
	return client.Create(ctx, object)
}

// update changes the payload: an update without changes causes no write and no event.
func update(ctx context.Context, client *rawclient.Client, object *corev1.ConfigMap) error {
	letter := "x"
	if strings.HasPrefix(object.Data["payload"], letter) {
		letter = "y"
	}
	object.Data["payload"] = strings.Repeat(letter, payload)
	return client.Update(ctx, object)
}

func remove(ctx context.Context, client *rawclient.Client, object *corev1.ConfigMap) error {
	return client.Delete(ctx, object)
}
